"""MoPro: corrections, contrast and prototypes by hand."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def mopro(made: "Toy") -> MoPro:
    assert isinstance(made.method, MoPro)
    return made.method


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


def test_the_queue_forgets_the_oldest(toy: "MakeToy") -> None:
    method = mopro(toy("mopro", **{"mopro.queue": 3, "mopro.width": 2}))
    for batch in ([[1.0, 0.0], [2.0, 0.0]], [[3.0, 0.0], [4.0, 0.0]]):
        key = torch.tensor(batch)
        method.after_step({"embedding": torch.ones(2, 2), "key": key, "label": torch.tensor([0, 1])})
    assert method.queue[:, 0].tolist() == [2.0, 3.0, 4.0]
    keys, labels = torch.arange(10.0).view(5, 2), torch.zeros(5, dtype=torch.int64)
    method.after_step({"embedding": torch.ones(5, 2), "key": keys, "label": labels})
    assert method.queue[:, 0].tolist() == [4.0, 6.0, 8.0]  # a batch may be larger than the queue


def test_the_second_phase_corrects_labels(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    certain = torch.eye(3)[2].expand(10, 3)  # all are of class 2
    monkeypatch.setattr("somnet.methods.mopro.mixed_confidence", lambda logits, near: certain)
    used = {}
    for phase in method.plan():
        used[phase.name] = method.step(batch, phase).pending["label"].tolist()
    assert used == {"init": batch.label.tolist(), "correct": [2] * 10}


def test_nothing_moves_before_the_loss_is_known_to_be_finite(toy: "MakeToy") -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    step = method.step(batch, method.plan()[0])
    assert all(torch.equal(before[name], tensor) for name, tensor in method.state_dict().items())
    method.after_step(step.pending)
    moved = {name for name, tensor in method.state_dict().items() if not torch.equal(before[name], tensor)}
    assert moved == {"queue", "prototypes", "steps"}  # the network has not moved yet, nor what follows it


def test_the_score_is_the_belief_in_the_label(toy: "MakeToy") -> None:
    made = toy("mopro")
    method, batch = mopro(made), made.batches(1)[0]
    with torch.no_grad():
        method.network.classifier.weight.zero_()  # p = 1/3 each, and no prototypes yet: 1/3 each
        assert method.eval().inspect(batch).label_score.tolist() == pytest.approx([1 / 3] * 10)
        method.projection.weight.zero_()
        method.projection.bias.copy_(torch.eye(128)[0])
        method.prototypes[0, 0], method.prototypes[1:, 0] = 1.0, -1.0
        score = method.inspect(batch).label_score
    assert float(score[0]) == pytest.approx(0.5 / 3 + 0.5, abs=1e-4)
    assert float(score[9]) == pytest.approx(0.5 / 3, abs=1e-4)
