"""The classifier's weight decay: how it is chosen, and that every run takes it to its end."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.methods import logistic
from somnet.methods.base import CLASSIFIER, UNCHOSEN
from somnet.methods.logistic import FINE_STRENGTHS
from somnet.training import decay, loop
from somnet.training.decay import LARGEST, choose_decay, sample_rows

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def looks(flipped: float, images: int = 600, width: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, F) of 3 classes that can be told apart, and labels of which a share is wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(images) % 3
    features = rng.normal(size=(images, width)) + 1.5 * np.eye(3, width)[true]
    wrong = rng.random(images) < flipped
    return features.astype(np.float16), np.where(wrong, (true + 1 + rng.integers(0, 2, images)) % 3, true)


def test_the_more_labels_are_wrong_the_larger_it_is() -> None:
    found = [choose_decay(*looks(share), images=20_000, seed=0) for share in (0.0, 0.2, 0.4)]
    assert found == sorted(found)
    assert found[0] < found[2] <= LARGEST


def test_it_is_that_of_the_strength_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses 3, 2, 1, 2 by strength: the third is best, and for features of variance 4 the decay is 4 / (C n)."""
    losses = dict(zip(FINE_STRENGTHS, (3.0, 2.0, 1.0, 2.0), strict=False))
    monkeypatch.setattr(logistic, "_held_out_loss", lambda *given: losses[given[-1]])
    features = np.array([[-2.0], [2.0]] * 10, np.float16)
    assert choose_decay(features, np.arange(20) % 4, images=20_000, seed=0) == pytest.approx(4 / (1e-3 * 20_000))
    assert choose_decay(features, np.arange(20) % 2, images=80_000, seed=0) == pytest.approx(2 * 4 / (1e-3 * 80_000))
    assert choose_decay(features, np.arange(20) % 4, images=100, seed=0) == LARGEST


def test_many_images_and_classes_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decay, "MOST_CLASSES", 4)
    monkeypatch.setattr(decay, "MOST_IMAGES", 30)
    labels = np.arange(1000) % 20
    rows = sample_rows(labels, seed=3)
    assert len(rows) == len(set(rows.tolist())) == 30
    assert len(set(labels[rows].tolist())) <= 4
    assert rows.tolist() == sorted(rows.tolist()) == sample_rows(labels, seed=3).tolist()
    assert rows.tolist() != sample_rows(labels, seed=4).tolist()


def test_of_copies_one_is_looked_at() -> None:
    groups = np.array([-1, 0, 0, 1, -1, 1, 1])
    rows = sample_rows(np.zeros(7, int), 0, groups)
    assert sorted(groups[rows].tolist()) == [-1, -1, 0, 1]


@pytest.mark.parametrize("labels", [[0] * 8, [0, 1], [0, 0, 1]])
def test_few_images_are_no_reason_to_fail(labels: list[int]) -> None:
    features = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float16)
    assert 0 <= choose_decay(features, np.array(labels), len(labels), seed=0) <= LARGEST


@pytest.mark.parametrize("method", ["plain", "somnet", "divide-mix"])
def test_a_run_chooses_it_once_and_keeps_it(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    chosen: list[float] = []

    def choose(*_: object) -> float:
        chosen.append(0.2)
        return 0.2

    monkeypatch.setattr(loop, "choose_decay", choose)
    made = toy(method)
    made.method.classifier_decay.fill_(UNCHOSEN)  # as of a network with weights
    trainer = made.trainer(tmp_path)
    trainer.run()
    assert chosen == [0.2]
    decays = {group["name"]: group["weight_decay"] for group in trainer.stepper.optimizer.param_groups}
    classifiers = {name for name in decays if name.endswith(CLASSIFIER)}
    assert [decays[name] for name in sorted(classifiers)] == pytest.approx([0.2] * len(classifiers))
    assert all(decays[name] < 0.2 for name in decays.keys() - classifiers)
    again = toy(method)
    again.method.classifier_decay.fill_(UNCHOSEN)
    again.trainer(tmp_path).run(resume=True)
    assert chosen == [0.2]
    assert torch.equal(again.method.classifier_decay, made.method.classifier_decay)


@pytest.mark.parametrize(("given", "expected"), [({}, 1e-4), ({"train.classifier_decay": 0.25}, 0.25)])
def test_what_need_not_be_chosen(toy: "MakeToy", tmp_path: Path, given: dict[str, float], expected: float) -> None:
    made = toy("plain", **given)  # whose network starts from random weights
    trainer = made.trainer(tmp_path)
    trainer.run()
    assert float(made.method.classifier_decay) == pytest.approx(expected)
    assert trainer.stepper.optimizer.param_groups[1]["weight_decay"] == pytest.approx(expected)
