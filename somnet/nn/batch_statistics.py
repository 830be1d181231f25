"""Batch normalisation by the images of all ranks: each has a share of a batch, and normalises by the whole of it.

torch's own SyncBatchNorm does it for GPUs alone, and replaces layers. Here the call that every layer makes is answered,
whatever the layer, on CPUs too.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

from somnet.system.ranks import Ranks

_SIGNATURE = inspect.signature(batch_norm)


class WholeBatch(TorchFunctionMode):
    """Within this context layers that take the statistics of their batch take those of the batch of all ranks.

    `share` is this rank's in the mean over the batch; a rank with none of it comes along, and counts for nothing. All
    ranks have to call the same layers in the same order, as they meet in each of them.
    """

    def __init__(self, ranks: Ranks, share: float) -> None:
        super().__init__()
        self.ranks, self.share = ranks, share

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is not batch_norm:
            return func(*args, **(kwargs or {}))
        given = _SIGNATURE.bind(*args, **(kwargs or {}))
        given.apply_defaults()
        if not given.arguments["training"]:
            return func(*args, **(kwargs or {}))
        return self._normalised(**given.arguments)

    def _normalised(self, input: Tensor, momentum: float, eps: float, **tensors: Any) -> Tensor:
        """What a layer in training makes of images (I, F, ...)."""
        x, weight, bias = input, tensors["weight"], tensors["bias"]
        running_mean, running_var = tensors["running_mean"], tensors["running_var"]
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        flat = exact.transpose(0, 1).flatten(1)  # (F, n)
        here = float(self.share > 0)
        counted = torch.cat([flat.sum(dim=1), flat.new_full((1,), flat.shape[1])]) * here
        total = self._sum(counted)
        count = total[-1].detach()
        mean = total[:-1] / count  # (F,)
        variance = self._sum((flat - mean[:, None]).square().sum(dim=1) * here) / count  # (F,)
        with torch.no_grad():
            if running_mean is not None and running_var is not None:
                running_mean.lerp_(mean.to(running_mean.dtype), momentum)
                running_var.lerp_((variance * count / (count - 1).clamp(min=1)).to(running_var.dtype), momentum)
        scale = (variance + eps).rsqrt() * (1 if weight is None else weight)  # (F,)
        shift = (0 if bias is None else bias) - mean * scale
        shape = (1, -1, *[1] * (x.dim() - 2))
        return (exact * scale.view(shape) + shift.view(shape)).to(x.dtype)

    def _sum(self, values: Tensor) -> Tensor:
        total: Tensor = _SumOfRanks.apply(values, self.ranks, self.share)
        return total


class _SumOfRanks(torch.autograd.Function):
    """The sum over all ranks, through which the gradients of all ranks come back.

    The loss of the batch is the sum of the ranks' losses, each times its share. As the loop multiplies a rank's
    gradients by its share in the end, they have to come back divided by it.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks, share: float) -> Tensor:
        ctx.ranks, ctx.share = ranks, share
        return ranks.summed(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = ctx.ranks.summed(gradient * ctx.share)
        return total / ctx.share if ctx.share else torch.zeros_like(total), None, None
