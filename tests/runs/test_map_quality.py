"""Figures of the map and of the scores, by hand and against MiniSom and SciPy."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from minisom import MiniSom
from scipy.stats import spearmanr
from torch.nn import functional as F

from somnet.core.memory import two_nearest
from somnet.runs.map_quality import (
    occupancy_entropy,
    quantisation_errors,
    rank_correlation,
    topographic_errors,
)

SIDE = 5


def minisom(keys: torch.Tensor) -> MiniSom:
    made = MiniSom(SIDE, SIDE, keys.shape[1])
    made._weights = keys.view(SIDE, SIDE, -1).double().numpy()
    return made


@pytest.mark.parametrize(
    ("wins", "expected"),
    [
        ([5, 5, 5, 5], 1.0),
        ([9, 0, 0, 0], 0.0),
        ([4, 4, 0, 0], 0.5),  # log 2 over log 4
        ([0, 0, 0, 0], 0.0),
        ([2, 1, 1, 0], 0.75),  # (1/2 log 2 + 1/2 log 4) over log 4
        ([7], 1.0),
    ],
)
def test_occupancy_by_hand(wins: list[int], expected: float) -> None:
    assert occupancy_entropy(torch.tensor(wins)) == pytest.approx(expected)


def test_quantisation_by_hand() -> None:
    keys = torch.eye(4)[:3]
    cosines, slots = two_nearest(torch.tensor([[2.0, 0, 0, 0], [3.0, 4.0, 0, 0]]), keys)
    assert slots[:, 0].tolist() == [0, 1]
    assert slots[1].tolist() == [1, 0]
    assert quantisation_errors(cosines[:, 0]).tolist() == pytest.approx([0.0, 0.2])


def test_quantisation_is_half_the_square_of_minisoms() -> None:
    """|x - k|^2 = 2 (1 - cos) at unit length, and both take the same winner."""
    torch.manual_seed(0)
    keys, x = F.normalize(torch.randn(SIDE**2, 6), dim=1), F.normalize(torch.randn(40, 6), dim=1)
    errors = quantisation_errors(two_nearest(x, keys)[0][:, 0])
    theirs = [minisom(keys).quantization_error(row[None].double().numpy()) ** 2 / 2 for row in x]
    assert errors.tolist() == pytest.approx(theirs, abs=1e-6)


def test_topographic_error_by_hand() -> None:
    first, second = torch.tensor([[6, 6, 6, 6, 4, 0], [7, 12, 11, 8, 5, 0]])  # beside, corner, below, two off, row ends
    assert topographic_errors(first, second, SIDE).tolist() == [False, False, False, True, True, False]


def test_topographic_error_is_minisoms() -> None:
    torch.manual_seed(1)
    keys, x = F.normalize(torch.randn(SIDE**2, 6), dim=1), F.normalize(torch.randn(200, 6), dim=1)
    _, slots = two_nearest(x, keys)
    ours = float(topographic_errors(slots[:, 0], slots[:, 1], SIDE).float().mean())
    assert 0 < ours < 1
    assert ours == pytest.approx(minisom(keys).topographic_error(x.double().numpy()))


def test_a_lone_slot_is_its_own_runner_up() -> None:
    cosines, slots = two_nearest(torch.randn(3, 4), torch.eye(4)[:1])
    assert slots.tolist() == [[0, 0]] * 3
    assert cosines.shape == (3, 2)
    assert not topographic_errors(slots[:, 0], slots[:, 1], 1).any()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = (torch.tensor(column, dtype=torch.float32) for column in zip(*pairs, strict=True))
    found = rank_correlation(a, b)
    if len(torch.unique(a)) == 1 or len(torch.unique(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(float(spearmanr(a.numpy(), b.numpy()).statistic), abs=1e-9)


def test_an_empty_order_is_none() -> None:
    assert rank_correlation(torch.zeros(0), torch.zeros(0)) is None
    assert rank_correlation(torch.ones(1), torch.ones(1)) is None
