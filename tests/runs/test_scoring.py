"""The tables, and their comparison with the truth, worked by hand."""

import csv
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from somnet.core.types import BagBatch
from somnet.data.dataset import Part, Unreadable
from somnet.data.index import Index, make_index
from somnet.data.proposals import Scan
from somnet.methods.base import Inspection
from somnet.runs.scoring import Truth, against_truth, inspect_images, with_unreadable, write_issues
from somnet.system.compute import Compute
from somnet.system.files import csv_cell

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def index_of(*rows: dict[str, Any]) -> Index:
    listed = [{"file_name": f"{place}.png".encode(), "split": "train", **row} for place, row in enumerate(rows)]
    return make_index(Path("web"), ("a", "b"), listed)


def scan_of(count: int) -> Scan:
    empty = np.zeros((count, 0, 4), np.float32)
    keys, none = pa.array([b"k"] * count), pa.nulls(count)
    sizes, quality = np.full((count, 2), 100, np.int32), np.ones((count, 5), np.float32)
    return Scan(keys, sizes, empty, np.zeros(count, np.int64), none, none, quality)


def part_of(index: Index, count: int) -> Part:
    return Part(index, scan_of(count), np.full(count, -1))


def judged(scores: list[float], boxes: list[list[float]]) -> pa.Table:
    column = pa.array(np.array(boxes, np.float32).tolist(), pa.list_(pa.float32()))
    score = pa.array(scores, pa.float32())
    return pa.table({"label_score": score, "belief": score, "clean_box": column})


WHOLE = [0.0, 0.0, 100.0, 100.0]


def test_the_truth_by_hand() -> None:
    index = index_of(
        {"label": 0, "true_label": "a", "true_box": [0, 0, 50, 100]},  # right
        {"label": 0, "true_label": "b", "true_box": [0, 0, 10, 10]},  # wrong: its box does not count
        {"label": 1, "true_label": "b"},  # right, no box known
        {"label": 1, "true_label": "a"},  # wrong
        {"label": 1, "true_box": [0, 0, 100, 50]},  # nothing known of its label: its box counts
        {"label": 1},
    )
    boxes = [[0.0, 0.0, 50.0, 50.0], *[WHOLE] * 5]
    found = against_truth(judged([0.9, 0.5, 0.4, 0.1, 0.0, 1.0], boxes), part_of(index, 6))
    # right .9 .4, wrong .5 .1: 3 of 4 pairs; IoU 25/50 and 50/100; whole images 50/100 and 50/100
    assert dataclasses.astuple(found) == pytest.approx((0.75, 0.75, 0.5, 0.5))


def test_best_boxes_are_told_from_whole_images() -> None:
    index = index_of({"label": 0, "true_label": "a", "true_box": [0, 0, 20, 50]})
    found = against_truth(judged([0.9], [[0, 0, 20, 25]]), part_of(index, 1))
    assert found.best_iou == pytest.approx(0.5)
    assert found.image_iou == pytest.approx(0.1)
    assert found.auroc is None  # of one kind alone


def test_without_truth_there_is_no_score() -> None:
    assert against_truth(judged([0.9, 0.1], [WHOLE] * 2), part_of(index_of({"label": 0}, {"label": 1}), 2)) == Truth(
        None, None, None, None
    )


def test_a_class_unknown_to_the_data_is_a_wrong_label() -> None:
    index = index_of({"label": 0, "true_label": "a"}, {"label": 0, "true_label": "none of them"})
    assert against_truth(judged([0.9, 0.1], [WHOLE] * 2), part_of(index, 2)).auroc == 1.0


@pytest.fixture
def tables(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[pa.Table, pa.Table]:
    """What is written for 4 images with known inspections; the labels of the toy are 0."""
    made = toy("plain")

    def inspect(batch: BagBatch) -> Inspection:
        count, boxes = batch.mask.shape[0], batch.mask.shape[2]
        probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.45, 0.3, 0.25], [0.9, 0.1, 0.0]])
        best = torch.tensor([0, 0, 0, 1])
        weights = torch.zeros(count, boxes)
        weights[:, 0] = 1
        background = torch.tensor([1.0, 0.2, 1.0, 0.4])
        return Inspection(probabilities, probabilities[:, 0], background, weights, best)

    monkeypatch.setattr(made.method, "inspect", inspect)
    index = make_index(
        Path("web"),
        ("=a", "b", "c"),
        [{"file_name": name, "label": 0, "split": "train"} for name in (b"=x.png", b"\xe9.png", b"2.png", b"3.png")],
    )
    scan = made.boxes.scan.take(np.arange(4))
    part = Part(index, scan, np.array([-1, 0, -1, 0]))
    images = inspect_images(made.method, part, made.inputs, Compute(workers=0), tmp_path)
    return images, pq.read_table(tmp_path / "regions.parquet")


def test_issues_follow_from_the_scores(tables: tuple[pa.Table, pa.Table]) -> None:
    images, _ = tables
    assert images["predicted_label"].to_pylist() == ["=a", "b", "=a", "=a"]
    assert images["belief"].to_pylist() == pytest.approx([0.9, 0.3, 0.45, 0.9])
    # the fourth is seen much better in a small region; the second too, but its region is the image
    assert images["is_background_issue"].to_pylist() == [False, False, False, True]
    assert images["clean_box"].to_pylist()[:3] == [[0, 0, 64, 64]] * 3
    assert images["predicted_score"].to_pylist() == pytest.approx([0.9, 0.7, 0.45, 0.9])
    assert images["winner_slot"].null_count == 4  # this method has no memory


def test_regions_are_the_boxes_that_are_there(tables: tuple[pa.Table, pa.Table], toy: "MakeToy") -> None:
    counts = toy("plain").boxes.scan.counts[:4]
    _, regions = tables
    assert regions.num_rows == int(counts.sum()) + 4
    assert regions["region"].to_pylist() == [box for count in counts for box in range(count + 1)]
    firsts = [row for row in regions.to_pylist() if row["region"] == 0]
    assert all(row["box"] == [0, 0, 64, 64] and row["roi_weight"] == 1 for row in firsts)


def test_the_csv_starts_no_formula(tables: tuple[pa.Table, pa.Table], tmp_path: Path) -> None:
    images, _ = tables
    images = with_unreadable(
        images,
        [Unreadable("+bad.png", "=a", "train", "-1 x 1 pixels"), Unreadable("@bad.png", None, "train", "empty")],
    )
    write_issues(tmp_path, images)
    with (tmp_path / "issues.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [row["file_name"] for row in rows]
    assert names == ["'=x.png", "\\xe9.png", "2.png", "3.png", "'+bad.png", "'@bad.png"]
    assert [row["unreadable_reason"] for row in rows][4:] == ["'-1 x 1 pixels", "empty"]
    assert rows[0]["given_label"] == "'=a"
    assert rows[0]["clean_box"] == "0.0 0.0 64.0 64.0"
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@"))]
    again = pq.read_table(tmp_path / "issues.parquet")
    assert again.equals(images)
    assert again["file_name"].to_pylist()[0] == "=x.png"  # as it is, where no spreadsheet reads
    assert again["belief"].to_pylist()[4:] == [None, None]


NUMBERS = st.floats(0, 20_000, width=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
LINES = st.tuples(
    st.one_of(TEXTS, st.sampled_from("=+-@\t\r'\n").flatmap(lambda start: TEXTS.map(lambda rest: start + rest))),
    st.one_of(st.none(), st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS)),
)


@settings(max_examples=25)
@given(st.lists(LINES, min_size=1, max_size=30))
def test_whole_columns_are_written_as_their_cells(lines: list[tuple[str, tuple[float, ...] | None]]) -> None:
    names, boxes = zip(*lines, strict=True)
    images = pa.table({"file_name": names, "clean_box": pa.array(boxes, pa.list_(pa.float32()))})
    with tempfile.TemporaryDirectory() as folder:
        write_issues(Path(folder), images)
        with open(f"{folder}/issues.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == [csv_cell(name) for name in names]
    shown = ["" if box is None else " ".join(f"{number:.1f}" for number in box) for box in boxes]
    assert [row["clean_box"] for row in rows] == shown
