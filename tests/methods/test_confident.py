"""Confident learning: the count and the choice by hand, against cleanlab, and the folds."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from cleanlab.filter import find_label_issues
from hypothesis import given
from hypothesis import strategies as st

from somnet.config import Config
from somnet.errors import ConfigError
from somnet.methods.confident import Confident, count_issues, find_issues, spare_classes, thresholds

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

PROBABILITIES = torch.tensor(
    [
        [0.9, 0.1],  # labelled 0, rightly
        [0.7, 0.3],  # labelled 0, rightly
        [0.1, 0.9],  # labelled 0, but confidently 1
        [0.2, 0.8],  # labelled 1, rightly
        [0.45, 0.55],  # labelled 1, not confident, but no other class is either
    ]
)
LABEL = torch.tensor([0, 0, 0, 1, 1])


def test_thresholds_are_the_mean_belief_in_the_own_label() -> None:
    assert thresholds(PROBABILITIES, LABEL).tolist() == pytest.approx([(0.9 + 0.7 + 0.1) / 3, (0.8 + 0.55) / 2])


def test_a_class_without_images_has_a_threshold_that_nothing_reaches() -> None:
    assert thresholds(torch.tensor([[0.5, 0.5]]), torch.tensor([0])).tolist() == [0.5, 1.0]


def test_the_contradicted_image_is_found() -> None:
    assert count_issues(PROBABILITIES, LABEL) == 1
    assert find_issues(PROBABILITIES, LABEL).tolist() == [False, False, True, False, False]


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(2, 12), noise=st.floats(0, 0.6))
def test_the_same_images_as_cleanlab(seed: int, classes: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    true = np.concatenate([np.arange(classes), rng.integers(0, classes, 200)])
    given_label = np.where(rng.random(len(true)) < noise, rng.integers(0, classes, len(true)), true)
    given_label[:classes] = np.arange(classes)  # cleanlab wants every class to be there
    logits = rng.normal(0, 1, (len(true), classes)) + 2.5 * np.eye(classes)[true]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    theirs = find_label_issues(given_label, probabilities, filter_by="low_self_confidence")
    ours = find_issues(torch.from_numpy(probabilities), torch.from_numpy(given_label)).numpy()
    assert (ours != theirs).mean() <= 0.02


def test_no_class_is_pruned_away() -> None:
    keep = spare_classes(
        torch.zeros(4, dtype=torch.bool), torch.tensor([0.1, 0.3, 0.2, 0.9]), torch.tensor([0, 0, 0, 1])
    )
    assert keep.tolist() == [False, True, True, True]


def test_out_of_fold_predictions_come_from_a_network_that_has_not_seen_the_image(toy: "MakeToy") -> None:
    made = toy("confident", **{"train.epochs": 10})
    method = made.method
    assert isinstance(method, Confident)
    folds = [phase for phase in method.plan() if phase.name != "train"]
    assert len(folds) == 5
    held_out = [set(range(10)) - set(method.rows(phase).tolist()) for phase in folds]
    assert sorted(row for fold in held_out for row in fold) == list(range(10))  # each image once
    for fold in held_out:
        labels = made.labels[list(fold)]
        assert np.bincount(labels, minlength=3).max() <= 1  # a class is dealt out evenly


def test_folds_and_final_training_start_from_the_same_weights(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("confident", **{"train.epochs": 6})
    start = made.method.network.classifier.weight.detach().clone()
    made.trainer(tmp_path).run()
    assert not torch.equal(made.method.network.classifier.weight, start)
    made.method.prepare(made.method.plan()[-1], made.bag_pass, torch.Generator())
    assert torch.equal(made.method.network.classifier.weight, start)


def test_pruned_images_are_not_trained_on(toy: "MakeToy") -> None:
    made = toy("confident", **{"train.epochs": 6})
    method, last = made.method, made.method.plan()[-1]
    assert isinstance(method, Confident)
    sure = torch.eye(3)[torch.from_numpy(made.labels)] * 0.7 + 0.1  # (n, C)
    sure[0] = torch.tensor([0.05, 0.9, 0.05])  # image 0 is labelled 0
    method.held_out.put(torch.arange(10), sure)
    method.prepare(last, made.bag_pass, torch.Generator())
    assert method.rows(last).tolist() == list(range(1, 10))


def test_a_budget_too_small_for_folds_prunes_nothing(toy: "MakeToy") -> None:
    made = toy("confident", **{"train.epochs": 2})
    plan = made.method.plan()
    assert [phase.epochs for phase in plan] == [0, 0, 0, 0, 0, 2]
    made.method.prepare(plan[-1], made.bag_pass, torch.Generator())
    rows = made.method.rows(plan[-1])
    assert rows is not None
    assert len(rows) == 10


@pytest.mark.parametrize("epochs", [3, 4, 5, 10, 19])
@pytest.mark.parametrize("share", [0.7, 1.0])
def test_the_folds_leave_an_epoch_for_the_final_network(toy: "MakeToy", epochs: int, share: float) -> None:
    plan = toy("confident", **{"train.epochs": epochs, "confident.fold_share": share}).method.plan()
    assert plan[-1].epochs >= 1
    assert sum(phase.epochs * phase.passes for phase in plan) == pytest.approx(epochs)


def test_more_folds_than_a_byte_can_number_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"confident\.folds"):
        Config().with_settings({"confident.folds": 300})
