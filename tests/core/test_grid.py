"""Geodesic distance and neighbourhoods on the slot grid."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.core.grid import geodesic_distance, neighbour_weight, neighbourhood


def shortest_path(start: int, end: int, side: int) -> int:
    """Breadth-first search on the 4-connected grid."""
    steps = {start: 0}
    queue = deque([start])
    while queue:
        slot = queue.popleft()
        row, column = divmod(slot, side)
        for r, c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if 0 <= r < side and 0 <= c < side and r * side + c not in steps:
                steps[r * side + c] = steps[slot] + 1
                queue.append(r * side + c)
    return steps[end]


def distance(a: int, b: int, side: int) -> int:
    return int(geodesic_distance(torch.tensor(a), torch.tensor(b), side))


def weights_by_slot(side: int, radius: int, slot: int) -> dict[int, float]:
    """Neighbours of a slot with a weight; each may appear once."""
    index, eta = neighbourhood(side, radius)
    kept = [(int(i), float(w)) for i, w in zip(index[slot], eta[slot], strict=True) if w > 0]
    assert len(kept) == len({i for i, _ in kept}), "a neighbour counts twice"
    return dict(kept)


@st.composite
def grids(draw: st.DrawFn) -> tuple[int, int, int, int]:
    side = draw(st.integers(1, 8))
    slot = st.integers(0, side * side - 1)
    return side, draw(slot), draw(slot), draw(slot)


@given(grids())
def test_distance_is_the_shortest_path(grid: tuple[int, int, int, int]) -> None:
    side, a, b, _ = grid
    assert distance(a, b, side) == shortest_path(a, b, side)


@given(grids())
def test_distance_is_a_metric(grid: tuple[int, int, int, int]) -> None:
    side, a, b, c = grid
    assert distance(a, b, side) == distance(b, a, side)
    assert (distance(a, b, side) == 0) == (a == b)
    assert distance(a, c, side) <= distance(a, b, side) + distance(b, c, side)


def test_corner_to_corner_of_3x3_is_4() -> None:
    assert distance(0, 8, 3) == 4


def test_row_end_is_not_next_to_the_next_row() -> None:
    assert distance(2, 3, 3) == 3


def test_eta_is_1_then_a_half_then_a_third() -> None:
    assert neighbour_weight(torch.tensor([0, 1, 2])).tolist() == pytest.approx([1, 1 / 2, 1 / 3])


def test_centre_of_3x3_with_radius_1_has_its_cross() -> None:
    assert weights_by_slot(3, 1, 4) == pytest.approx({4: 1.0, 1: 0.5, 3: 0.5, 5: 0.5, 7: 0.5})


def test_centre_of_3x3_with_radius_2_has_all_nine() -> None:
    third = 1 / 3
    expected = {4: 1.0, 1: 0.5, 3: 0.5, 5: 0.5, 7: 0.5, 0: third, 2: third, 6: third, 8: third}
    assert weights_by_slot(3, 2, 4) == pytest.approx(expected)


def test_corner_of_3x3_with_radius_1_has_two_neighbours() -> None:
    assert weights_by_slot(3, 1, 0) == pytest.approx({0: 1.0, 1: 0.5, 3: 0.5})


def test_corner_of_3x3_with_radius_2_has_five_neighbours() -> None:
    expected = {8: 1.0, 7: 0.5, 5: 0.5, 6: 1 / 3, 4: 1 / 3, 2: 1 / 3}
    assert weights_by_slot(3, 2, 8) == pytest.approx(expected)


def test_neighbours_off_the_grid_weigh_nothing() -> None:
    index, eta = neighbourhood(3, 1)
    assert index.shape == eta.shape == (9, 5)
    assert int((eta[0] == 0).sum()) == 2  # above and left of the first corner
    assert index.min() >= 0
    assert index.max() <= 8


def test_radius_0_is_the_slot_alone() -> None:
    index, eta = neighbourhood(3, 0)
    assert index.tolist() == [[slot] for slot in range(9)]
    assert eta.tolist() == [[1.0]] * 9


@given(st.integers(1, 7), st.integers(0, 8))
def test_neighbourhood_is_all_slots_within_the_radius(side: int, radius: int) -> None:
    index, eta = neighbourhood(side, radius)
    dense = torch.zeros(side * side, side * side).scatter_add_(1, index, eta)
    slots = torch.arange(side * side)
    geo = geodesic_distance(slots[:, None], slots[None, :], side)
    assert torch.allclose(dense, torch.where(geo <= radius, 1 / (1 + geo), 0.0))
