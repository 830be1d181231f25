"""Entropy and divergence by hand."""

import math

import pytest
import torch

from somnet.methods.entropy import divergence, entropy

EVEN = torch.tensor([[0.0, 0.0]])  # p = (1/2, 1/2)
QUARTER = torch.tensor([[0.0, math.log(3)]])  # p = (1/4, 3/4)


def test_entropy_by_hand() -> None:
    quarter = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    assert float(entropy(torch.cat([EVEN, QUARTER]))) == pytest.approx((math.log(2) + quarter) / 2)


def test_a_sure_prediction_has_no_entropy() -> None:
    assert float(entropy(torch.tensor([[1000.0, 0.0]]))) == 0.0


def test_divergence_by_hand() -> None:
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert float(divergence(EVEN, QUARTER)) == pytest.approx(expected)
    assert float(divergence(torch.cat([EVEN, EVEN]), torch.cat([QUARTER, EVEN]))) == pytest.approx(expected / 2)
    assert float(divergence(QUARTER, QUARTER)) == pytest.approx(0.0)
