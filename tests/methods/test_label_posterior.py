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
    """p = (0.6, 0.3, 0.1), e = 0.2 and f = 0.5: given the second label, 0.3 * 0.9 against 0.6 * 0.1 and 0.1 * 0.1."""
    posterior = Posterior(np.array([1.0, 0.0]), wrong=0.2, frequency=np.array([0.25, 0.5, 0.25]))
    evidence = np.log(np.array([[[0.6, 0.3, 0.1]]], np.float32))
    assert posterior.shown(evidence)[0] == pytest.approx([0.6, 0.3, 0.1], abs=1e-6)
    expected = np.array([0.06, 0.27, 0.01]) / 0.34
    assert posterior.probabilities(evidence, np.array([1]))[0] == pytest.approx(expected, abs=1e-6)


def test_the_likelihood_by_hand_and_its_gradient() -> None:
    evidence = np.log(np.array([[[0.5, 0.5], [0.9, 0.1]]], np.float32))
    labels, frequency, at = np.array([0, 1]), np.array([0.5, 0.5]), np.array([1.0, 0.0, 0.1])
    doubted, verified = np.array([1.0, 1.0]), np.array([1.0, 0.0])  # the second label is beyond doubt: 0.1
    for doubtful, of_second in ((doubted, 0.9 * 0.1 + 0.1 * 0.5), (verified, 0.1)):
        by_hand = -(np.log(0.5) + np.log(of_second)) / 2 + SMALL / 2
        loss, slope = _loss(at, evidence, labels, frequency, doubtful)
        assert loss == pytest.approx(by_hand, abs=1e-6)
        numeric = approx_fprime(at, lambda x, own=doubtful: _loss(x, evidence, labels, frequency, own)[0], 1e-6)
        assert slope == pytest.approx(numeric, abs=1e-4)


@pytest.mark.parametrize("wrong", [0.0, 0.1, 0.4])
def test_the_share_of_wrong_labels_and_the_worth_of_witnesses_are_found(wrong: float) -> None:
    evidence, given, _ = task(wrong)
    found = fit_posterior(evidence, given)
    drawn = wrong * 5 / 4  # a fifth of what is drawn at random is right
    assert found.wrong == pytest.approx(max(drawn, LEAST_WRONG), abs=0.04)
    assert found.weights[:2] == pytest.approx([2.0, 0.0], abs=0.3)


def test_probabilities_are_calibrated() -> None:
    evidence, given, true = task(0.3, images=20_000)
    right = fit_posterior(evidence, given).probabilities(evidence, given)[np.arange(len(given)), given]
    for low in (0.0, 0.25, 0.5, 0.75):
        some = (right >= low) & (right <= low + 0.25)
        assert (given == true)[some].mean() == pytest.approx(right[some].mean(), abs=0.06)


@pytest.mark.parametrize("images", [8, 100, 400, 1000])
def test_witnesses_that_know_nothing_doubt_no_label(images: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 10, images)
        evidence = np.log(rng.dirichlet(np.ones(10), (3, images))).astype(np.float32)
        found = fit_posterior(evidence, labels)
        right = found.probabilities(evidence, labels)[np.arange(images), labels]
        assert (right < 0.5).mean() < 0.02


def test_rare_classes_do_not_hide_wrong_labels() -> None:
    """The same with forty more classes of which nobody has an image, or one each."""
    evidence, given, true = task(0.2)
    for more in (0, 40):
        wide = np.concatenate([evidence, np.full((2, len(given), more), np.log(1e-3), np.float32)], axis=2)
        right = fit_posterior(wide, given).probabilities(wide, given)[np.arange(len(given)), given]
        assert (right[given != true] < 0.5).mean() > 0.5


def test_two_classes_are_not_mirrored() -> None:
    evidence, given, true = task(0.2, classes=2)
    found = fit_posterior(evidence, given)
    assert found.wrong == pytest.approx(0.4, abs=0.08)  # half of what is drawn at random is right
    assert (found.probabilities(evidence, given).argmax(axis=1) == true).mean() > (given == true).mean()
