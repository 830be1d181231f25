"""MoPro: corrections, contrast and prototypes by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.methods.mopro import (
    DROPPED,
    MoPro,
    corrected,
    instance_loss,
    mixed_confidence,
    moved_prototypes,
    supervised,
)
from somnet.runs.run import build_method

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def mopro(made: "Toy") -> MoPro:
    assert isinstance(made.method, MoPro)
    return made.method


def test_features_are_projected_by_two_layers(toy: "MakeToy") -> None:
    made = toy("mopro", **{"mopro.width": 8})
    kinds = [type(layer) for layer in mopro(made).projection]
    assert kinds == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    x = torch.randn(4, made.method.network.width, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(mopro(made).projection(2 * x), 2 * mopro(made).projection(x))  # it bends
    assert mopro(made).projection(x).shape == (4, 8)


def test_labels_are_replaced_kept_or_dropped() -> None:
    confidence = torch.tensor([[0.9, 0.05, 0.05], [0.4, 0.35, 0.25], [0.5, 0.3, 0.2], [0.05, 0.9, 0.05]])
    assert corrected(torch.tensor([1, 1, 1, 1]), confidence, threshold=0.8).tolist() == [0, 1, DROPPED, 1]


def test_belief_is_half_classifier_half_prototypes() -> None:
    logits, near = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, math.log(3)]])
    assert mixed_confidence(logits, near)[0].tolist() == pytest.approx([0.375, 0.625])


def test_dropped_images_do_not_count() -> None:
    logits = torch.tensor([[0.0, 0.0], [0.0, 9.0], [0.0, math.log(3)]])
    loss = supervised(logits, torch.tensor([0, DROPPED, 0]))
    assert float(loss) == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert float(supervised(logits, torch.tensor([DROPPED] * 3))) == 0.0


def test_instance_loss_by_hand() -> None:
    z, key, queue = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    expected = -math.log(math.exp(2) / (math.exp(2) + 1 + math.exp(-2)))
    assert float(instance_loss(z, key, queue, temperature=0.5)) == pytest.approx(expected)


def test_prototypes_move_as_if_by_one_member_after_the_other() -> None:
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    z = torch.tensor([[0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    moved = moved_prototypes(prototypes, z, torch.tensor([0, 0, DROPPED]), momentum=0.5)
    length = math.hypot(0.25, 0.75)
    assert moved[0].tolist() == pytest.approx([0.25 / length, 0.75 / length])
    assert moved[1].tolist() == [0.0, 1.0]  # a class without new members stays


def pending(keys: torch.Tensor, label: list[int]) -> dict[str, torch.Tensor]:
    """What is left of a step on the first images, with these keys (I, 2)."""
    rows = torch.arange(len(keys))
    return {"rows": rows, "embedding": torch.ones(len(keys), 2), "key": keys, "label": torch.tensor(label)}


def test_the_queue_forgets_the_oldest(toy: "MakeToy") -> None:
    method = mopro(toy("mopro", **{"mopro.queue": 3, "mopro.width": 2}))
    method.queue = torch.zeros(3, 2)
    for batch in ([[1.0, 0.0], [2.0, 0.0]], [[3.0, 0.0], [4.0, 0.0]]):
        method.after_step(pending(torch.tensor(batch), [0, 1]))
    assert method.queue[:, 0].tolist() == [2.0, 3.0, 4.0]
    method.after_step(pending(torch.arange(10.0).view(5, 2), [0] * 5))
    assert method.queue[:, 0].tolist() == [4.0, 6.0, 8.0]  # a batch may be larger than the queue


@pytest.mark.parametrize(("images", "asked", "held"), [(100, 8192, 25), (100, 10, 10), (3, 8192, 1)])
def test_the_queue_holds_at_most_a_quarter_of_the_images(toy: "MakeToy", images: int, asked: int, held: int) -> None:
    config = toy("mopro", **{"mopro.queue": asked}).config
    made = build_method(config, np.zeros(images, np.int64), classes=3)
    assert isinstance(made, MoPro)
    assert made.queue.shape == (held, 128)


@pytest.mark.parametrize(
    ("epochs", "expected"), [(1, [1, 0, 0]), (2, [1, 0, 1]), (12, [1, 0, 11]), (30, [1, 3, 26]), (90, [1, 10, 79])]
)
def test_labels_are_corrected_from_an_eighth_of_the_epochs_on(toy: "MakeToy", epochs: int, expected: list[int]) -> None:
    plan = toy("mopro", **{"train.epochs": epochs}).method.plan()
    assert [phase.name for phase in plan] == ["init", "prototypes", "correct"]
    assert [phase.epochs for phase in plan] == expected
    assert all((phase.views, phase.passes) == (2, 1.0) for phase in plan)


def test_prototypes_pull_after_the_first_epoch_and_labels_change_later(
    toy: "MakeToy", monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    certain = torch.eye(3)[2].expand(10, 3)  # all are of class 2
    monkeypatch.setattr("somnet.methods.mopro.mixed_confidence", lambda logits, near: certain)
    steps = {phase.name: method.step(batch, phase) for phase in method.plan()}
    assert [set(step.losses) for step in steps.values()] == [
        {"cls", "instance"},
        {"cls", "prototype", "instance"},
        {"cls", "prototype", "instance"},
    ]
    used = {name: step.pending["label"].tolist() for name, step in steps.items()}
    given = batch.label.tolist()
    assert used == {"init": given, "prototypes": given, "correct": [2] * 10}


def test_the_second_view_is_the_key(toy: "MakeToy") -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    second = batch.images.flip(0)
    two = replace(batch, images=torch.stack([batch.images, second], dim=1).flatten(0, 1))
    step = method.step(two, method.plan()[0])
    assert torch.allclose(step.pending["key"], method.slow(second), atol=1e-6)
    embedded = method._embed(method.network.image_features(batch.images)).detach()
    assert torch.allclose(step.pending["embedding"], embedded, atol=1e-6)
    assert not torch.allclose(step.pending["key"], method.slow(batch.images), atol=1e-3)


def test_the_moving_average_stays_in_evaluation_mode(toy: "MakeToy") -> None:
    method = mopro(toy("mopro", **{"model.freeze": "none"})).train()
    assert method.network.tail.training
    assert not any(module.training for module in method.slow.modules())
    assert not any(parameter.requires_grad for parameter in method.slow.parameters())


def test_what_became_of_the_labels_is_told(toy: "MakeToy") -> None:
    method = mopro(toy("mopro", **{"mopro.width": 2}))  # given: five 0, four 1, one 2
    assert method.metrics() == {"corrected": 0.0, "kept": 1.0, "dropped": 0.0}
    method.after_step(pending(torch.zeros(6, 2), [0, 1, 2, DROPPED, 0, 1]))
    assert method.metrics() == pytest.approx({"corrected": 0.2, "kept": 0.7, "dropped": 0.1})


def test_nothing_moves_before_the_loss_is_known_to_be_finite(toy: "MakeToy") -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    step = method.step(batch, method.plan()[0])
    assert all(torch.equal(before[name], tensor) for name, tensor in method.state_dict().items())
    method.after_step(step.pending)
    moved = {name for name, tensor in method.state_dict().items() if not torch.equal(before[name], tensor)}
    assert moved == {
        "queue",
        "prototypes",
        "steps",
    }  # the labels are the given ones, the network has not moved yet, nor what follows it


def test_the_score_is_the_belief_in_the_label(toy: "MakeToy") -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    with torch.no_grad():
        method.network.classifier.weight.zero_()  # p = 1/3 each, and no prototypes yet: 1/3 each
        assert method.eval().inspect(batch).label_score.tolist() == pytest.approx([1 / 3] * 10)
        last = method.projection[-1]
        assert isinstance(last, torch.nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.eye(128)[0])
        method.prototypes[0, 0], method.prototypes[1:, 0] = 1.0, -1.0
        score = method.inspect(batch).label_score
    assert float(score[0]) == pytest.approx(0.5 / 3 + 0.5, abs=1e-4)
    assert float(score[9]) == pytest.approx(0.5 / 3, abs=1e-4)
