"""The table of images."""

from pathlib import Path
from typing import Any

import numpy as np

from somnet.data.index import make_index

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
