"""Early-learning regularisation, by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.methods.elr import EarlyLearning, early_learning, moving_target

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

LOGITS = torch.tensor([[math.log(3), 0.0]])  # p = (3/4, 1/4)


def test_the_term_by_hand() -> None:
    target = torch.tensor([[0.2, 0.4]])
    assert float(early_learning(LOGITS.softmax(dim=1), target)) == pytest.approx(math.log(1 - (0.15 + 0.1)), rel=1e-5)


def test_the_target_moves_towards_the_prediction() -> None:
    moved = moving_target(torch.tensor([[0.2, 0.4]]), LOGITS.softmax(dim=1), beta=0.7)
    assert moved.tolist()[0] == pytest.approx([0.7 * 0.2 + 0.3 * 0.75, 0.7 * 0.4 + 0.3 * 0.25], rel=1e-5)


def test_lowering_the_term_raises_what_was_predicted_early() -> None:
    logits = torch.zeros(1, 2, requires_grad=True)
    gradient = torch.autograd.grad(early_learning(logits.softmax(dim=1), torch.tensor([[0.8, 0.1]])).mean(), logits)[0]
    assert gradient[0, 0] < 0 < gradient[0, 1]


def test_a_sure_prediction_and_target_stay_finite() -> None:
    logits = torch.tensor([[50.0, 0.0]], requires_grad=True)
    term = early_learning(logits.softmax(dim=1), torch.tensor([[1.0, 0.0]]))
    assert math.isfinite(float(term.detach()))
    assert torch.isfinite(torch.autograd.grad(term, logits)[0]).all()


def test_each_step_moves_the_targets_of_its_images_alone(toy: "MakeToy") -> None:
    made = toy("elr")
    method = made.method
    assert isinstance(method, EarlyLearning)
    batch = made.batches(1)[0]
    first = replace(batch, rows=batch.rows[:4], label=batch.label[:4], boxes=batch.boxes[:4], mask=batch.mask[:4])
    first = replace(first, images=batch.images[:4])
    step = method.step(first, method.plan()[0])
    assert float(method.targets.get(torch.arange(10)).sum()) == 0.0  # until the loss is known to be finite
    method.after_step(step.pending)
    sums = method.targets.get(torch.arange(10)).sum(dim=1)
    assert sums[:4].tolist() == pytest.approx([0.3] * 4, rel=1e-4)
    assert sums[4:].tolist() == [0.0] * 6
