"""Which images show none of the classes: those that are further away than images of a class ever are."""

import numpy as np
import pytest

from somnet.methods.typicality import FEWEST, fit_typicality


def foreign_probability(values: np.ndarray) -> np.ndarray:
    return fit_typicality(values).foreign(values)


def similarities(own: int, foreign: int, seed: int = 0) -> np.ndarray:
    """Of images of the classes, with a longer tail below, then of foreign ones."""
    rng = np.random.default_rng(seed)
    spread = np.abs(rng.normal(0, 0.05, own))
    below = rng.random(own) < 0.6
    return np.concatenate([0.73 + np.where(below, -1.4 * spread, spread), rng.normal(0.36, 0.06, foreign)])


@pytest.mark.parametrize("foreign", [20, 150, 400])
def test_foreign_images_are_found(foreign: int) -> None:
    found = foreign_probability(similarities(1000, foreign))
    assert (found[1000:] > 0.5).mean() > 0.75
    assert (found[:1000] > 0.5).mean() < 0.01
    assert found.mean() == pytest.approx(foreign / (1000 + foreign), abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_foreign_nothing_is_called_so(seed: int) -> None:
    assert (foreign_probability(similarities(1000, 0, seed)) > 0.5).sum() <= 2


@pytest.mark.parametrize("shape", [1, 2, 3])
def test_a_long_tail_is_not_foreign(shape: int) -> None:
    """Cosines near 1 are skewed: all of one group, however long its lower tail."""
    assert (foreign_probability(1 - np.random.default_rng(0).gamma(shape, 0.03, 1000)) > 0.5).sum() == 0


def test_the_less_similar_the_more_foreign() -> None:
    values = np.sort(similarities(500, 100))
    found = foreign_probability(values)
    assert (np.diff(found) <= 1e-9).all()
    assert found[-1] == 0.0


@pytest.mark.parametrize("values", [np.zeros(0), np.ones(5), np.full(FEWEST + 10, 0.7), np.linspace(0, 1, FEWEST - 1)])
def test_too_little_to_tell(values: np.ndarray) -> None:
    assert (foreign_probability(values) == 0).all()
