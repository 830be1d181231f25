"""Confident learning: the count and the choice by hand, against cleanlab, and what is trained on."""

from collections.abc import Callable
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


def confident(made: "Toy") -> Confident:
    assert isinstance(made.method, Confident)
    return made.method


def pruned(made: "Toy") -> Confident:
    method = confident(made).eval()
    with torch.no_grad():
        method.prepare(method.plan()[0], made.bag_pass, torch.Generator())
    return method


def test_the_whole_budget_is_left_for_one_training(toy: "MakeToy") -> None:
    (phase,) = toy("confident", **{"train.epochs": 6}).method.plan()
    assert (phase.epochs, phase.passes, phase.anneal) == (6, 1.0, (0.0, 1.0))


def test_pruned_images_are_not_trained_on(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("confident")
    sure = np.eye(3)[made.labels] * 0.7 + 0.1  # (n, C)
    sure[0] = [0.05, 0.9, 0.05]  # image 0 is labelled 0
    monkeypatch.setattr("somnet.methods.confident.best_out_of_fold", lambda *_: (1.0, sure))
    method = pruned(made)
    assert method.rows(method.plan()[0]).tolist() == list(range(1, 10))
    with torch.no_grad():
        assert method.inspect(made.batches(1)[0]).label_score.tolist() == pytest.approx([0.05] + [0.8] * 9)


def test_wrong_labels_are_found_in_the_features_of_the_start(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy's features say which class an image has; two labels are changed."""
    made = toy("confident", **{"confident.folds": 4})
    method = confident(made)
    true = torch.tensor([0] * 30 + [1] * 30)
    given_label = true.clone()
    given_label[[3, 40]] = torch.tensor([1, 0])
    features = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)) + 4 * true[:, None]
    monkeypatch.setattr("somnet.methods.confident.training_features", lambda *_: features.half())
    method.labels = given_label
    method.confidence, method.keep = torch.ones(60), torch.ones(60, dtype=torch.bool)
    method = pruned(made)
    assert (~method.keep).nonzero().flatten().tolist() == [3, 40]
    assert method.confidence[[3, 40]].max() < 0.2


def test_a_resumed_run_does_not_judge_by_a_trained_network(toy: "MakeToy") -> None:
    made = toy("confident")
    method = pruned(made)
    before = method.confidence.clone()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in method.network.tail.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    assert torch.equal(pruned(made).confidence, before)
    method.judged.fill_(False)
    assert not torch.equal(pruned(made).confidence, before)


def test_a_single_fold_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"confident\.folds"):
        Config().with_settings({"confident.folds": 1})
