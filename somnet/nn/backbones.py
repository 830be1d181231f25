"""Any timm model as a feature map with a linear classifier on its mean."""

import copy
import hashlib
import re
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from functools import cache
from typing import Any

import timm
import torch
from torch import Tensor, nn

from somnet.config import ModelConfig
from somnet.errors import ConfigError, ExportError, WeightsError
from somnet.nn.cutting import Resized, Whole, cut
from somnet.nn.roi import pool_boxes, pool_image
from somnet.nn.weights import (
    OFFLINE,
    OFFLINE_LICENCE,
    OFFLINE_MEAN,
    OFFLINE_MODEL,
    OFFLINE_STD,
    impatient_hub,
    load_offline_weights,
    local_weights,
)
from somnet.system.transfer import on_gpu

NEAR_NAMES = 5  # of models, to suggest


class Network(nn.Module):
    """The CNN of the paper: a feature map, and a classifier for whatever is averaged from it.

    The map is computed in two stages, trunk and tail. With a frozen trunk its outputs are cached once per image,
    and `inputs` of the methods below are those cached maps; otherwise they are the uint8 pixels themselves.
    """

    mean: Tensor
    std: Tensor
    reads_images = True  # False: it is given a vector of each image instead

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        body, mean, std = _create(config)
        self.licence = licence_of(config)
        self.frozen_trunk = config.freeze == "trunk"
        self.imgsz = config.imgsz
        self.precision = "fp32"  # of the maps while training on a GPU; all that follows is fp32
        self.trunk, self.tail = _cut(body, config)
        self.trunk.requires_grad_(False)
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))
        with torch.no_grad():
            body.eval()
            blank = self.prepare(torch.zeros(1, 3, config.imgsz, config.imgsz, dtype=torch.uint8))
            self.input_shape = tuple(blank.shape[1:])  # of one image's inputs
            self.width: int = self.maps(blank).shape[1]  # F
        self.classifier = nn.Linear(self.width, classes)
        nn.init.zeros_(self.classifier.bias)

    def train(self, mode: bool = True) -> "Network":
        """With a frozen trunk all batch-norm statistics stay those of the pretraining.

        Small batches of cluttered scenes would replace them by statistics that whole test images do not have.
        """
        super().train(mode)
        if self.frozen_trunk:
            self.trunk.eval()
            for module in self.tail.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def prepare(self, pixels: Tensor) -> Tensor:
        """uint8 pixels (I, 3, H, W) to the inputs of `maps`: through a frozen trunk, or as they are."""
        return self.trunk(self.normalise(pixels)) if self.frozen_trunk else pixels

    def maps(self, inputs: Tensor) -> Tensor:
        """Feature maps (I, F, H, W) from prepared inputs."""
        return self.maps_by(self.tail, inputs)

    def maps_by(self, tail: nn.Module, inputs: Tensor) -> Tensor:
        """What a tail that is built like this network's makes of prepared inputs."""
        with self.lowered(inputs.device):
            maps: Tensor = tail(inputs.float() if self.frozen_trunk else self.normalise(inputs))
        return maps.float()

    def lowered(self, device: torch.device) -> AbstractContextManager[None]:
        """Within this context convolutions and products are computed in this network's precision, on a GPU."""
        lower = _LOWER.get(self.precision)
        return torch.autocast(device.type, dtype=lower) if lower and on_gpu(device) else nullcontext()

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels from 0 to 255 as the backbone was trained to see them."""
        return (pixels.float() / 255 - self.mean) / self.std

    def roi_features(self, inputs: Tensor, boxes: Tensor) -> Tensor:
        """Features (I, P, F) of the boxes (I, P, 4) of each image.

        Inputs are one per image, from whose map all boxes are pooled; or one per box, in which it is seen at full size.
        """
        if len(inputs) > len(boxes):
            return self.image_features(inputs).view(*boxes.shape[:2], -1)
        return pool_boxes(self.maps(inputs), boxes)

    def image_features(self, inputs: Tensor) -> Tensor:
        """Features (I, F) of whole images: what box 0 would give."""
        return pool_image(self.maps(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (I, C) of whole images; at test time this is all there is, as in the paper."""
        return self.classifier(self.image_features(inputs))  # type: ignore[no-any-return]

    def evidence(self, inputs: Tensor) -> Tensor:
        """Logits (I, C, H, W) of each cell of the map; of a linear classifier their mean is what `forward` gives."""
        cells: Tensor = self.classifier(self.maps(inputs).permute(0, 2, 3, 1))  # (I, H, W, C)
        return cells.permute(0, 3, 1, 2)

    def twin(self) -> "Network":
        """A copy for prepared inputs that is not trained: tail and classifier as they are now, no trunk."""
        twin = copy.deepcopy(self, {id(self.trunk): nn.Identity()})
        return twin.requires_grad_(False)

    def trunk_fingerprint(self) -> str:
        """Names the trunk's exact weights and input size, for the cache of its outputs."""
        digest = hashlib.sha256(repr((self.imgsz, self.input_shape, self.mean.tolist(), self.std.tolist())).encode())
        for name, tensor in sorted(self.trunk.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def set_precision(module: nn.Module, precision: str) -> None:
    """Of all networks in a module: teachers and second networks are asked as often as the one that is tested."""
    for network in module.modules():
        if isinstance(network, Network):
            network.precision = precision


def compile_networks(module: nn.Module) -> None:
    """Have torch compile the tails of all networks in a module when they are first used; weights keep their names."""
    for network in module.modules():
        if isinstance(network, Network):
            network.tail.compile()


def licence_of(config: ModelConfig) -> str:
    """The licence of the weights that a network starts from."""
    if not config.pretrained:
        return "none, random weights"
    if config.weights:
        return f"that of {config.weights}"
    if config.name in OFFLINE:
        return OFFLINE_LICENCE
    return str(timm.get_pretrained_cfg_value(config.name, "license") or "unknown")


def as_timm_model(network: Network, config: ModelConfig) -> tuple[Any, dict[str, Any]]:
    """The same network as timm itself builds it, and the arguments that timm needs for that.

    A Network is a linear classifier on the mean of the feature map. A model of timm that does something else between
    the two, even if told to average, is found out by trying, and refused.
    """
    if not isinstance(network.classifier, nn.Linear):
        raise ExportError(
            "the classifier of this run's method is not linear, so timm has no place for it: export with --format onnx"
        )
    pixels = torch.randint(0, 256, (2, 3, config.imgsz, config.imgsz), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(network.prepare(pixels.to(torch.uint8)))  # (2, C)
        for arguments in _AVERAGING:
            try:
                model = _filled(network, config, arguments)
                same = torch.allclose(model(network.normalise(pixels)), expected, atol=1e-4)
            except (AttributeError, RuntimeError, TypeError, ValueError):
                continue
            if same:
                return model, arguments
    raise ExportError(
        f"timm's own '{config.name}' does more than average its feature map before the classifier, so it cannot give "
        "what this run learnt: export with --format onnx"
    )


_AVERAGING: tuple[dict[str, Any], ...] = ({}, {"global_pool": "avg", "fc_norm": False})  # a CNN; a transformer


def _filled(network: Network, config: ModelConfig, arguments: dict[str, Any]) -> Any:
    """A timm model with the weights of a network; raises if they do not fit."""
    model: Any = timm.create_model(config.name, num_classes=0, **_image_size(config), **arguments)
    for module, learnt in zip(_cut(model, config), (network.trunk, network.tail), strict=True):
        module.load_state_dict(learnt.state_dict())
    model.reset_classifier(network.classifier.out_features)
    model.get_classifier().load_state_dict(network.classifier.state_dict())
    return model.eval()


def check_name(config: ModelConfig) -> None:
    """Refuse the name of a model that timm does not know."""
    if not timm.is_model(config.name):
        near = _near_names(config.name)
        hint = f", perhaps {', '.join(near)}" if near else ""
        raise ConfigError(f"timm has no model '{config.name}': choose one of timm.list_models(){hint}")


def _create(config: ModelConfig) -> tuple[nn.Module, tuple[float, ...], tuple[float, ...]]:
    """A timm model without its classifier, and its input statistics."""
    check_name(config)
    if config.pretrained and config.weights:
        return _with_local_weights(config)
    if config.name in OFFLINE and config.pretrained:
        whole: Any = timm.create_model(config.name)
        load_offline_weights(whole, config.name)
        whole.reset_classifier(0)
        return whole, (OFFLINE_MEAN,) * 3, (OFFLINE_STD,) * 3
    try:
        with impatient_hub() if config.pretrained else nullcontext():
            model: Any = timm.create_model(
                config.name, pretrained=config.pretrained, num_classes=0, **_image_size(config)
            )
    except Exception as error:  # the hub's client raises many kinds; the user needs one answer
        if not config.pretrained:
            raise ConfigError(f"timm cannot build '{config.name}': {error}: choose another --model") from None
        raise WeightsError(
            f"cannot load the pretrained weights of '{config.name}' from timm's hub ({type(error).__name__}): connect "
            f"to the network once, give --weights FILE.safetensors, use --model {OFFLINE_MODEL}, whose weights are "
            "installed, or train from scratch with --set model.pretrained=false --freeze none"
        ) from None
    cfg = model.pretrained_cfg
    return model, tuple(cfg["mean"]), tuple(cfg["std"])


def _near_names(name: str) -> list[str]:
    """Some models whose names are much like it, or else have a word of it that few others have."""
    known = timm.list_models()
    if near := get_close_matches(name.lower(), known, NEAR_NAMES):
        return near
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if len(word) > 3]
    having = [[model for model in known if word in model] for word in words]
    return min((models for models in having if models), key=len, default=[])[:NEAR_NAMES]


def _with_local_weights(config: ModelConfig) -> tuple[nn.Module, tuple[float, ...], tuple[float, ...]]:
    """The same with the weights of a file: timm fits them to the size of the images, as it does with its own."""
    file = local_weights(config.weights)
    overlay = {"file": str(file)}
    size = _image_size(config)
    try:
        model: Any = timm.create_model(
            config.name, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay, **size
        )
    except Exception as error:  # of any kind, where a file is something else
        reason = " ".join(str(error).split())[:200]
        raise WeightsError(
            f"{file} has not the weights of '{config.name}' as timm names them ({reason}): give --model its name"
        ) from None
    return model, tuple(model.pretrained_cfg["mean"]), tuple(model.pretrained_cfg["std"])


def _image_size(config: ModelConfig) -> dict[str, Any]:
    return {"img_size": _own_side(config)} if timm.get_pretrained_cfg_value(config.name, "fixed_input_size") else {}


def _own_side(config: ModelConfig) -> int:
    """The side of the images that a model gets: that of the config, or near it what can be cut into its patches."""
    if not timm.get_pretrained_cfg_value(config.name, "fixed_input_size"):
        return config.imgsz
    step = _patch_side(config.name)
    return max(step, round(config.imgsz / step) * step)


@cache
def _patch_side(name: str) -> int:
    """Pixels of which the side of an image has to be a multiple."""
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=0)
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    reductions = [info["reduction"] for info in getattr(model, "feature_info", ()) if isinstance(info, dict)]
    return int(max([patch[0] if isinstance(patch, tuple) else 1, *reductions]))


def _cut(body: nn.Module, config: ModelConfig) -> tuple[nn.Module, nn.Module]:
    """What is frozen and what is trained of a timm model, as two modules that share its weights."""
    side = _own_side(config)
    trunk, tail = cut(body, side, config.name) if config.freeze == "trunk" else (nn.Identity(), Whole(body))
    if side == config.imgsz:
        return trunk, tail
    resized = Resized(side)
    return (nn.Sequential(resized, trunk), tail) if config.freeze == "trunk" else (trunk, nn.Sequential(resized, tail))


_LOWER = {"bf16": torch.bfloat16, "fp16": torch.float16}
