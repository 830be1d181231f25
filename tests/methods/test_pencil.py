"""PENCIL: losses and gradients by hand, and labels that change in few visits."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.methods.entropy import divergence
from somnet.methods.pencil import START, Pencil, PencilSettings, label_gradient
from somnet.methods.sample_table import SampleTable

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def pencil(made: "Toy") -> Pencil:
    assert isinstance(made.method, Pencil)
    return made.method


def visit(label_logits: Tensor, p: Tensor, label: int) -> Tensor:
    """The label logits (1, C) after one more visit, at the default settings."""
    settings = PencilSettings()
    gradient = label_gradient(p, label_logits.softmax(dim=1), torch.tensor([label]), settings.alpha)
    return label_logits - settings.label_lr * gradient


def test_the_gradient_of_the_label_by_hand() -> None:
    gradient = label_gradient(torch.tensor([[0.1, 0.9]]), torch.tensor([[0.8, 0.2]]), torch.tensor([0]), alpha=0.5)
    assert gradient[0].tolist() == pytest.approx([0.7 - 0.5 * 0.2, -0.7 + 0.5 * 0.2])


def test_the_gradient_of_the_label_is_that_of_the_losses() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator)
    label_logits = torch.randn(6, 4, generator=generator).requires_grad_()
    label = torch.tensor([0, 1, 2, 3, 0, 1])
    compatible = -label_logits.log_softmax(dim=1)[torch.arange(6), label]  # Lo
    loss = 6 * divergence(logits, label_logits) + 0.3 * compatible.sum()
    expected = torch.autograd.grad(loss, label_logits)[0]
    closed = label_gradient(logits.softmax(dim=1), label_logits.detach().softmax(dim=1), label, alpha=0.3)
    assert torch.allclose(closed, expected, atol=1e-6)


def test_a_sure_prediction_changes_a_label_in_few_visits() -> None:
    p, logits = torch.tensor([[0.02, 0.96, 0.02]]), torch.tensor([[START, 0.0, 0.0]])
    for _ in range(3):
        logits = visit(logits, p, label=0)
    assert int(logits.argmax()) == 1


def test_an_unsure_prediction_changes_no_label() -> None:
    p, logits = torch.tensor([[0.3, 0.4, 0.3]]), torch.tensor([[START, 0.0, 0.0]])
    for _ in range(50):
        logits = visit(logits, p, label=0)
    assert int(logits.argmax()) == 0


def test_a_label_settles_between_prediction_and_given_label() -> None:
    p, logits, alpha = torch.tensor([[0.1, 0.7, 0.2]]), torch.tensor([[START, 0.0, 0.0]]), PencilSettings().alpha
    for _ in range(50):
        logits = visit(logits, p, label=0)
    expected = [(0.1 + alpha) / (1 + alpha), 0.7 / (1 + alpha), 0.2 / (1 + alpha)]
    assert logits.softmax(dim=1)[0].tolist() == pytest.approx(expected, abs=1e-4)


def test_labels_change_in_a_table_that_keeps_only_some_classes() -> None:
    table, row = SampleTable(1, classes=40, kept=4), torch.tensor([0])
    given, p = torch.zeros(1, 40), torch.full((1, 40), 0.1 / 39)
    given[0, 3], p[0, 30] = START, 0.9
    table.put(row, given)
    for _ in range(8):
        table.put(row, visit(table.get(row), p, label=3))
    assert int(table.get(row).argmax()) == 30


@pytest.mark.parametrize(("epochs", "expected"), [(1, [1, 0, 0]), (2, [1, 1, 0]), (5, [1, 2, 2]), (20, [1, 11, 8])])
def test_the_stages_share_the_budget(toy: "MakeToy", epochs: int, expected: list[int]) -> None:
    assert [phase.epochs for phase in toy("pencil", **{"train.epochs": epochs}).method.plan()] == expected


def test_labels_start_as_given(toy: "MakeToy") -> None:
    made = toy("pencil")
    rows = torch.arange(10)
    logits = pencil(made).label_logits.get(rows)
    assert logits[rows, torch.from_numpy(made.labels)].tolist() == [START] * 10
    assert float(logits.sum()) == 10 * START


def test_labels_move_in_the_second_stage_alone_and_after_the_step(toy: "MakeToy") -> None:
    made = toy("pencil")
    method, batch, rows = pencil(made), made.batches(1)[0], torch.arange(10)
    for phase in method.plan():
        before = method.label_logits.get(rows)
        step = method.step(batch, phase)
        assert torch.equal(method.label_logits.get(rows), before)  # until the loss is known to be finite
        method.after_step(step.pending)
        assert torch.equal(method.label_logits.get(rows), before) == (phase.name != "correct")
        assert (
            set(step.losses)
            == {"init": {"cls"}, "correct": {"divergence", "entropy"}, "final": {"divergence"}}[phase.name]
        )


def test_the_score_is_what_is_left_of_the_given_label(toy: "MakeToy") -> None:
    made = toy("pencil")
    method, batch = pencil(made), made.batches(1)[0]
    method.label_logits.put(torch.tensor([0]), torch.tensor([[0.0, math.log(3), -100.0]]))
    with torch.no_grad():
        score = method.eval().inspect(batch).label_score
    assert float(score[0]) == pytest.approx(0.25)
    assert float(score[1]) == pytest.approx(1 / (1 + 2 * math.exp(-START)))
