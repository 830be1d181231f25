"""Batch normalisation over ranks; of one rank it is torch's own. Two are in tests/system/test_ranks.py."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from somnet.nn.batch_statistics import WholeBatch
from somnet.system.ranks import ALONE, Ranks


def passed(layer: nn.Module, x: Tensor, context: WholeBatch | None) -> list[Tensor]:
    """Output, gradients and buffers after a step in a layer."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    if context is None:
        y = layer(x)
    else:
        with context:
            y = layer(x)
    (y * torch.arange(float(y.numel())).view_as(y).sin()).sum().backward()
    return [y, x.grad, *(parameter.grad for parameter in layer.parameters()), *layer.buffers()]


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}])
@pytest.mark.parametrize("training", [True, False])
def test_a_single_rank_normalises_as_torch_does(options: dict[str, Any], training: bool) -> None:
    layer = nn.BatchNorm2d(4, **options).train(training)
    x = torch.randn(5, 4, 3, 2, generator=torch.Generator().manual_seed(0)) * 3 + 2
    start = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    expected = [tensor.clone() for tensor in passed(layer, x, None)]
    layer.load_state_dict(start)
    found = passed(layer, x, WholeBatch(ALONE, 1.0))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


class _Twice(Ranks):
    """Another rank that has the same images."""

    def summed(self, values: Tensor) -> Tensor:
        return 2 * values.detach()


def test_the_images_of_other_ranks_count() -> None:
    """Two ranks with the same images: mean, variance and gradients of a batch that has each of them twice."""
    layer, x = nn.BatchNorm1d(3), torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    alone = passed(layer, x, WholeBatch(ALONE, 1.0))
    shared = passed(nn.BatchNorm1d(3), x, WholeBatch(_Twice(), 0.5))
    for one, other in zip(shared[:2], alone[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert shared[5][0] > 0.9  # (running variance: that of 12 images, not of 6)
    torch.testing.assert_close((shared[5] - 0.9) / (alone[5] - 0.9), torch.full((3,), (12 / 11) / (6 / 5)))


def test_a_rank_without_images_counts_for_nothing() -> None:
    layer = nn.BatchNorm1d(2)
    *_, mean, variance, _ = passed(layer, torch.full((3, 2), 7.0), WholeBatch(_Absent(), 0.0))
    torch.testing.assert_close((mean, variance), (torch.full((2,), 0.1), torch.full((2,), 1.0 * 0.9 + 0.1 * 4 * 5 / 4)))


class _Absent(Ranks):
    """Beside another rank, which has 5 images of mean 1 and variance 4."""

    def summed(self, values: Tensor) -> Tensor:
        others = torch.tensor([5.0, 5.0, 5.0]) if len(values) == 3 else torch.tensor([20.0, 20.0])
        return values.detach() + others
