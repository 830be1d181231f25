"""Backbones of all families: cut into trunk and tail, trained whole, and exported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from somnet.config import ModelConfig
from somnet.errors import WeightsError
from somnet.nn.backbones import Network
from somnet.nn.cutting import Stages, Whole
from somnet.nn.engine import open_trunk

SMALL = 64
QUICK = ("test_vit", "test_vit3", "test_resnet", "test_convnext")
FAMILIES = {
    "ViT": ("vit_tiny_patch16_224", "vit_tiny_r_s16_p8_224", "deit_tiny_patch16_224", "deit3_small_patch16_224"),
    "DINOv2": ("vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"),
    "DINOv3": ("vit_small_patch16_dinov3", "convnext_tiny"),
    "CLIP": ("vit_xsmall_patch16_clip_224", "vit_base_patch32_clip_224"),
    "SigLIP": ("vit_base_patch16_siglip_224", "vit_base_patch16_siglip_gap_224"),
    "EVA": ("eva02_tiny_patch14_224", "eva02_small_patch14_224"),
    "BEiT": ("beit_base_patch16_224",),
    "Swin": ("swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256"),
    "Hiera": ("hiera_tiny_224",),
    "other transformers": ("maxvit_tiny_tf_224", "pvt_v2_b0", "tiny_vit_5m_224", "davit_tiny", "caformer_s18"),
    "CNN": (
        "resnet18",
        "regnety_002",
        "mobilenetv3_small_050",
        "efficientnet_b0",
        "densenet121",
        "edgenext_xx_small",
        "fastvit_t8",
        "mobilevit_xxs",
    ),
}
NAMES = [name for names in FAMILIES.values() for name in names]


def network(name: str, freeze: str = "trunk", side: int = SMALL) -> Network:
    torch.manual_seed(0)
    config = ModelConfig.model_validate({"name": name, "freeze": freeze, "pretrained": False, "imgsz": side})
    return Network(config, classes=3)


def pixels(side: int = SMALL) -> Tensor:
    return torch.randint(0, 256, (2, 3, side, side), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def check(name: str) -> None:
    """Both lanes give the same maps; the tail learns and the trunk does not; onnxruntime computes the trunk."""
    frozen, free = network(name).eval(), network(name, "none").eval()
    with torch.no_grad():
        inputs = frozen.prepare(pixels())
        maps = frozen.maps(inputs)
        assert torch.allclose(maps, free.maps(pixels()), atol=1e-4)
        assert maps.shape[2] == maps.shape[3] >= 2
        assert torch.allclose(frozen.evidence(inputs).mean(dim=(2, 3)), frozen(inputs), atol=1e-4)
        assert float((maps[0] - maps[1]).abs().max() / maps.abs().max()) > 1e-3  # it sees the images
        boxes = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5]]]).expand(2, -1, -1)
        assert frozen.roi_features(inputs, boxes).shape == (2, 2, frozen.width)
    frozen.train()
    frozen(inputs).logsumexp(dim=1).sum().backward()
    learnt = [parameter for parameter in frozen.tail.parameters() if parameter.grad is not None]
    assert sum(parameter.numel() for parameter in learnt) > 0
    assert all(parameter.grad is None for parameter in frozen.trunk.parameters())
    again = network(name)  # as a run is loaded: the same names, whatever the weights were
    again.load_state_dict(frozen.state_dict())


@pytest.mark.parametrize("name", QUICK)
def test_a_backbone_is_cut(name: str) -> None:
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_backbone_of_any_family_is_cut_and_exported(name: str) -> None:
    check(name)
    frozen = network(name).eval()
    trunk = open_trunk(frozen)
    assert "onnxruntime" in trunk.fingerprint  # it was written as a graph, and gives what torch gives
    assert torch.allclose(trunk.maps(pixels()), frozen.prepare(pixels()), atol=1e-3)


def test_a_transformer_keeps_its_first_blocks() -> None:
    frozen = network("test_vit")
    blocks = list(timm.create_model("test_vit", num_classes=0).get_submodule("blocks").children())
    kept = {name.split(".")[2] for name in frozen.trunk.state_dict() if ".blocks." in name}
    assert len(kept) == len(blocks) - 1
    own = sum(parameter.numel() for parameter in blocks[-1].parameters())
    assert sum(parameter.numel() for parameter in frozen.tail.parameters()) >= own


@pytest.mark.parametrize(("name", "side"), [("test_vit", 70), ("test_vit", 41), ("test_vit4", 100)])
def test_any_size_of_image_is_taken(name: str, side: int) -> None:
    for freeze in ("trunk", "none"):
        model = network(name, freeze, side).eval()
        with torch.no_grad():
            maps = model.maps(model.prepare(pixels(side)))
        assert maps.shape[2] == maps.shape[3] == round(side / 16)


def test_prefix_tokens_are_not_part_of_the_map() -> None:
    class Tokens(nn.Module):
        num_features, num_prefix_tokens = 2, 3

        def forward_features(self, images: Tensor) -> Tensor:
            tokens = torch.arange(7.0).view(1, 7, 1).expand(len(images), 7, 2)
            return tokens

    maps = Whole(Tokens())(torch.zeros(1, 3, 4, 4))
    assert maps[0, 0].tolist() == [[3.0, 4.0], [5.0, 6.0]]


# --- a convolution does the work of the normalisation behind it


def stages(activation: bool, bias: bool) -> Stages:
    """A convolution and its normalisation, with statistics and weights as after some training; and one more."""
    torch.manual_seed(0)
    norm = BatchNormAct2d(6, act_layer=nn.ReLU6) if activation else nn.BatchNorm2d(6)
    with torch.no_grad():
        norm.running_mean.uniform_(-2, 2)  # type: ignore[union-attr]
        norm.running_var.uniform_(0.01, 3)  # type: ignore[union-attr]
        norm.weight.uniform_(-1, 2)
        norm.bias.uniform_(-1, 1)
    return Stages(nn.Conv2d(4, 6, 3, padding=1, bias=bias), norm, nn.Conv2d(6, 5, 1)).double().eval()


def gradients(module: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    maps = module(images)
    return maps, list(torch.autograd.grad(maps.square().sum(), list(module.parameters())))


def kinds(of: Tensor) -> set[str]:
    """What the backward pass of a tensor is made of."""
    seen, left = set(), [of.grad_fn]
    while left:
        if (node := left.pop()) is not None:
            seen.add(type(node).__name__)
            left.extend(following for following, _ in node.next_functions)
    return seen


@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_given_normalisation_is_part_of_the_convolution(activation: bool, bias: bool) -> None:
    folding = stages(activation, bias)
    images = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    maps, found = gradients(folding, images)
    expected, wanted = gradients(nn.Sequential(*folding), images)
    assert torch.allclose(maps, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert not any("BatchNorm" in kind for kind in kinds(maps))
    assert any("BatchNorm" in kind for kind in kinds(expected))


def test_a_normalisation_by_its_batch_is_none_of_the_convolutions_business() -> None:
    folding = stages(activation=True, bias=False).train()
    before = folding[1].running_mean.clone()  # type: ignore[operator]
    maps = folding(torch.randn(3, 4, 5, 5, dtype=torch.float64))
    assert any("BatchNorm" in kind for kind in kinds(maps))
    assert not torch.equal(before, folding[1].running_mean)  # type: ignore[arg-type]


def test_a_step_of_the_default_tail_writes_no_map_for_normalisation_or_mean() -> None:
    frozen = network("tf_efficientnet_lite0").train()
    with torch.no_grad():
        inputs = frozen.prepare(pixels())
    assert not {"NativeBatchNormBackward0", "MeanBackward1"} & kinds(frozen(inputs))


# --- weights of one's own, and a hub that is away


def test_weights_of_a_file_are_taken_at_any_size(tmp_path: Path) -> None:
    own = timm.create_model("test_vit", num_classes=7)
    safetensors.torch.save_file(own.state_dict(), tmp_path / "own.safetensors")
    config = ModelConfig(name="test_vit", weights=str(tmp_path / "own.safetensors"), imgsz=SMALL, freeze="none")
    body = Network(config, classes=3).tail.body
    assert torch.equal(body.blocks[0].mlp.fc1.weight, own.blocks[0].mlp.fc1.weight)  # type: ignore[union-attr, index]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("own.safetensors", b"nothing", "has not the weights of 'test_vit'"),
        ("own.pth", b"", "no .safetensors file"),
        ("missing.safetensors", None, "do not exist"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=said):
        Network(ModelConfig(name="test_vit", weights=str(tmp_path / name), imgsz=SMALL), classes=3)


@pytest.mark.slow
def test_a_hub_that_is_away_costs_one_line(tmp_path: Path) -> None:
    surroundings = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    surroundings = {name: value for name, value in surroundings.items() if not name.lower().endswith("_proxy")}
    script = """
from somnet.config import ModelConfig
from somnet.errors import WeightsError
from somnet.nn.backbones import Network
try:
    Network(ModelConfig(name="resnet18"), 3)
except WeightsError as error:
    print(error)
"""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300, check=True)
    assert "cannot load the pretrained weights of 'resnet18'" in done.stdout
    assert "--weights" in done.stdout
    assert done.stderr == ""
