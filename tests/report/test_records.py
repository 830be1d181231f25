"""What the pages of a report are written from."""

import base64
import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somnet.report.class_pages import counts_below, describe_all, describe_images, why
from somnet.report.frame import script_json
from somnet.report.records import STATES, Records, read_records
from somnet.report.thumbnails import EXEMPLARS, chosen_rows, exemplars, fair_shares
from somnet.runs.kinds import KINDS
from somnet.runs.run import Run
from tests.report.conftest import made_up_run


@pytest.fixture
def records(tmp_path: Path) -> Records:
    files = [(f"{number}.jpg", "abc"[number % 3]) for number in range(90)]
    return read_records(made_up_run(tmp_path / "run", files, bad=[("broken.jpg", "empty")]))


def test_a_class_is_listed_worst_first(records: Records) -> None:
    seen: list[int] = []
    for number, rows in records.by_class():
        assert set(records.label[rows]) == {number}
        assert (np.diff(records.label_score[rows]) >= 0).all()
        seen += rows.tolist()
    assert sorted(seen) == list(range(90))  # the unreadable file is in no class page


def test_the_gravest_fault_is_the_state(records: Records) -> None:
    for row in range(len(records)):
        faults = [name for name in STATES if records.flags[name][row]]
        assert STATES[records.state[row]] == faults[-1]
        assert len(faults) == 1 or not {"clean", "unclear"} & set(faults)
    assert STATES[records.state[90]] == "unreadable"


def test_the_columns_of_all_images_are_those_of_the_tables(records: Records) -> None:
    pictures = np.arange(len(records)) % 2 == 0
    columns = {
        name: np.frombuffer(base64.b64decode(column["bytes"]), column["type"])
        for name, column in describe_all(records, pictures).items()
    }
    assert columns["label"].tolist() == records.label.tolist()
    assert columns["score"].tolist() == records.label_score.tolist()  # not rounded: the threshold counts by them
    assert columns["pictured"].tolist() == pictures.tolist()
    for row in range(len(records)):
        faults = [name for bit, name in enumerate(STATES) if columns["flags"][row] >> bit & 1]
        assert faults == [name for name in STATES if records.flags[name][row]]


def test_a_file_that_cannot_be_read_has_a_card_with_the_reason(records: Records) -> None:
    cards = describe_images(records, np.array([89, 90]))
    assert cards["name"] == ["89.jpg", "broken.jpg"]
    assert cards["why"][1] == {"unreadable": "It cannot be read: empty."}
    assert cards["regions"][0] is not None
    assert cards["regions"][1] is None


def test_a_score_on_the_threshold_stays() -> None:
    below = counts_below(np.array([0.5, 0.25, 1.0]))
    assert (below[0], below[25], below[26], below[50], below[51], below[100]) == (0, 0, 1, 1, 2, 2)


def test_every_image_has_a_sentence_of_its_own_state(records: Records) -> None:
    begins = {"label": "Probably not", "background": "“", "duplicate": "An earlier"}
    for row in range(90):
        ((state, text),) = why(records, np.array([row]))[0].items()  # none of these has two faults
        assert state == STATES[records.state[row]]
        assert text.endswith(".")
        begin = begins.get(STATES[records.state[row]])
        assert begin is None or text.startswith(begin)
        if STATES[records.state[row]] == "label":
            assert ("are sure" in text) == bool(records.suggested[row] >= 0)


def test_no_image_is_called_clean_that_is_not_typical(records: Records) -> None:
    """Of three images without a fault only the one with a high score and no other opinion is clean."""
    rows = np.arange(3)
    score, predicted = (np.array(records.table[name].to_pylist()) for name in ("label_score", "predicted_label"))
    given = np.array(records.table["given_label"].to_pylist())
    score[rows], predicted[rows] = (0.99, 0.9, 0.99), given[rows]
    predicted[rows[2]] = next(name for name in records.classes if name != given[rows[2]])
    table = records.table
    faults = {name: pa.nulls(len(table), pa.bool_()) for name in KINDS.values() if name in table.column_names}
    scores = {"label_score": pa.array(score, pa.float32()), "predicted_label": pa.array(predicted)}
    for name, values in {**faults, **scores}.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    judged = Records(records.classes, table, records.regions)
    assert [STATES[judged.state[row]] for row in rows] == ["clean", "unclear", "unclear"]
    clean, untypical, other = (said for one in why(judged, rows) for said in one.values())
    assert clean.startswith("Clean: the model sees")
    assert untypical.startswith("Not clear: the model sees")
    assert "no typical picture" in untypical
    assert other.startswith("Not clear: the model would say")


def test_a_card_says_why_for_each_fault_the_gravest_first(records: Records) -> None:
    row = int(np.flatnonzero(records.flags["label"])[0])
    place = records.table.schema.get_field_index("is_near_duplicate_issue")
    copies = pa.array(np.arange(len(records)) == row)
    both = replace(records, table=records.table.set_column(place, "is_near_duplicate_issue", copies))
    (said,) = why(both, np.array([row]))
    assert list(said) == ["label", "duplicate"]
    assert said["duplicate"] == "An earlier training image shows the same; one copy is enough."
    assert describe_images(both, np.array([row]))["why"] == [said]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 500))
def test_shares_are_fair(sizes: list[int], most: int) -> None:
    shares = fair_shares(np.array(sizes, np.int64), most)
    assert sum(shares) <= most
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    cut = [share for share, size in zip(shares, sizes, strict=True) if share < size]
    assert sum(shares) >= min(most, sum(sizes))  # nothing is left over
    assert not cut or max(cut) - min(cut) <= 1
    assert not cut or max(shares) <= min(cut) + 1


def test_of_many_images_the_worst_and_the_best_have_pictures(records: Records) -> None:
    assert chosen_rows(records, 1000).tolist() == list(range(90))
    chosen = set(chosen_rows(records, 30).tolist())
    assert len(chosen) == 30
    for _, rows in records.by_class():
        mine = [place for place, row in enumerate(rows.tolist()) if row in chosen]
        best = exemplars(records, rows)[:EXEMPLARS].tolist()
        assert mine[0] == 0
        assert set(mine) - set(range(len(mine))) <= set(best)


@settings(max_examples=50)
@given(st.dictionaries(st.text(), st.lists(st.text(max_size=5), max_size=3), max_size=3))
def test_data_in_a_script_is_the_same_json(value: object) -> None:
    text = script_json(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert not set("<>&\n") & set(text)


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_how_sure_a_prediction_is_stands_in_the_tables(run: Run) -> None:
    table = run.scores()
    known = [score for score in table["predicted_score"].to_pylist() if score is not None]
    assert len(known) == table.num_rows - 1  # one file is not an image
    assert all(1 / 3 <= score <= 1 for score in known)
    with open(run.path / "issues.csv", newline="") as stream:
        assert "predicted_score" in next(csv.reader(stream))
