"""Which classes are taken for each other: the likelihood by hand, and what is found where it is known."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from somnet.methods.label_confusion import OF_A_CLASS, _choose_strength, _labelled_as, _loss, _turns, learn_confusion
from somnet.methods.label_posterior import SMALL, HeardLabels, Posterior, fit_posterior

Task = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]

CLASSES = 5


def task(labelled: NDArray[np.float64], images: int = 3000, certain: float = 0.2) -> Task:
    """Evidence of a good witness, labels drawn by P(y | c) (C, C), and what the images show."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(CLASSES, certain), images)
    true = np.array([rng.choice(CLASSES, p=row) for row in p])
    given = np.array([rng.choice(CLASSES, p=labelled[one]) for one in true])
    return np.log(p + 1e-9)[None].astype(np.float32), given, true


def swaps(share: float) -> NDArray[np.float64]:
    """P(y | c) where a share of the first two classes is taken for the other one."""
    labelled = np.eye(CLASSES)
    labelled[0, [0, 1]] = labelled[1, [1, 0]] = 1 - share, share
    return labelled


def heard(evidence: NDArray[np.float32], given: NDArray[np.int64]) -> HeardLabels:
    """Labels of which none is verified."""
    return HeardLabels(evidence, given, np.ones(len(given), bool))


def found_wrong(posterior: Posterior, made: Task) -> tuple[float, float]:
    """Share of the wrong labels that are called wrong, and of wrong ones among what is called so."""
    evidence, given, true = made
    doubted = posterior.probabilities(evidence, given)[np.arange(len(given)), given] < 0.5
    return float(doubted[given != true].mean()), float((given != true)[doubted].mean())


def test_the_likelihood_by_hand_and_its_gradient() -> None:
    evidence = np.log(np.array([[[0.6, 0.4], [0.9, 0.1]]], np.float32))
    labelled = np.array([[0.8, 0.3], [0.2, 0.7]])  # P(y_i | c) of labels 0 and 1
    frequency, at = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    by_hand = -(np.log(0.6 * 0.8 + 0.4 * 0.3) + np.log(0.9 * 0.2 + 0.1 * 0.7)) / 2 + SMALL / 2
    loss, _ = _loss(at, evidence, frequency, labelled)
    assert loss == pytest.approx(by_hand, abs=1e-6)
    frequency, at = np.array([0.7, 0.3]), np.array([1.3, 0.4])
    numeric = approx_fprime(at, lambda x: _loss(x, evidence, frequency, labelled)[0], 1e-6)
    assert _loss(at, evidence, frequency, labelled)[1] == pytest.approx(numeric, abs=1e-4)


def test_the_turns_by_hand() -> None:
    """Sure witnesses: three of four images of the first class are labelled so, and the prior is worth four images.

    A quarter of the labels of one class and none of the other are wrong: an eighth, and of what is drawn by even
    frequencies half is right, so e = 1/4 and the prior of the first row is (7/8, 1/8).
    """
    shows = np.repeat([0, 1], 400)
    labels = shows.copy()
    labels[:100] = 1
    frequency = np.array([0.5, 0.5])
    evidence = np.where(np.eye(2, dtype=bool)[shows], 0.0, -30.0).astype(np.float32)[None]
    begin = Posterior(np.array([1.0, 0.0]), 0.2, frequency)
    *_, found = _turns(begin, heard(evidence, labels), 400.0)
    assert found.wrong == pytest.approx(0.25, abs=1e-3)
    by_hand = [[(300 + 400 * 7 / 8) / 800, (100 + 400 / 8) / 800], [400 / 8 / 800, (400 + 400 * 7 / 8) / 800]]
    assert found.labelled() == pytest.approx(np.array(by_hand), abs=1e-3)
    assert found.labelled().sum(axis=1) == pytest.approx([1.0, 1.0])


def test_classes_that_are_taken_for_each_other_are_found() -> None:
    made = task(swaps(0.3))
    evidence, given, _ = made
    before = fit_posterior(evidence, given)
    after = learn_confusion(before, heard(evidence, given), seed=0)
    assert after.labelled()[:2, :2] == pytest.approx(np.array([[0.7, 0.3], [0.3, 0.7]]), abs=0.08)
    assert np.diag(after.labelled())[2:] == pytest.approx(np.ones(3), abs=0.03)
    (few, _), (many, precision) = found_wrong(before, made), found_wrong(after, made)
    assert many > few + 0.1
    assert precision > 0.8
    assert after.weights[0] > 1.05 * before.weights[0]  # what seemed to be a weak witness was a wrong label
    assert learn_confusion(before, heard(evidence, given).take(np.arange(9 * CLASSES)), seed=0) is before  # too few
    assert OF_A_CLASS == 10


@pytest.mark.parametrize("wrong", [0.0, 0.4])
def test_mistakes_that_are_the_same_for_all_classes_leave_all_as_it_is(wrong: float) -> None:
    evidence, given, _ = task((1 - wrong) * np.eye(CLASSES) + wrong / CLASSES)
    before = fit_posterior(evidence, given)
    assert learn_confusion(before, heard(evidence, given), seed=0) is before


@pytest.mark.parametrize("images", [20, 300, 1500])
def test_classes_that_look_alike_are_not_taken_for_each_other(images: int) -> None:
    """Witnesses who often cannot tell, and labels that are right."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.full(CLASSES, 0.7), images)
        given = np.array([rng.choice(CLASSES, p=row) for row in p])
        evidence = np.log(p + 1e-9)[None].astype(np.float32)
        after = learn_confusion(fit_posterior(evidence, given), heard(evidence, given), seed)
        assert (after.probabilities(evidence, given)[np.arange(images), given] < 0.5).mean() < 0.02


@pytest.mark.parametrize("sharp", [0.7, 0.3])
def test_classes_that_are_hard_to_tell_are_not_taken_for_others(sharp: float) -> None:
    """Witnesses are less sure of two classes than they should be, and all labels are right."""
    evidence, given, _ = task(np.eye(CLASSES), images=1500, certain=0.7)
    evidence = evidence * np.array([1, 1, 1, sharp, sharp], np.float32)
    before = fit_posterior(evidence, given)
    assert learn_confusion(before, heard(evidence, given), seed=0) is before


def test_nor_are_classes_that_witnesses_name_too_often() -> None:
    evidence, given, _ = task(np.eye(CLASSES), images=1500, certain=0.7)
    evidence[:, :, 0] += 2
    before = fit_posterior(evidence, given)
    assert learn_confusion(before, heard(evidence, given), seed=0) is before


@pytest.mark.parametrize("taken", [False, True])
def test_classes_that_nobody_can_tell_on_unclear_images_are_not_taken_for_each_other(taken: bool) -> None:
    """Half of the images are unclear: witnesses prefer one of two classes, and are right in 70 % of them.

    Only where a quarter of the clear ones is labelled wrongly, too, somebody has taken one class for the other.
    """
    rng, images, rows = np.random.default_rng(0), 3000, np.arange(3000)
    true, clear = rng.integers(0, 6, images), rng.random(images) < 0.5
    seems = np.where(clear | (rng.random(images) < 0.7), true, true ^ 1)
    evidence = rng.normal(size=(images, 6))
    evidence[rows, seems] += np.where(clear, 8, 4)
    evidence[rows, seems ^ 1] += np.where(clear, 0, 2)
    given = np.where(rng.random(images) < 0.25, true ^ 1, true) if taken else true
    said = heard(evidence[None].astype(np.float32), given)
    before = fit_posterior(said.evidence, given)
    assert (learn_confusion(before, said, seed=0) is not before) == taken


def test_the_prior_is_as_strong_as_mistakes_are_alike() -> None:
    """Mistakes that are nearly the same for all classes want a stronger prior than swaps."""
    rng = np.random.default_rng(1)
    alike = 0.7 * np.eye(CLASSES) + 0.3 * rng.dirichlet(np.full(CLASSES, 4.0), CLASSES)
    chosen = []
    for labelled in (swaps(0.3), alike):
        evidence, given, _ = task(labelled, images=2000)
        posterior = fit_posterior(evidence, given)
        chosen.append(_choose_strength(posterior, heard(evidence, given), seed=0))
    of_swaps, of_others = chosen
    assert of_swaps is not None
    assert of_others is not None
    assert of_swaps < of_others


def test_what_a_label_tells_by_hand() -> None:
    confusion = np.array([[0.8, 0.2], [0.3, 0.7]])
    found = _labelled_as(
        confusion, HeardLabels(np.zeros((1, 3, 2), np.float32), np.array([0, 1, 1]), np.array([True, True, False]))
    )
    assert found == pytest.approx(np.array([[0.8, 0.3], [0.2, 0.7], [0.0, 1.0]]))


def test_verified_labels_are_no_mistakes() -> None:
    """A person has confirmed all labels of the first two classes: nobody takes one for the other."""
    evidence, given, _ = task(swaps(0.3))
    verified = given < 2
    before = fit_posterior(evidence, given, verified)
    after = learn_confusion(before, HeardLabels(evidence, given, ~verified), seed=0)
    assert after.labelled()[0, 1] < 0.05
    assert after.labelled()[1, 0] < 0.05


def test_a_class_without_images_has_no_mistakes_of_its_own() -> None:
    evidence, given, _ = task(swaps(0.3))
    wider = np.concatenate([evidence, np.full((1, len(given), 1), -12.0, np.float32)], axis=2)
    after = learn_confusion(fit_posterior(wider, given), heard(wider, given), seed=0)
    assert np.isfinite(after.labelled()).all()
    assert after.labelled().sum(axis=1) == pytest.approx(np.ones(CLASSES + 1))
    assert np.isfinite(after.probabilities(wider, given)).all()
