"""The toy web: exact noise, true boxes, and the same bytes for the same seed."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from somnet.data.toy_web.categories import CATEGORIES
from somnet.data.toy_web.pictures import draw_test, draw_train
from somnet.data.toy_web.writer import write_demo


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _rows(root: Path) -> list[dict[str, str]]:
    with (root / "metadata.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def toy_web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toy-web")
    write_demo(root, seed=3, train_per_class=5, test_per_class=1, workers=1)
    return root


def test_there_are_enough_distinct_categories() -> None:
    assert len(CATEGORIES) >= 10
    assert len(set(CATEGORIES)) == len(CATEGORIES)


def test_the_bytes_depend_on_neither_run_nor_workers(toy_web: Path, tmp_path: Path) -> None:
    write_demo(tmp_path, seed=3, train_per_class=5, test_per_class=1, workers=2)
    assert _files(tmp_path) == _files(toy_web)


def test_another_seed_gives_other_pictures(toy_web: Path, tmp_path: Path) -> None:
    write_demo(tmp_path, seed=4, train_per_class=1, test_per_class=1)
    name = f"test/{CATEGORIES[0]}/0000.jpg"
    assert (tmp_path / name).read_bytes() != (toy_web / name).read_bytes()


def test_every_class_has_exactly_its_share_of_noise(toy_web: Path) -> None:
    rows = _rows(toy_web)
    assert len(rows) == 6 * len(CATEGORIES)
    for label in CATEGORIES:
        truths = [row["true_label"] for row in rows if row["label"] == label and row["split"] == "train"]
        assert len(truths) == 5
        assert truths.count("none") == 1
        assert truths.count(label) == 3
        assert set(truths) <= {*CATEGORIES, "none"}
    assert all(row["true_label"] == row["label"] for row in rows if row["split"] == "test")


def test_the_place_in_a_class_does_not_tell_the_noise(toy_web: Path) -> None:
    empty = {row["file_name"][-8:] for row in _rows(toy_web) if row["true_label"] == "none"}
    assert len(empty) > 1


def test_the_metadata_list_the_files(toy_web: Path) -> None:
    rows = _rows(toy_web)
    assert {row["file_name"] for row in rows} | {"metadata.csv"} == set(_files(toy_web))
    for row in rows:
        assert row["file_name"].startswith(f"{row['split']}/{row['label']}/")
        assert (row["true_box"] == "") == (row["true_label"] == "none")


def test_the_boxes_are_inside_and_of_the_promised_size(toy_web: Path) -> None:
    for row in _rows(toy_web):
        if row["true_box"]:
            with Image.open(toy_web / row["file_name"]) as image:
                width, height = image.size
            x1, y1, x2, y2 = map(int, row["true_box"].split())
            assert 0 <= x1 < x2 <= width
            assert 0 <= y1 < y2 <= height
            low, high = (0.25, 0.55) if row["split"] == "train" else (0.65, 0.90)
            longest = max(x2 - x1, y2 - y1)
            assert low * max(width, height) <= longest <= high * min(width, height)


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_object_is_in_its_box(category: str) -> None:
    image, box = draw_test(category, np.random.default_rng(1))
    assert image.size == (224, 224)
    assert box is not None
    inside = np.asarray(image.crop(box), dtype=np.float32)
    assert inside.std() > 15


def test_a_picture_without_object_has_no_box() -> None:
    image, box = draw_train(None, np.random.default_rng(0))
    assert image.mode == "RGB"
    assert box is None
