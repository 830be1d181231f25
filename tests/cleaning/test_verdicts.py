"""What stays and what is removed, from scores made up by hand."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.cleaning.verdicts import POLICIES, Decision, judge


def scores(*rows: dict[str, Any]) -> pa.Table:
    usual = {
        "given_label": "a",
        "predicted_label": "a",
        "predicted_score": 0.9,
        "label_score": 0.9,
        "outlier_score": 1.0,
        "suggested_label": None,
        "is_label_issue": False,
        "is_background_issue": False,
        "is_unreadable_issue": False,
        "unreadable_reason": None,
        "duplicate_group": None,
    }
    listed = [{"file_name": f"{place}.jpg", **usual, **row} for place, row in enumerate(rows)]
    table = pa.Table.from_pylist(listed)
    texts = ("unreadable_reason", "predicted_label", "suggested_label")
    types = {**dict.fromkeys(texts, pa.string()), "duplicate_group": pa.int32(), "label_score": pa.float32()}
    return table.cast(pa.schema([(field.name, types.get(field.name, field.type)) for field in table.schema]))


BAD = {"label_score": 0.1, "predicted_label": "b", "suggested_label": "b", "is_label_issue": True}
GOOD: dict[str, Any] = {}


def test_low_scores_go_under_a_threshold() -> None:
    verdicts = judge(scores(GOOD, BAD, {"label_score": 0.4}, GOOD, GOOD), "drop", threshold=0.5)
    assert verdicts.reasons == [None, "label", "label", None, None]
    assert verdicts.details[1] == "looks like b"
    assert verdicts.weights.tolist() == [1] * 5


def test_what_shows_no_class_is_told_from_wrong_labels() -> None:
    foreign = {"label_score": 0.05, "outlier_score": 0.06}
    verdicts = judge(scores(foreign, BAD, *[GOOD] * 4), "drop")
    assert verdicts.reasons[:3] == ["outlier", "label", None]
    assert verdicts.details[0] == "shows none of the classes"


def test_the_best_of_a_class_stay() -> None:
    low = [{"label_score": value} for value in (0.3, 0.1, 0.2, 0.4)]
    assert judge(scores(*low), "drop", threshold=0.9).reasons == [None, "label", "label", None]
    assert judge(scores(*low), "drop", threshold=0.9, max_drop_per_class=0.25).reasons.count("label") == 1
    whole = judge(scores(*low), "drop", threshold=0.9, max_drop_per_class=1.0)
    assert whole.reasons == ["label", "label", "label", None]  # never the whole class


def test_the_best_copy_stays() -> None:
    copies: list[dict[str, Any]] = [{"duplicate_group": 3, "label_score": value} for value in (0.7, 0.8, 0.6)]
    verdicts = judge(scores(*copies, GOOD), "drop", threshold=0.1)
    assert verdicts.reasons == ["duplicate", None, "duplicate", None]
    assert verdicts.details[0] == "of 1.jpg"


def test_a_class_that_is_one_copy_of_another_class_stays() -> None:
    pair: list[dict[str, Any]] = [
        {"duplicate_group": 0},
        {"duplicate_group": 0, "given_label": "b", "label_score": 0.3},
    ]
    assert judge(scores(*pair), "drop", threshold=0.0).reasons == [None, None]


def test_unreadable_files_always_go() -> None:
    gone = {"is_unreadable_issue": True, "unreadable_reason": "empty", "label_score": None, "predicted_label": None}
    for policy in POLICIES:
        verdicts = judge(scores(GOOD, gone), policy, decisions={"1.jpg": Decision("keep")})
        assert verdicts.reasons == [None, "unreadable"]
        assert verdicts.details[1] == "empty"


def test_reweighting_keeps_all() -> None:
    verdicts = judge(scores(BAD, {**GOOD, "duplicate_group": 0}, {"duplicate_group": 0}), "reweight", threshold=0.5)
    assert verdicts.reasons == [None] * 3
    assert verdicts.weights.tolist() == pytest.approx([0.1, 0.9, 0.9])


def test_sure_suggestions_are_taken() -> None:
    unsure = {**BAD, "suggested_label": None}
    verdicts = judge(scores(BAD, unsure, *[GOOD] * 4), "relabel", threshold=0.5)
    assert verdicts.labels[:2] == ["b", "a"]
    assert verdicts.reasons[:2] == [None, "label"]


def test_a_person_has_the_last_word() -> None:
    decisions = {"0.jpg": Decision("keep"), "1.jpg": Decision("drop"), "2.jpg": Decision("relabel", "b")}
    copy = {**BAD, "duplicate_group": 1}
    verdicts = judge(scores(copy, {"duplicate_group": 1}, BAD, GOOD), "drop", threshold=0.5, decisions=decisions)
    assert verdicts.reasons == [None, "decision", None, None]
    assert verdicts.labels == ["a", "a", "b", "a"]


def test_what_a_person_keeps_beats_a_better_copy() -> None:
    pair = scores({"duplicate_group": 0, "label_score": 0.6}, {"duplicate_group": 0, "label_score": 0.95})
    assert judge(pair, "drop", threshold=0.1, decisions={"0.jpg": Decision("keep")}).reasons == [None, "duplicate"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.floats(0, 1, width=32), st.integers(-1, 3)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(POLICIES),
    st.one_of(st.none(), st.floats(0, 1)),
    st.floats(0, 1),
)
def test_no_class_goes_as_a_whole(
    rows: list[tuple[str, str, float, int]], policy: Any, threshold: float | None, share: float
) -> None:
    table = scores(
        *(
            {
                "given_label": given_label,
                "predicted_label": predicted,
                "label_score": score,
                "is_label_issue": score < 0.5 and given_label != predicted,
                "duplicate_group": None if group < 0 else group,
            }
            for given_label, predicted, score, group in rows
        )
    )
    verdicts = judge(table, policy, threshold=threshold, max_drop_per_class=share)
    left = {label for label, reason in zip(verdicts.labels, verdicts.reasons, strict=True) if reason is None}
    assert left >= set(verdicts.labels)
    for name in "abc":
        own = [reason for row, reason in zip(rows, verdicts.reasons, strict=True) if row[0] == name]
        assert own.count("label") + own.count("outlier") <= share * len(own)
