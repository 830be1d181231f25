"""The mean of a map over boxes, against the plain way of computing it."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from somnet.nn.roi import overlap, pool_boxes

FACTOR = 4  # a cell of the map becomes 4 x 4 pixels of the dense reference

Numbers = tuple[float, float, float, float]


def dense_reference(maps: Tensor, boxes: Tensor) -> Tensor:
    """Enlarge the maps without smoothing and average the pixels of integer boxes (I, P, 4)."""
    large = maps.repeat_interleave(FACTOR, dim=2).repeat_interleave(FACTOR, dim=3)
    return torch.stack(
        [
            torch.stack([image[:, y1:y2, x1:x2].mean(dim=(1, 2)) for x1, y1, x2, y2 in image_boxes.tolist()])
            for image, image_boxes in zip(large, boxes, strict=True)
        ]
    )


@st.composite
def any_boxes(draw: st.DrawFn) -> Numbers:
    x = sorted(draw(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2)))
    y = sorted(draw(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2)))
    return x[0], y[0], x[1], y[1]


def test_overlap_of_half_a_line_with_four_cells() -> None:
    shares = overlap(torch.tensor([0.125]), torch.tensor([0.625]), 4)
    assert shares[0].tolist() == pytest.approx([0.25, 0.5, 0.25, 0.0])


def test_mean_over_a_quarter() -> None:
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
    boxes = torch.tensor([[[0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 1.0, 0.5], [0.25, 0.25, 0.75, 0.75]]])
    assert pool_boxes(maps, boxes).flatten().tolist() == pytest.approx([6.0, 1.5, 3.0])


def test_equals_the_dense_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(3, 5, 4, 7, generator=generator)
    height, width = 4 * FACTOR, 7 * FACTOR
    x = torch.randint(width - 1, (3, 20), generator=generator)
    y = torch.randint(height - 1, (3, 20), generator=generator)
    low = torch.stack([x, y], dim=-1)
    room = torch.tensor([width, height]) - low
    size = 1 + (torch.rand(3, 20, 2, generator=generator) * (room - 1)).round().long()
    boxes = torch.cat([low, low + size], dim=-1)
    shares = boxes / torch.tensor([width, height, width, height])
    assert torch.allclose(pool_boxes(maps, shares), dense_reference(maps, boxes), atol=1e-5)


def test_the_whole_image_is_the_mean() -> None:
    maps = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(1))
    pooled = pool_boxes(maps, torch.tensor([[[0.0, 0.0, 1.0, 1.0]]] * 2))
    assert torch.allclose(pooled[:, 0], maps.mean(dim=(2, 3)), atol=1e-6)


@pytest.mark.parametrize("box", [(0.0, 0.0, 0.0, 0.0), (0.5, 0.2, 0.5, 0.9), (0.9, 0.9, 0.1, 0.1)])
def test_an_empty_box_gives_0(box: Numbers) -> None:
    assert pool_boxes(torch.ones(1, 2, 3, 3), torch.tensor([[box]])).tolist() == [[[0.0, 0.0]]]


def test_gradients_of_the_maps_are_right() -> None:
    maps = torch.randn(2, 2, 3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(2)).requires_grad_()
    boxes = torch.tensor([[[0.1, 0.2, 0.9, 0.7], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]] * 2, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda m: pool_boxes(m, boxes), (maps,))


def test_gradient_stays_inside_the_box() -> None:
    maps = torch.zeros(1, 1, 4, 4, requires_grad=True)
    torch.autograd.backward(pool_boxes(maps, torch.tensor([[[0.0, 0.0, 0.5, 0.25]]])).sum())
    assert maps.grad is not None
    assert maps.grad[0, 0].tolist() == [[0.5, 0.5, 0.0, 0.0], *[[0.0] * 4] * 3]


@given(any_boxes(), st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
@example((0.0, 0.0, 1.0, 2e-44), 1, 1, 0)  # thinner than the smallest normal number
def test_a_mean_lies_between_the_extremes(box: Numbers, height: int, width: int, seed: int) -> None:
    maps = torch.randn(1, 1, height, width, generator=torch.Generator().manual_seed(seed))
    boxes = torch.tensor([[box]])
    mean = float(pool_boxes(maps, boxes))
    if box[2] > box[0] and box[3] > box[1]:
        assert float(maps.min()) - 1e-4 <= mean <= float(maps.max()) + 1e-4
    else:
        assert mean == 0
