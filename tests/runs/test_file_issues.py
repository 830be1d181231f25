"""Copies, leaks into test and poor pictures, from files to columns."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from somnet.config import Config
from somnet.data.dataset import open_dataset
from somnet.data.description import describe
from somnet.runs.file_issues import with_file_issues
from somnet.runs.kinds import KINDS, count_kinds, explain
from somnet.system.compute import Compute

if TYPE_CHECKING:
    from tests.conftest import Photos


def blobs(number: int) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (20, 20, 3), np.uint8)
    return Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST)


@pytest.fixture
def images(photos: "Photos", tmp_path: Path) -> tuple[pa.Table, list[str]]:
    """Issues of: a copy in train, a file that is tested too, one that is tested saved anew, a blank and a long one."""
    data = photos.fill(tmp_path / "web")
    train, test = data / "train", data / "test"
    for number, file in enumerate(sorted(data.rglob("*.png"))):
        blobs(number).save(file)
    shutil.copy(train / "ash/0.png", train / "ash/copy.png")
    shutil.copy(train / "ash/1.png", test / "ash/leak.png")
    Image.open(train / "ash/2.png").save(test / "ash/nearly.jpg", quality=60)
    Image.new("RGB", (64, 64), "white").save(train / "=birch/blank.png")
    blobs(99).resize((300, 40)).save(train / "=birch/long.png")
    opened = open_dataset(data, Config(), Compute(workers=0))
    names = [name.decode() for name in opened.train.index.column("file_name")]
    labels = [opened.classes[label] for label in opened.train.labels]
    empty = {"file_name": names, "given_label": labels, "unreadable_reason": pa.nulls(len(names), pa.string())}
    return with_file_issues(pa.table(empty), opened), describe(opened, 1)


def test_what_is_wrong_with_files_has_a_flag_a_score_and_a_reason(images: tuple[pa.Table, list[str]]) -> None:
    table, told = images
    rows = {row["file_name"]: row for row in table.to_pylist()}
    flagged = {
        kind: {name for name in rows if rows[name][column]}
        for kind, column in KINDS.items()
        if column in table.column_names
    }
    assert flagged == {
        "duplicate": {"train/ash/copy.png"},
        "test-leak": {"train/ash/1.png", "train/ash/2.png"},
        "poor": {"train/=birch/blank.png", "train/=birch/long.png"},
    }
    assert rows["train/ash/copy.png"]["near_duplicate_score"] == 0
    assert rows["train/ash/1.png"]["test_leak_score"] == 0
    assert 0 <= rows["train/ash/2.png"]["test_leak_score"] < 0.16
    assert rows["train/ash/2.png"]["test_leak_of"] == "test/ash/nearly.jpg"
    assert rows["train/ash/3.png"]["test_leak_score"] == rows["train/ash/3.png"]["near_duplicate_score"] == 1
    assert rows["train/=birch/blank.png"]["poor_picture_reason"] == "blank"
    assert rows["train/=birch/long.png"]["poor_picture_reason"] == "odd shape"
    low = {name for name in rows if rows[name]["poor_picture_score"] < 0.5}
    assert low == flagged["poor"]
    assert count_kinds(table)["test-leak"] == 2
    assert any(line.startswith("warning: 2 leaks") for line in told)  # the same number


def test_each_kind_has_a_sentence(images: tuple[pa.Table, list[str]]) -> None:
    table, _ = images
    said = dict(zip(table["file_name"].to_pylist(), explain(table), strict=True))
    assert said["train/ash/3.png"] == {}
    assert said["train/ash/1.png"]["test-leak"].startswith("It is the test image test/ash/leak.png:")
    assert said["train/=birch/blank.png"] == {"poor": "Poor picture: nearly all of it has one colour."}
