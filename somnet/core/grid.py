"""The square grid on which the memory's slots lie."""

import torch
from torch import Tensor


def geodesic_distance(a: Tensor, b: Tensor, side: int) -> Tensor:
    """geo(k_a, k_b): length of the shortest path between two slots on the 4-connected grid."""
    rows = (a // side - b // side).abs()
    columns = (a % side - b % side).abs()
    return rows + columns


def neighbour_weight(distance: Tensor) -> Tensor:
    """eta = 1 / (1 + geo): how strongly a neighbour follows the winner (beside Eq. 8)."""
    return 1.0 / (1.0 + distance)


def neighbourhood(side: int, radius: int) -> tuple[Tensor, Tensor]:
    """N(k, delta) of every slot: the neighbours' indices and their eta.

    Every slot gets the same number of columns; where the grid ends, the slot itself stands in with weight 0.
    """
    reach = torch.arange(-radius, radius + 1)
    offsets = torch.cartesian_prod(reach, reach)
    offsets = offsets[offsets.abs().sum(dim=1) <= radius]  # (K, 2) the diamond of the Manhattan distance
    slots = torch.arange(side * side)
    row = slots[:, None] // side + offsets[:, 0]  # (L, K)
    column = slots[:, None] % side + offsets[:, 1]  # (L, K)
    inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
    index = torch.where(inside, row * side + column, slots[:, None])  # (L, K)
    eta = neighbour_weight(geodesic_distance(slots[:, None], index, side)) * inside  # (L, K)
    return index, eta
