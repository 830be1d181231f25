"""A timm model as two modules that share its weights: a trunk to be frozen, and a tail that ends in a feature map.

A CNN, or a transformer of stages such as Swin, applies its children in order: the tail is its last stage. A transformer
of blocks adds positions and tokens on the way: its trunk is the model without the last block and what follows, and the
tail is these. Whether a cut is right is found out by trying, so no model is known here by name.
"""

import copy
from typing import Any

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn import functional

from somnet.errors import ConfigError

CONTAINERS = ("stages", "blocks", "layers", "features")
AFTER_THE_MAP = ("global_pool", "attn_pool", "fc_norm", "head_drop", "head", "head_dist", "classifier", "fc")


class Whole(nn.Module):
    """A timm model's feature map as (I, F, H, W), whatever layout the model prefers."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.layout = _Layout(body)

    def forward(self, images: Tensor) -> Tensor:
        return self.layout(self.body.forward_features(images))  # type: ignore[operator, no-any-return]


class _Layout(nn.Module):
    """What a model makes of images as a map (I, F, H, W)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.prefix = int(getattr(body, "num_prefix_tokens", 0) or 0)
        self.width = int(body.num_features)  # type: ignore[arg-type]

    def forward(self, out: Tensor) -> Tensor:
        if out.dim() == 3:  # tokens: drop those of the class and registers, lay the rest out as the image was cut
            tokens = out[:, self.prefix :]
            side = round(tokens.shape[1] ** 0.5)
            return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side)
        channels_last = out.shape[-1] == self.width != out.shape[1]
        return out.permute(0, 3, 1, 2) if channels_last else out


class Stages(nn.Sequential):
    """Modules one after the other, in which a convolution does the work of the normalisation that follows it.

    Where statistics are given, normalising is a scale and a shift of each channel: the scale becomes part of the
    convolution's weights and the shift its bias. The map is the same, the gradients are, and those of the scales come
    from the gradient of the weights. To find them from the map costs a third of what both products do.
    """

    def forward(self, input: Tensor) -> Tensor:
        stages, x = list(self), input
        while stages:
            stage = stages.pop(0)
            folded = stages and _foldable(stage, stages[0])
            x = _normalised(stage, stages.pop(0), x) if folded else stage(x)
        return x


def _foldable(stage: nn.Module, following: nn.Module) -> bool:
    """Whether a convolution is followed by a normalisation whose statistics are given; of kinds that are known."""
    known = type(stage) is nn.Conv2d and type(following) in (nn.BatchNorm2d, BatchNormAct2d)
    return known and not following.training and bool(following.affine and following.track_running_stats)


def _normalised(convolution: Any, norm: Any, x: Tensor) -> Tensor:
    """What a normalisation, and the activation that it may have, make of the output of a convolution."""
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)  # (F,)
    shift = norm.bias - norm.running_mean * scale
    if convolution.bias is not None:
        shift = shift + convolution.bias * scale
    out: Tensor = convolution._conv_forward(x, convolution.weight * scale[:, None, None, None], shift)
    return norm.act(norm.drop(out)) if isinstance(norm, BatchNormAct2d) else out


class Resized(nn.Module):
    """Images at the size that a model takes: a multiple of its patches."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        return functional.interpolate(images, (self.side, self.side), mode="bilinear")


def cut(body: nn.Module, side: int, name: str) -> tuple[nn.Module, nn.Module]:
    """Trunk and tail of a timm model for images of this side: the tail has its last stage or block."""
    body.eval()
    probe = torch.linspace(-1, 1, 2 * 3 * side**2).view(2, 3, side, side)
    with torch.no_grad():
        of_blocks = body.forward_features(probe[:1]).dim() == 3  # type: ignore[operator]
        for way in (_last_block,) if of_blocks else (_last_stage, _last_block):
            try:
                trunk, tail = way(body, probe)
                if torch.allclose(tail(trunk(probe)), Whole(body)(probe), atol=1e-5):
                    return trunk, tail
            except (AttributeError, IndexError, RuntimeError, StopIteration, TypeError, ValueError):
                continue
    raise ConfigError(f"'{name}' cannot be cut into trunk and last stage: use --freeze none, or another --model")


def _last_stage(body: nn.Module, probe: Tensor) -> tuple[nn.Module, nn.Module]:
    """The children in order; the tail starts at the last of them that has weights beyond scales."""
    stages: list[nn.Module] = []
    for name, child in body.named_children():
        if name in AFTER_THE_MAP:
            break
        stages.extend(child if isinstance(child, nn.Sequential) and name in CONTAINERS else [child])
    start = max(i for i, stage in enumerate(stages) if any(p.dim() > 1 for p in stage.parameters()))
    channels_last = body.forward_features(probe).shape[1] != body.num_features  # type: ignore[operator]
    layout = [_Layout(body)] if channels_last else []
    return nn.Sequential(*stages[:start]), Stages(*stages[start:], *layout)


def _last_block(body: nn.Module, probe: Tensor) -> tuple[nn.Module, nn.Module]:
    """All up to the last block, with the positions and tokens that a model adds; then that block and what follows."""
    children = dict(body.named_children())
    place = next(name for name in children if name in CONTAINERS)
    *blocks, last = list(children[place].children())
    names = list(children)
    after = [name for name in names[names.index(place) + 1 :] if name not in AFTER_THE_MAP]
    trunk = copy.copy(body)
    trunk._modules = dict(body._modules)
    setattr(trunk, place, type(children[place])(*blocks) if _is_chain(children[place]) else nn.ModuleList(blocks))
    for name in (*after, *(name for name in names if name in AFTER_THE_MAP)):
        setattr(trunk, name, nn.Identity())
    return _Features(trunk), _Tail(last, _other_arguments(body, last, probe), [children[name] for name in after], body)


def _is_chain(container: nn.Module) -> bool:
    return isinstance(container, nn.Sequential)


def _other_arguments(body: nn.Module, block: nn.Module, probe: Tensor) -> dict[str, Any]:
    """What a block is given beside the tokens, as rotary positions: the same for all images, and not learnt."""
    seen: dict[str, Any] = {}

    def look(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1:
            raise ValueError("a block has arguments without names")
        seen.update(named)

    hook = block.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with torch.enable_grad():
            body.forward_features(probe)  # type: ignore[operator]
    finally:
        hook.remove()
    if any(isinstance(value, Tensor) and value.requires_grad for value in seen.values()):
        raise ValueError("a block has learnt arguments")
    return seen


class _Features(nn.Module):
    """A model that gives its features alone."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        return self.body.forward_features(images)  # type: ignore[operator, no-any-return]


class _Tail(nn.Module):
    """The last block with its other arguments, what follows it, and the layout of a map."""

    def __init__(self, block: nn.Module, arguments: dict[str, Any], after: list[nn.Module], body: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.after = nn.Sequential(*after)
        self.layout = _Layout(body)
        self.arguments = {name: value for name, value in arguments.items() if not isinstance(value, Tensor)}
        self.tensors = [name for name, value in arguments.items() if isinstance(value, Tensor)]
        for name in self.tensors:
            self.register_buffer(f"given_{name}", arguments[name].detach().clone(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        given = {name: getattr(self, f"given_{name}") for name in self.tensors}
        return self.layout(self.after(self.block(tokens, **self.arguments, **given)))  # type: ignore[no-any-return]
