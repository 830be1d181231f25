"""What a label probably should be: the likelihood by hand, and what is estimated where the truth is known."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from somnet.methods.label_posterior import LEAST_WRONG, SMALL, Posterior, _loss, fit_posterior

Task = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def task(wrong: float, images: int = 4000, classes: int = 5, worth: float = 2.0) -> Task:
    """Evidence of a good and of a useless witness, given labels and true ones."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(classes, 0.2), images)
    true = np.array([rng.choice(classes, p=row) for row in p])
    good, useless = np.log(p + 1e-9) / worth, rng.normal(size=p.shape)
    flipped = rng.random(images) < wrong
    given = np.where(flipped, (true + rng.integers(1, classes, images)) % classes, true)
    return np.stack([good, useless]).astype(np.float32), given, true


def test_bayes_rule_by_hand() -> None:
    """p = (0.6, 0.3, 0.1) and e = 0.2: given the second label, 0.3 * 0.8 against 0.6 * 0.1 and 0.1 * 0.1."""
    posterior = Posterior(np.array([1.0]), wrong=0.2)
    evidence = np.log(np.array([[[0.6, 0.3, 0.1]]], np.float32))
    assert posterior.shown(evidence)[0] == pytest.approx([0.6, 0.3, 0.1], abs=1e-6)
    expected = np.array([0.06, 0.24, 0.01]) / 0.31
    assert posterior.probabilities(evidence, np.array([1]))[0] == pytest.approx(expected, abs=1e-6)


def test_the_likelihood_by_hand_and_its_gradient() -> None:
    evidence = np.log(np.array([[[0.5, 0.5], [0.9, 0.1]]], np.float32))
    labels, at = np.array([0, 1]), np.array([1.0, 0.1])
    by_hand = -(np.log(0.5) + np.log(0.9 * 0.1 + 0.1 * 0.9)) / 2 + SMALL * (1 + 0.1)
    loss, slope = _loss(at, evidence, labels)
    assert loss == pytest.approx(by_hand, abs=1e-6)
    numeric = approx_fprime(at, lambda x: _loss(x, evidence, labels)[0], 1e-6)
    assert slope == pytest.approx(numeric, abs=1e-4)


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.4])
def test_the_share_of_wrong_labels_and_the_worth_of_witnesses_are_found(wrong: float) -> None:
    evidence, given, _ = task(wrong)
    found = fit_posterior(evidence, given)
    assert found.wrong == pytest.approx(max(wrong, LEAST_WRONG), abs=0.03)
    assert found.weights == pytest.approx([2.0, 0.0], abs=0.3)


def test_probabilities_are_calibrated() -> None:
    evidence, given, true = task(0.3, images=20_000)
    right = fit_posterior(evidence, given).probabilities(evidence, given)[np.arange(len(given)), given]
    for low in (0.0, 0.25, 0.5, 0.75):
        some = (right >= low) & (right <= low + 0.25)
        assert (given == true)[some].mean() == pytest.approx(right[some].mean(), abs=0.06)


def test_witnesses_that_know_nothing_doubt_no_label() -> None:
    rng = np.random.default_rng(0)
    found = fit_posterior(rng.normal(size=(3, 500, 4)).astype(np.float32), rng.integers(0, 4, 500))
    evidence = np.zeros((3, 2, 4), np.float32)
    probable = found.probabilities(evidence, np.array([1, 3]))
    assert (probable.argmax(axis=1) == [1, 3]).all()
    assert probable.sum(axis=1) == pytest.approx(1)


def test_two_classes_are_not_mirrored() -> None:
    evidence, given, true = task(0.2, classes=2)
    found = fit_posterior(evidence, given)
    assert found.wrong == pytest.approx(0.2, abs=0.04)
    assert (found.probabilities(evidence, given).argmax(axis=1) == true).mean() > (given == true).mean()
