"""What stays and what is removed, from scores made up by hand."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.cleaning.verdicts import POLICIES, judge
from somnet.data.decisions import Decision


def scores(*rows: dict[str, Any]) -> pa.Table:
    usual = {
        "given_label": "a",
        "predicted_label": "a",
        "predicted_score": 0.9,
        "label_score": 0.9,
        "outlier_score": 1.0,
        "suggested_label": None,
        "belief": 0.9,
        "background_score": 1.0,
        "is_label_issue": False,
        "is_background_issue": False,
        "is_test_leak_issue": False,
        "test_leak_score": 1.0,
        "test_leak_of": None,
        "is_poor_picture_issue": False,
        "poor_picture_reason": None,
        "is_unreadable_issue": False,
        "unreadable_reason": None,
        "duplicate_group": None,
    }
    listed = [{"file_name": f"{place}.jpg", **usual, **row} for place, row in enumerate(rows)]
    table = pa.Table.from_pylist(listed)
    texts = ("unreadable_reason", "predicted_label", "suggested_label", "test_leak_of", "poor_picture_reason")
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
    decisions = {"0.jpg": Decision("keep"), "1.jpg": Decision("unsure"), "2.jpg": Decision("relabel", "b")}
    decided = judge(scores(BAD, GOOD, {}), "reweight", threshold=0.5, decisions=decisions)
    assert decided.weights.tolist() == pytest.approx([1.0, 0.9, 1.0])  # what a person decided is beyond doubt


def test_files_that_help_nobody_go_whatever_the_policy() -> None:
    leak = {"is_test_leak_issue": True, "test_leak_score": 0.0, "test_leak_of": "test/7.jpg"}
    blank = {"is_poor_picture_issue": True, "poor_picture_reason": "blank, tiny"}
    dark = {"is_poor_picture_issue": True, "poor_picture_reason": "dark"}
    for policy in POLICIES:
        verdicts = judge(scores(leak, blank, dark, GOOD, GOOD), policy, threshold=0.5)
        assert verdicts.reasons == ["test-leak", "poor", None, None, None]
        assert verdicts.details[:2] == ["of test/7.jpg", "blank, tiny"]
        assert verdicts.doubts[2] == "Poor picture: it is so dark that hardly anything can be seen."
        assert verdicts.doubts[3:] == [None, None]
    asked = judge(scores(leak, blank, dark, GOOD), "drop", drop_poor=True, decisions={"0.jpg": Decision("keep")})
    assert asked.reasons == [None, "poor", "poor", None]
    alone = judge(scores({**leak, "given_label": "b"}, {**blank, "given_label": "b"}, GOOD), "drop")
    assert alone.reasons == [None, "poor", None]  # no class goes as a whole
    assert str(alone.doubts[0]).startswith("It is the test image test/7.jpg")


def test_only_a_sure_region_is_cut_out() -> None:
    small = {"is_background_issue": True, "background_score": 0.2, "belief": 0.7, "label_score": 0.9}
    table = scores(small, {**small, "belief": 0.4}, {**small, "label_score": 0.6}, GOOD)
    verdicts = judge(table, "crop", threshold=0.5)
    assert verdicts.crops.tolist() == [True, False, False, False]
    assert [doubt is not None for doubt in verdicts.doubts] == [False, True, True, False]
    assert not judge(table, "drop", threshold=0.5).crops.any()


def test_what_stays_in_doubt_is_told() -> None:
    low = [{**BAD, "label_score": value} for value in (0.1, 0.2)]
    table = scores(*low, {"label_score": 0.45}, GOOD)
    verdicts = judge(table, "drop", threshold=0.3, max_drop_per_class=0.25)
    assert verdicts.reasons == ["label", None, None, None]
    assert verdicts.doubts[0] is None  # it is gone
    assert verdicts.doubts[1] == "Probably not “a”: the other images give this label 20 % and are sure of “b”."
    assert verdicts.doubts[2:] == ["The label “a” has only 45 %.", None]
    assert judge(table, "relabel", threshold=0.3).doubts == [None, None, "The label “a” has only 45 %.", None]
    kept = {"1.jpg": Decision("keep")}
    assert judge(table, "reweight", threshold=0.3, decisions=kept).doubts[1] is None  # a person is sure


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


def test_who_is_unsure_leaves_it_to_the_scores() -> None:
    table = scores(GOOD, BAD, GOOD)
    for name in ("0.jpg", "1.jpg"):
        unsure = judge(table, "drop", threshold=0.5, decisions={name: Decision("unsure")})
        assert unsure.reasons == judge(table, "drop", threshold=0.5).reasons == [None, "label", None]


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
