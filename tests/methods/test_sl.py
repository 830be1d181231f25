"""Symmetric cross entropy, by hand."""

import math

import pytest
import torch

from somnet.methods.sl import reverse_cross_entropy


def test_reverse_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[math.log(3), 0.0], [0.0, math.log(4)]])  # p = (3/4, 1/4), (1/5, 4/5)
    label = torch.tensor([0, 0])
    assert float(reverse_cross_entropy(logits, label)) == pytest.approx(9.2103 * (1 / 4 + 4 / 5) / 2, rel=1e-4)


def test_it_is_the_sum_over_classes_with_clamped_zeros() -> None:
    logits, label = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    one_hot = torch.eye(4)[label].clamp(min=1e-4)
    expected = -(logits.softmax(dim=1) * one_hot.log()).sum(dim=1).mean()
    assert float(reverse_cross_entropy(logits, label)) == pytest.approx(float(expected), rel=1e-5)


def test_a_hopeless_label_pulls_less_than_a_doubtful_one() -> None:
    """The gradient of cross entropy grows as p_y falls; this one vanishes: a wrong label is given up."""
    logits = torch.tensor([[0.0, 8.0], [0.0, 1.0]], requires_grad=True)
    gradient = torch.autograd.grad(reverse_cross_entropy(logits, torch.tensor([0, 0])), logits)[0]
    assert gradient[0].abs().sum() < 0.1 * gradient[1].abs().sum()
