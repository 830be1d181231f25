"""A run on data with something of everything to clean, and the same with other scores."""

import csv
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from somnet.training.train import train_without_report

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

HOSTILE = "<img src=x onerror=alert(1)>.png"
NOT_UTF8 = os.fsdecode(b"caf\xe9.png")
LONG = "n" * 246 + ".png"


def blobs(number: int) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
    return Image.fromarray(pixels).resize((64, 64), Image.Resampling.BICUBIC)


@dataclass(frozen=True)
class Made:
    """A trained run, its data, and what the data were before anybody cleaned them."""

    run: Path
    data: Path
    before: dict[str, str]


@pytest.fixture(scope="session")
def made(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Made:
    """18 sound images, and: a copy in train, one in test, a broken file, odd names, one name in two folders."""
    data = photos.fill(tmp_path_factory.mktemp("cleaning") / "web")
    train = data / "train"
    for number, file in enumerate(sorted(data.rglob("*.png"))):
        blobs(100 + number).save(file)  # the usual pictures of a class are look-alikes
    shutil.copy(train / "ash/0.png", train / "ash/copy.png")
    shutil.copy(train / "ash/1.png", data / "test/ash/leak.png")
    (train / "ash/broken.png").write_bytes(b"no picture")
    for number, name in enumerate((HOSTILE, NOT_UTF8, LONG, "deep/0.png", "0.gif"), start=20):
        (train / "=birch" / name).parent.mkdir(exist_ok=True)
        blobs(number).save(train / "=birch" / name, "PNG")
    out = data.parent / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(data.parent / "cache"))
        config = tiny.config("plain", **{"train.epochs": 1})
        train_without_report(data, config, out=out, device="cpu", workers=0)
    return Made(out, data, photos.fingerprint(data))


def with_scores(made: Made, folder: Path, **columns: dict[str, Any]) -> Path:
    """The run with other scores: by column and file name."""
    run = folder / "run"
    shutil.copytree(made.run, run)
    table = pq.read_table(run / "issues.parquet")
    names = table["file_name"].to_pylist()
    good = {"label_score": 0.95, "is_label_issue": False, "is_background_issue": False, "belief": 0.9}
    bad = table["is_unreadable_issue"].to_pylist()
    for column, usual in good.items():
        wanted = columns.get(column, {})
        values = [None if gone else wanted.get(name, usual) for name, gone in zip(names, bad, strict=True)]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    for column in ("predicted_label", "clean_box"):
        wanted = columns.get(column, {})
        own = table["given_label" if column == "predicted_label" else column].to_pylist()
        values = [wanted.get(name, value) for name, value in zip(names, own, strict=True)]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    pq.write_table(table, run / "issues.parquet")
    return run


def metadata(out: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(out / "metadata.parquet").to_pylist())


def removed(out: Path) -> dict[str, str]:
    with (out / "removed.csv").open(newline="", encoding="utf-8") as file:
        return {row["file_name"]: row["reason"] for row in csv.DictReader(file)}


WRONG = "train/oak, red/3.png"


@pytest.fixture
def run(made: Made, tmp_path: Path) -> Path:
    return with_scores(
        made,
        tmp_path,
        label_score={WRONG: 0.1},
        is_label_issue={WRONG: True},
        predicted_label={WRONG: "ash"},
        is_background_issue={"train/ash/2.png": True},
        clean_box={"train/ash/2.png": [10.0, 12.0, 42.0, 36.0]},
    )
