"""Logistic regression in units of the features, and out-of-fold predictions."""

import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

from somnet.methods import logistic
from somnet.methods.logistic import Linear, best_out_of_fold, deal_folds, fit, out_of_fold, side_by_side


def task(classes: int, apart: float = 1.0) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    """Features of different scales and a constant one, and labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % classes
    features = rng.normal(size=(60, 5)) + apart * rng.normal(size=(classes, 5))[labels]
    features = features * [1, 20, 0.1, 3, 0] + [5, -40, 0, 1, 7]
    return features.astype(np.float16), labels


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_those_of_the_standardised_regression(classes: int) -> None:
    features, labels = task(classes)
    expected = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=1000))
    expected.fit(features.astype(np.float64), labels)
    found = fit(features, labels, classes, 0.1).probabilities(features)
    assert found == pytest.approx(expected.predict_proba(features.astype(np.float64)), abs=2e-3)


def test_a_class_without_images_has_no_probability() -> None:
    features, labels = task(2)
    found = fit(features, labels * 2, 4, 0.1).probabilities(features)
    assert found[:, [1, 3]].max() == 0
    assert found == pytest.approx(fit(features, labels, 2, 0.1).probabilities(features)[:, [0, 0, 1, 1]] * [1, 0, 1, 0])


def test_images_of_one_class_alone_are_of_that_class() -> None:
    features, _ = task(2)
    assert (fit(features, np.ones(60, np.int64), 3, 1.0).probabilities(features) == [0, 1, 0]).all()


def test_each_class_is_dealt_out_evenly() -> None:
    labels = np.array([0] * 10 + [1] * 5 + [2] * 2)
    fold = deal_folds(labels, 5, seed=0)
    for one, each in ((0, 2), (1, 1)):
        assert np.bincount(fold[labels == one], minlength=5).tolist() == [each] * 5
    assert len(set(fold[labels == 2])) == 2
    assert fold.tolist() != deal_folds(labels, 5, seed=1).tolist()


def test_out_of_fold_predictions_come_from_images_of_other_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = task(3)
    fold, seen = deal_folds(labels, 4, seed=0), list[NDArray[np.float16]]()

    def recorded(x: NDArray[np.float16], y: NDArray[np.int64], classes: int, strength: float) -> Linear:
        seen.append(x)
        return fit(x, y, classes, strength)

    monkeypatch.setattr(logistic, "fit", recorded)
    found = out_of_fold(features, labels, 3, fold, 0.1)
    assert len(seen) == 4
    for number in range(4):
        train = features[fold != number]
        assert any(np.array_equal(train, one) for one in seen)  # in any order: several are fitted at once
        expected = fit(train, labels[fold != number], 3, 0.1).probabilities(features[fold == number])
        assert found[fold == number] == pytest.approx(expected)


def test_the_strength_with_the_lowest_loss_is_chosen() -> None:
    """Classes that are far apart bear a weak regularisation; labels that say nothing want a strong one."""
    features, labels = task(3, apart=5.0)
    fold = deal_folds(labels, 5, seed=0)
    strength, found = best_out_of_fold(features, labels, 3, fold)
    assert strength == logistic.STRENGTHS[-1]
    assert found == pytest.approx(out_of_fold(features, labels, 3, fold, strength))
    chance = np.random.default_rng(1).permutation(labels)
    assert best_out_of_fold(features, chance, 3, deal_folds(chance, 5, seed=0))[0] == logistic.STRENGTHS[0]


def test_fits_take_one_thread_each_and_results_keep_their_order() -> None:
    def threads(task: int) -> tuple[int, set[int]]:
        return task, {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = threads(0)[1]
    assert side_by_side(threads, range(5)) == [(task, {1}) for task in range(5)]
    assert threads(0)[1] == before


def test_a_fit_that_is_near_enough_says_nothing_and_others_are_heard() -> None:
    def warn(kind: type[Warning]) -> None:
        warnings.warn("something", kind, stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        side_by_side(warn, [ConvergenceWarning, RuntimeWarning, ConvergenceWarning])
        warn(ConvergenceWarning)
    assert [warning.category for warning in heard] == [RuntimeWarning, ConvergenceWarning]
