"""How likely a label is right, the threshold that keeps a promise, and that every place counts alike."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.runs.label_scores import (
    HALF,
    PROMISED,
    LabelScores,
    choose_threshold,
    flagged_sentence,
    with_label_scores,
)


def test_the_threshold_by_hand() -> None:
    """Below 0.31 the mean of 1 - score is (1 + 0.9 + 0.7) / 3 = 0.87, below 0.5 it is (2.6 + 0.55) / 4 = 0.79."""
    assert choose_threshold(np.array([0.0, 0.1, 0.3, 0.45, 0.9])) == pytest.approx(0.45)
    assert choose_threshold(np.array([0.9, 0.99])) == HALF  # nothing lies below
    assert choose_threshold(np.array([0.4, 0.45, 0.9])) == pytest.approx(0.4)  # neither is doubted
    assert choose_threshold(np.zeros(0)) == HALF


@given(st.lists(st.floats(0, 1, width=32), max_size=60))
def test_the_promise_is_kept_by_the_scores(scores: list[float]) -> None:
    score = np.array(scores, np.float32)
    threshold = choose_threshold(score)
    flagged = score[score < threshold]
    assert threshold <= HALF
    assert threshold == round(threshold, 2)  # what a slider of whole percents can show
    assert (1 - flagged.astype(np.float64)).sum() >= PROMISED * len(flagged) - 1e-6


def images(belief: list[float]) -> pa.Table:
    count = len(belief)
    return pa.table(
        {
            "file_name": [f"{number}.jpg" for number in range(count)],
            "belief": pa.array(belief, pa.float32()),
            "is_background_issue": [True] * count,
        }
    )


def test_a_doubted_image_is_a_wrong_label_or_an_outlier() -> None:
    scores = LabelScores(
        right=np.array([0.05, 0.02, 0.9], np.float32),
        known=np.array([0.9, 0.03, 0.95], np.float32),
        suggested=np.array([1, -1, -1]),
    )
    table = with_label_scores(images([0.6, 0.7, 0.8]), scores, ("ash", "oak"))
    assert table["is_label_issue"].to_pylist() == [True, False, False]
    assert table["is_outlier_issue"].to_pylist() == [False, True, False]
    assert table["is_background_issue"].to_pylist() == [False, False, True]
    assert table["suggested_label"].to_pylist() == ["oak", None, None]
    assert table["belief"].to_pylist() == pytest.approx([0.6, 0.7, 0.8])
    assert flagged_sentence(table) == "2 labels are doubted, of which about 2 are wrong"


def test_clean_data_have_no_doubted_label() -> None:
    table = pa.table({"label_score": pa.array([0.9, 0.95, None], pa.float32())})
    assert flagged_sentence(table) == "no label is doubted"
