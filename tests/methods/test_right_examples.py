"""Labels that are known to be right calibrate the scores of the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from somnet.methods import right_examples
from somnet.methods.right_examples import probability_right
from somnet.runs.doubt import choose_threshold


def scores(right: int, wrong: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of right labels and of wrong ones, which lie lower; whether they are right."""
    rng = np.random.default_rng(seed)
    return np.append(rng.beta(4, 2, right), rng.beta(1.5, 8, wrong)), np.arange(right + wrong) < right


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two unknown at 0.2 and 0.6, one known at 0.4; the scores' own word is worth 4 labels: 1 and 3 at the two.

    Of the heap at 0.2, half is known; at 0.4 all; at 0.6, 3 of 4, pooled with the one before 4 of 5. Odds 1 and 4 at
    0.2 and 0.5; interpolated, the unknown ones have 1 and 4, times 2 / 5 and 1 - w = (1 + 4 x 0.4) / 5. The
    second is more than 2 / 3, the most that one known label allows.
    """
    monkeypatch.setattr(right_examples, "TRUSTED", 4.0)
    found = probability_right(np.array([0.2, 0.6]), np.array([0.4]))
    assert found == pytest.approx([0.208, 2 / 3])


def test_without_known_labels_a_score_is_what_it_says() -> None:
    score, _ = scores(500, 100)
    assert probability_right(score, score[:0]) is score
    nearly = probability_right(score, np.array([score.max()]))
    assert nearly[score < 0.6] == pytest.approx(score[score < 0.6], abs=0.05)


def test_scores_that_differ_by_a_rounding_alone_are_one() -> None:
    assert probability_right(np.array([1.0]), np.array([0.0, 1.0])) == pytest.approx([0.75])
    ones = np.array([1.0, np.nextafter(1.0, 0.0), 0.5])
    assert np.isfinite(probability_right(ones, ones)).all()


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("power", [0.5, 1.0, 4.0])
def test_whatever_the_scores_say_of_themselves_the_promise_is_kept(share: float, power: float) -> None:
    known, _ = scores(2000, 0, seed=1)
    wrong = int(2000 * share)
    given_score, right = scores(2000 - wrong, wrong)
    calibrated = probability_right(given_score**power, known**power)
    flagged = calibrated < choose_threshold(calibrated)
    if share == 0:
        assert flagged.mean() < 0.01
    else:
        assert (~right[flagged]).mean() > 0.7
        assert flagged[~right].mean() > 0.3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.lists(st.floats(0, 1), max_size=60))
def test_it_is_a_probability_that_rises_with_the_score(unknown: list[float], known: list[float]) -> None:
    score = np.array(unknown)
    found = probability_right(score, np.array(known))
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found[np.argsort(score, kind="stable")]) >= -1e-12).all()


def test_the_order_is_kept_and_no_label_is_beyond_doubt() -> None:
    """A person's judgement must still be able to change any of them."""
    score, _ = scores(900, 100)
    found = probability_right(score, scores(300, 0, seed=1)[0])
    assert found.max() <= 1 - 1 / 302
    doubtful = found < found.max()
    assert len(np.unique(found[doubtful])) > 0.9 * len(np.unique(score[doubtful]))
