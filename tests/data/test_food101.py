"""Food-101N and Food-101 as they unpack, alone and side by side."""

import json
import logging
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from somnet.data.dataset import Part
from somnet.data.proposals import Scan
from somnet.data.sources import open_source
from somnet.errors import DataError
from somnet.runs.scoring import against_truth

CLASSES = ("apple_pie", "baklava", "crème_brûlée")
WEB = ("apple_pie/a1.jpg", "baklava/b1.jpg", "apple_pie/a2.jpg", "crème_brûlée/c1.jpg", "baklava/b2.jpg")
TRUTH = ["apple_pie", "something else", None, "something else", "baklava"]


def put(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def build_web(root: Path) -> Path:
    (root / "meta").mkdir(parents=True)
    put(root / "images", WEB)
    (root / "meta/classes.txt").write_text("\n".join(("class_name", *CLASSES)) + "\n")
    (root / "meta/imagelist.tsv").write_text("\n".join(("class_name/key", *WEB)) + "\n")
    header = "class_name/key\tverification_label\n"
    (root / "meta/verified_train.tsv").write_text(f"{header}{WEB[0]}\t1\n{WEB[1]}\t0\n{WEB[3]}\t0\n")
    (root / "meta/verified_val.tsv").write_text(f"{header}{WEB[4]}\t1\n")
    return root


def build_clean(root: Path, kinds: tuple[str, ...] = ("txt", "json")) -> Path:
    (root / "meta").mkdir(parents=True)
    lists = {
        "train": {name: [f"{name}/1", f"{name}/2"] for name in reversed(CLASSES)},
        "test": {name: [f"{name}/3"] for name in reversed(CLASSES)},
    }
    for split, listed in lists.items():
        keys = [key for names in listed.values() for key in names]
        put(root / "images", tuple(f"{key}.jpg" for key in keys))
        if "txt" in kinds:
            (root / f"meta/{split}.txt").write_text("\n".join(keys) + "\n")
        if "json" in kinds:
            (root / f"meta/{split}.json").write_text(json.dumps(listed))
    return root


def listing(root: Path) -> list[tuple[str, str, str]]:
    index = open_source(root)
    names = map(os.fsdecode, index.column("file_name"))
    labels = [index.classes[label] for label in index.labels()]
    return list(zip(index.column("split"), labels, names, strict=True))


def test_headers_are_neither_images_nor_classes(tmp_path: Path) -> None:
    root = build_web(tmp_path / "Food-101N_release")
    assert open_source(root).classes == CLASSES
    assert listing(root) == [("train", name.split("/")[0], f"images/{name}") for name in WEB]


def test_lists_without_headers_lose_nothing(tmp_path: Path) -> None:
    root = build_web(tmp_path)
    for name in ("classes.txt", "imagelist.tsv", "verified_train.tsv", "verified_val.tsv"):
        file = root / "meta" / name
        file.write_text(file.read_text().partition("\n")[2])
    assert open_source(root).classes == CLASSES
    assert open_source(root).column("true_label") == TRUTH


def test_verified_labels_are_known_truth(tmp_path: Path) -> None:
    index = open_source(build_web(tmp_path))
    assert index.column("true_label") == TRUTH
    none, sizes, boxes = [None] * 5, np.ones((5, 2), np.int32), np.zeros((5, 0, 4), np.float32)
    scan = Scan(none, sizes, boxes, np.zeros(5, np.int64), none, none, np.ones((5, 5), np.float32))
    scores = ([0.9, 0.1, 0.0, 0.2, 0.8], [0.1, 0.9, 1.0, 0.8, 0.2])  # the third is unknown and does not count
    good, bad = (pa.table({"label_score": score, "belief": score}) for score in scores)
    assert against_truth(good, Part(index, scan, np.full(5, -1))).auroc == 1.0
    assert against_truth(bad, Part(index, scan, np.full(5, -1))).auroc == 0.0


def test_verified_images_that_are_not_listed_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = build_web(tmp_path)
    with (root / "meta/verified_val.tsv").open("a") as file:
        file.write("baklava/gone.jpg\t1\n")
    with caplog.at_level(logging.WARNING, "somnet"):
        assert open_source(root).column("true_label") == TRUTH
    assert "1 verified images are not in meta/imagelist.tsv" in caplog.text


@pytest.mark.parametrize("kinds", [("txt",), ("json",), ("txt", "json")])
def test_the_clean_set_has_sorted_classes(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    root = build_clean(tmp_path / "food-101", kinds)
    assert open_source(root).classes == CLASSES
    found = listing(root)
    assert len(found) == 9
    assert ("train", "baklava", "images/baklava/2.jpg") in found
    assert [row for row in found if row[0] == "test"] == [
        ("test", name, f"images/{name}/3.jpg") for name in reversed(CLASSES)
    ]


def test_side_by_side_the_web_trains_and_the_clean_set_tests(tmp_path: Path) -> None:
    build_web(tmp_path / "Food-101N_release")
    build_clean(tmp_path / "food-101")
    index = open_source(tmp_path)
    assert index.classes == CLASSES
    assert index.column("split") == ["train"] * 5 + ["test"] * 3
    assert all(Path(index.path(row)).is_file() for row in range(len(index)))
    assert index.column("true_label") == TRUTH + [None] * 3


@pytest.mark.parametrize(
    "name", ["images", "meta/classes.txt", "meta/imagelist.tsv", "meta/verified_train.tsv", "meta/verified_val.tsv"]
)
def test_what_is_missing_of_the_web_is_named(tmp_path: Path, name: str) -> None:
    root = build_web(tmp_path / "Food-101N_release")
    (root / name).rename(tmp_path / "away")
    with pytest.raises(DataError, match=f"{name} is missing: unpack"):
        open_source(root)


@pytest.mark.parametrize(
    ("name", "said"), [("images", "images is missing"), ("meta/test.txt", "meta/test.txt is missing")]
)
def test_what_is_missing_of_the_clean_set_is_named(tmp_path: Path, name: str, said: str) -> None:
    root = build_clean(tmp_path / "food-101", ("txt",))
    (root / name).rename(tmp_path / "away")
    with pytest.raises(DataError, match=said):
        open_source(root)


def test_a_class_that_did_not_unpack_is_named(tmp_path: Path) -> None:
    root = build_web(tmp_path)
    (root / "images/crème_brûlée/c1.jpg").unlink()
    with pytest.raises(DataError, match="images/crème_brûlée/ is missing or empty, where 1 of 5"):
        open_source(root)


def test_an_unknown_class_is_named(tmp_path: Path) -> None:
    root = build_web(tmp_path)
    with (root / "meta/imagelist.tsv").open("a") as file:
        file.write("waffles/1.jpg\n")
    with pytest.raises(DataError, match="the class 'waffles', which is not one of the 3 classes: fix that line"):
        open_source(root)


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"a": 3}', "{", "[" * 100_000])
def test_a_broken_list_is_named(tmp_path: Path, text: str) -> None:
    root = build_clean(tmp_path, ("json",))
    (root / "meta/test.json").write_text(text)
    with pytest.raises(DataError, match=r"test\.json"):
        open_source(root)
