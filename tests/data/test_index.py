"""The table of images."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from somnet.data import index as index_module
from somnet.data.index import index_from_columns, join_indexes, make_index
from somnet.data.location import Location

ROWS: list[dict[str, Any]] = [
    {"file_name": b"a.jpg", "label": 1, "split": "train"},
    {"file_name": b"b.jpg", "label": None, "split": "val"},
    {"file_name": b"c.jpg", "label": 0, "split": "test", "problem": "gone"},
]
INDEX = make_index(Path("/data"), ["cat", "dog"], ROWS)


def test_rows_are_kept_in_order() -> None:
    assert len(INDEX) == 3
    assert INDEX.column("file_name") == [b"a.jpg", b"b.jpg", b"c.jpg"]
    assert INDEX.column("problem") == [None, None, "gone"]
    assert INDEX.path(2) == "/data/c.jpg"


def test_a_missing_label_is_minus_1() -> None:
    assert INDEX.labels().tolist() == [1, -1, 0]


def test_splits_can_be_chosen() -> None:
    assert INDEX.splits() == {"train", "val", "test"}
    assert INDEX.of_split("test", "train").column("file_name") == [b"a.jpg", b"c.jpg"]
    assert len(INDEX.of_split("nothing")) == 0


def test_rows_can_be_taken_in_any_order() -> None:
    part = INDEX.take(np.array([2, 0]))
    assert part.column("file_name") == [b"c.jpg", b"a.jpg"]
    assert part.classes == ("cat", "dog")


def test_an_empty_index_has_no_labels() -> None:
    assert make_index(Path("/data"), [], []).labels().tolist() == []


def test_an_index_does_not_depend_on_how_many_rows_are_python_objects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "ROWS_AT_ONCE", 2)
    found = make_index(Path("/data"), ["cat", "dog"], iter(ROWS))
    assert found.table.equals(INDEX.table)
    assert found.table["file_name"].num_chunks == 1
    assert list(found.names()) == ["a.jpg", "b.jpg", "c.jpg"]
    assert list(make_index(Path("/data"), [], [{"file_name": b"\xff.jpg"}]).names()) == ["\\xff.jpg"]


def test_an_image_is_a_file_or_a_stretch_of_one() -> None:
    rows: list[dict[str, Any]] = [
        {"file_name": b"a.jpg"},
        {"file_name": b"s.tar/a.jpg", "archive": b"s.tar", "offset": 512, "size": 7},
    ]
    index = make_index(Path("/data"), [], rows)
    assert index.location(0) == Location("/data/a.jpg")
    assert index.location(1) == Location("/data/s.tar", 512, 7)


def test_whole_columns_make_the_same_index_as_rows() -> None:
    names = pa.array([row["file_name"] for row in ROWS], pa.binary())
    columns = {
        "file_name": names,
        "label": pa.chunked_array([[1], [None, 0]], pa.int8()),
        "split": pa.array([row["split"] for row in ROWS]),
        "problem": pa.array([None, None, "gone"]),
    }
    index = index_from_columns(Path("/data"), ["cat", "dog"], columns)
    assert index.table.equals(INDEX.table)
    joined = join_indexes(index.root, index.classes, [index.of_split("train"), index.of_split("val", "test")])
    assert joined.table.equals(INDEX.table)
