"""Boxes of other tools, worked by hand; names that their formats cannot hold as they are."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.exports.label_formats import (
    Box,
    Labelled,
    to_coco,
    to_fiftyone,
    to_label_studio,
    write_fiftyone,
    write_label_studio,
)

BOX: Box = (20.0, 10.0, 60.0, 40.0)  # of an image of 200 x 100


def test_coco_counts_pixels_from_the_corner() -> None:
    assert to_coco(BOX) == (20, 10, 40, 30)


def test_fiftyone_has_shares() -> None:
    assert to_fiftyone(BOX, 200, 100) == pytest.approx((0.1, 0.1, 0.2, 0.3))


def test_label_studio_has_percent() -> None:
    assert to_label_studio(BOX, 200, 100) == pytest.approx((10, 10, 20, 30))


@given(st.integers(8, 5000), st.integers(8, 5000), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_boxes_come_back(width: int, height: int, shares: list[float]) -> None:
    (x1, x2), (y1, y2) = sorted(shares[:2]), sorted(shares[2:])
    box: Box = (x1 * width, y1 * height, x2 * width, y2 * height)
    x, y, wide, high = to_coco(box)
    assert (x, y, x + wide, y + high) == pytest.approx(box)
    x, y, wide, high = to_fiftyone(box, width, height)
    assert (x * width, y * height, (x + wide) * width, (y + high) * height) == pytest.approx(box)
    assert to_label_studio(box, width, height) == pytest.approx([100 * value for value in (x, y, wide, high)])


def test_fiftyone_gets_images_that_are_called_images(tmp_path: Path) -> None:
    names = ("train/a/1.PNG", "train/a/2", "train/a/3.jpg?w=3", "train/a/4.5.mp4")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write_fiftyone(tmp_path, [Labelled(name, "a", 200, 100, BOX, 0.5) for name in names], ["a"])
    data = tmp_path / "fiftyone/data"
    there = {str(file.relative_to(data)): file.read_text() for file in data.rglob("*") if file.is_file()}
    assert there == dict(
        zip(("train/a/1.PNG", "train/a/2.jpg", "train/a/3.jpg", "train/a/4.5.jpg"), names, strict=True)
    )
    labels = json.loads((tmp_path / "fiftyone/labels.json").read_text(encoding="utf-8"))["labels"]
    assert list(labels) == ["train/a/1", "train/a/2", "train/a/3", "train/a/4.5"]


def test_class_names_fit_the_interface_of_label_studio(tmp_path: Path) -> None:
    classes = ["a\x01b\ufffe", 'my name="image"', "it's <b>&amp;\t", "日本"]
    write_label_studio(tmp_path, [Labelled("1.png", name, 200, 100, BOX, 0.5) for name in classes], classes)
    text = (tmp_path / "label-studio/labels.xml").read_text(encoding="utf-8")
    assert text.count(' name="') == 3  # Label Studio counts them so
    shown = [r"a\x01b\ufffe", *classes[1:]]
    view = ElementTree.fromstring(text)
    assert [tag.get("value") for tag in view.iter("Choice")] == shown
    assert [tag.get("value") for tag in view.iter("Label")] == shown
    tasks = json.loads((tmp_path / "label-studio/tasks.json").read_text(encoding="utf-8"))
    for task, name in zip(tasks, shown, strict=True):
        region, choice = task["predictions"][0]["result"]
        assert region["value"]["rectanglelabels"] == choice["value"]["choices"] == [name]
