"""How well a self-organizing map has settled, and how steady the scores are: figures to watch, nothing is trained."""

import math

import torch
from torch import Tensor


def occupancy_entropy(wins: Tensor) -> float:
    """Entropy of the winners (L,) over that of an even use: 1 if all slots win alike, 0 if one slot wins all."""
    share = wins.double() / wins.sum().clamp(min=1)
    entropy = -torch.special.xlogy(share, share).sum()
    return float(entropy) / math.log(len(wins)) if len(wins) > 1 else 1.0


def quantisation_errors(cosines: Tensor) -> Tensor:
    """1 - cos(x, k_z) of each feature, from the cosine (B,) to its winner."""
    return (1.0 - cosines).clamp(min=0)


def topographic_errors(first: Tensor, second: Tensor, side: int) -> Tensor:
    """Whether (B,) the two nearest slots do not touch on the grid, not even at a corner."""
    rows = (first // side - second // side).abs()
    columns = (first % side - second % side).abs()
    return torch.maximum(rows, columns) > 1


def rank_correlation(a: Tensor, b: Tensor) -> float | None:
    """Spearman's: 1 for the same order, -1 for the reverse; None where there is no order to speak of."""
    ranks = torch.stack([_ranks(a), _ranks(b)])
    centred = ranks - ranks.mean(dim=1, keepdim=True)
    length = torch.linalg.vector_norm(centred, dim=1).prod()
    return float(centred.prod(dim=0).sum() / length) if len(a) > 1 and length > 0 else None


def _ranks(values: Tensor) -> Tensor:
    """Places in ascending order (n,); equals share the mean of theirs."""
    _, group, count = torch.unique(values, return_inverse=True, return_counts=True)
    ranks: Tensor = (count.cumsum(0).double() - (count + 1) / 2)[group]
    return ranks
