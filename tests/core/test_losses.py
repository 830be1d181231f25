"""Equations 1 and 11."""

import math

import pytest
import torch

from somnet.core.losses import classification_loss, scale_gradient, total_loss
from somnet.core.types import BagBatch


def test_classification_loss_is_the_mean_of_minus_log_softmax() -> None:
    # softmax((ln 3, 0)) = (3/4, 1/4) and softmax((0, 0)) = (1/2, 1/2)
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    loss = classification_loss(logits, torch.tensor([1, 0]))
    assert float(loss) == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_the_loss_of_a_bag_is_multiplied_by_its_weight() -> None:
    # log 4 counts half, log 2 three times, and the third not at all
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [9.0, 0.0]])
    loss = classification_loss(logits, torch.tensor([1, 0, 1]), torch.tensor([0.5, 3.0, 0.0]))
    assert float(loss) == pytest.approx((0.5 * math.log(4) + 3 * math.log(2)) / 3)


def test_a_bag_weighs_as_its_real_images_on_average() -> None:
    weight, mask = torch.tensor([[0.2, 0.6], [0.5, 9.0]]), torch.tensor([[[True], [True]], [[True], [False]]])
    empty = torch.zeros(0)
    bags = BagBatch(rows=empty, label=empty, boxes=empty, mask=mask, images=empty, weight=weight)
    assert bags.bag_weight().tolist() == pytest.approx([0.4, 0.5])  # type: ignore[union-attr]
    assert BagBatch(empty, empty, empty, mask, empty).to("cpu").bag_weight() is None


def test_classification_loss_does_not_grow_with_the_batch() -> None:
    logits, label = torch.tensor([[2.0, -1.0]]), torch.tensor([1])
    one, many = classification_loss(logits, label), classification_loss(logits.repeat(7, 1), label.repeat(7))
    assert float(one) == pytest.approx(float(many))


def test_a_sum_over_bags_trains_the_network_as_strongly_as_a_mean() -> None:
    """The gradient of a sum of squares is 2 x; of a batch of 2, and of the same twice, a bag has half and a quarter."""
    for copies in (1, 2):
        x = torch.tensor([[1.0, -2.0], [3.0, 0.5]]).repeat(copies, 1).requires_grad_()
        seen = scale_gradient(x, len(x))
        assert torch.equal(seen, x)
        torch.autograd.backward((seen**2).sum())
        assert x.grad is not None
        assert torch.allclose(x.grad, 2 * x.detach() / (2 * copies))


def test_total_loss_is_the_sum_of_all_terms() -> None:
    terms = {"classification": torch.tensor(2.0), "som_key": torch.tensor(-0.5), "d_value": torch.tensor(-0.25)}
    assert float(total_loss(terms)) == pytest.approx(1.25)


def test_total_loss_reaches_every_term() -> None:
    first, second = torch.tensor(1.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    torch.autograd.backward(total_loss({"a": first, "b": 3 * second}))
    assert first.grad == torch.tensor(1.0)
    assert second.grad == torch.tensor(3.0)
