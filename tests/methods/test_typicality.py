"""Which images show none of the classes: those that are further away than images of a class ever are."""

from dataclasses import replace

import numpy as np
import pytest

from somnet.methods.label_posterior import FEWEST
from somnet.methods.typicality import BELOW, LEARNT, LEAST, NOTHING_FOREIGN, Typicality, fit_typicality


def foreign_probability(values: np.ndarray, lift: np.ndarray | None = None) -> np.ndarray:
    lift = np.ones(len(values)) if lift is None else lift  # of labels that nothing is known about
    return fit_typicality(values, lift).foreign(values, lift)


def similarities(own: int, foreign: int, seed: int = 0) -> np.ndarray:
    """Of images of the classes, with a longer tail below, then of foreign ones."""
    rng = np.random.default_rng(seed)
    spread = np.abs(rng.normal(0, 0.05, own))
    below = rng.random(own) < 0.6
    return np.concatenate([0.73 + np.where(below, -1.4 * spread, spread), rng.normal(0.36, 0.06, foreign)])


@pytest.mark.parametrize("foreign", [20, 150, 400])
def test_foreign_images_are_found(foreign: int) -> None:
    lift = np.repeat([8.0, 1.0], [1000, foreign])
    found = foreign_probability(similarities(1000, foreign), lift)
    assert (found[1000:] > 0.5).mean() > (0.4 if foreign < 100 else 0.9)  # with few it is more careful
    assert (found[:1000] > 0.5).mean() < 0.01
    assert found.mean() == pytest.approx(foreign / (1000 + foreign), abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_foreign_nothing_is_called_so(seed: int) -> None:
    assert (foreign_probability(similarities(1000, 0, seed)) > 0.5).sum() <= 2


@pytest.mark.parametrize("shape", [1, 2, 3])
def test_a_long_tail_is_not_foreign(shape: int) -> None:
    """Cosines near 1 are skewed: all of one group, however long its lower tail; hardly any is called foreign."""
    values = 1 - np.random.default_rng(0).gamma(shape, 0.03, 1000)
    assert (foreign_probability(values, np.full(1000, 8.0)) > 0.5).sum() <= 20


def test_where_nothing_is_proven_the_less_typical_come_first_all_the_same() -> None:
    values, lift = similarities(1000, 0), np.full(1000, 8.0)
    found = fit_typicality(values, lift)
    assert found.share == LEAST
    suspicion = found.foreign(values, lift)
    assert 0 < suspicion[values.argmin()] < 0.5
    assert suspicion.argmax() == values.argmin()


def test_an_odd_picture_whose_label_others_expect_is_rather_odd_than_foreign() -> None:
    values = np.append(similarities(1000, 100), [0.5, 0.5, 0.5])
    lift = np.append(np.repeat([8.0, 1.0], [1000, 100]), [0.1, 1.0, 8.0])
    unexpected, open_, expected = foreign_probability(values, lift)[-3:]
    assert unexpected > open_ > expected
    odds = unexpected / (1 - unexpected) / (expected / (1 - expected))
    assert odds == pytest.approx((LEARNT + (1 - LEARNT) / 0.1) / (LEARNT + (1 - LEARNT) / 8))


def test_the_tail_is_longer_than_a_normal_one() -> None:
    """Worked by hand: as high as the upper side at the mode, 4 degrees of freedom, and all of it has the area 1."""
    own = replace(fit_typicality(similarities(1000, 100), np.ones(1100)), mode=0.0, spread=1.0, share=0.0)
    places = np.linspace(-400, 10, 2_000_001)
    density = own._own(places)
    assert np.trapezoid(density, places) == pytest.approx(1, abs=1e-3)
    assert density[places < 0].sum() / density.sum() == pytest.approx(BELOW, abs=1e-3)
    assert own._own(np.array([-1e-9])) == pytest.approx(own._own(np.array([0.0])))
    assert own._own(np.array([-2.4]))[0] / own._own(np.array([0.0]))[0] == pytest.approx((1 + 4 / 4) ** -2.5)


def test_a_few_foreign_images_lie_anywhere_by_hand() -> None:
    found = Typicality(mode=0.8, spread=0.1, place=0.2, width=0.1, share=0.01)
    values, lift = np.array([0.9, 0.8, 0.6]), np.ones(3)
    odds = np.exp(np.array([-9.0, -8.0, -6.0]))
    near = 1 - found.foreign(values, lift)
    assert found.belongs(values, lift) == pytest.approx(near / (1 + odds), rel=1e-12)
    assert near[:2].tolist() == [1.0, 1.0]
    assert (NOTHING_FOREIGN.belongs(values, lift) == 1).all()
    far = np.array([0.1, -0.5])
    assert found.belongs(far, lift[:2]) / (1 - found.foreign(far, lift[:2])) == pytest.approx([0.9, 0.9])


def test_the_less_similar_the_more_foreign() -> None:
    values = np.sort(similarities(500, 100))
    found = foreign_probability(values)
    assert (np.diff(found) <= 1e-9).all()
    assert found[-1] == 0.0


@pytest.mark.parametrize("values", [np.zeros(0), np.ones(5), np.full(FEWEST + 10, 0.7), np.linspace(0, 1, FEWEST - 1)])
def test_too_little_to_tell(values: np.ndarray) -> None:
    assert (foreign_probability(values) == 0).all()
