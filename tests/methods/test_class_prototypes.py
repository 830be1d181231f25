"""What stands for a class: means without the image itself, and directions in which all images differ count less."""

import numpy as np
import pytest

from somnet.methods import class_prototypes
from somnet.methods.class_prototypes import (
    UNTYPICAL,
    Prototypes,
    prototypes_of,
    typical_shares,
    unit_vectors,
    whitening_of,
)


def test_prototypes_by_hand() -> None:
    """Two at right angles; the image counts for 0.5 in the first: (dot - 0.5) over the length of what is left."""
    prototypes = Prototypes(
        np.array([[0.5, 0.0], [0.0, 1.0]], np.float32), np.array([[1.5, 1.0], [0.0, 1.0]], np.float32)
    )
    image = np.array([[1.0, 0.0]], np.float32)
    own, other = (prototypes.cosines(image, np.array([place]))[0] for place in (0, -1))
    assert own == pytest.approx([1 / 2**0.5, 0], rel=1e-5)
    assert other == pytest.approx([1.5 / (1.5**2 + 1) ** 0.5, 0], rel=1e-5)


def test_a_class_of_one_is_as_similar_as_the_most_similar_one() -> None:
    unit = np.eye(3, dtype=np.float32)
    prototypes = prototypes_of(unit, np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    assert prototypes.cosines(unit[:1], np.array([0]))[0] == pytest.approx([0.0, 0.0])


def test_whitening_by_hand() -> None:
    """Four vectors whose first number has the variance 4 and the second 1: the mean variance, 2.5, is added to both."""
    vectors = np.array([[3.0, 2.0], [3.0, 0.0], [-1.0, 2.0], [-1.0, 0.0]], np.float32)
    whitening = whitening_of(vectors)
    assert whitening.mean == pytest.approx([1.0, 1.0])
    seen = whitening(vectors[:1])[0]
    assert seen == pytest.approx(np.array([2 / 6.5**0.5, 1 / 3.5**0.5]) / (4 / 6.5 + 1 / 3.5) ** 0.5, rel=1e-5)


def test_cosines_are_those_of_mahalanobis() -> None:
    rng = np.random.default_rng(0)
    unit = unit_vectors(rng.normal(size=(50, 6)) * np.arange(1, 7))
    seen = whitening_of(unit)(unit)
    away = unit - unit.mean(axis=0)
    covariance = away.T @ away / 50
    product = away @ np.linalg.inv(covariance + np.trace(covariance) / 6 * np.eye(6)) @ away.T
    lengths = np.sqrt(np.diag(product))
    assert seen @ seen.T == pytest.approx(product / lengths / lengths[:, None], abs=1e-4)


def test_what_all_images_differ_in_does_not_hide_their_class() -> None:
    """Two classes that differ a little in one direction, and all images much in another."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    vectors = np.full((200, 3), [0.0, 0.0, 3.0]) + rng.normal(0, 0.02, (200, 3))
    vectors[:, 0] += rng.normal(0, 1, 200)
    vectors[:, 1] += 0.1 * (2 * labels - 1)
    unit, member, everybody = unit_vectors(vectors), np.eye(2, dtype=np.float32)[labels], np.arange(200)
    white = whitening_of(unit)(unit)
    margins = [
        (prototypes_of(seen, member).cosines(seen, everybody) * (2 * member - 1)).sum(axis=1) for seen in (unit, white)
    ]
    assert (margins[1] > 0).mean() > 0.95
    assert (margins[1] > 0).mean() > (margins[0] > 0).mean()


@pytest.mark.parametrize("images", [1, 2, 40])
def test_the_same_image_again_and_again(images: int) -> None:
    """Nothing to whiten: all stays finite."""
    unit = np.tile(np.array([[0.6, 0.8]], np.float32), (images, 1))
    assert np.isfinite(whitening_of(unit)(unit)).all()


def test_what_is_least_similar_to_its_class_does_not_stand_for_it() -> None:
    unit = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    share = typical_shares(unit, np.ones((4, 1), np.float32))
    assert share[3, 0] == np.float32(UNTYPICAL)


def test_a_vector_of_zeros_tells_nothing_about_its_label() -> None:
    unit = unit_vectors(np.random.default_rng(0).normal(size=(6, 4)))
    unit[0] = 0
    member = np.eye(2, dtype=np.float32)[[0, 0, 0, 1, 1, 1]]
    assert prototypes_of(unit, member).cosines(unit[:1], np.array([0]))[0].tolist() == [0.0, 0.0]


def test_wide_vectors_are_projected_and_cosines_stay_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = unit_vectors(np.random.default_rng(0).normal(size=(40, 600)))
    whole = whitening_of(unit)(unit)
    monkeypatch.setattr(class_prototypes, "WIDEST", 400)
    narrow = whitening_of(unit)(unit)
    assert narrow.shape == (40, 400)
    assert narrow @ narrow.T == pytest.approx(whole @ whole.T, abs=0.25)
