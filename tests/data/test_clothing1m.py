"""Clothing1M as it unpacks, and as copies of it differ."""

import os
from pathlib import Path

import pytest

from somnet.data.sources import open_source
from somnet.errors import DataError

NAMES = ("T-shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Down Coat", "Suit")
CLASSES = (*NAMES, "Shawl", "Dress", "Vest", "Underwear")
NOISY = {"images/0/00/1,1.jpg": 4, "images/3/25/2,2.jpg": 13, "images/9/99/3,3.jpg": 0, "images/3/25/both.jpg": 2}
CLEAN = {"images/3/25/both.jpg": 7, "images/1/10/v.jpg": 1, "images/2/20/t.jpg": 12, "images/2/20/c.jpg": 3}
LISTS = {
    "noisy_train": ["images/3/25/2,2.jpg", "images/0/00/1,1.jpg", "images/9/99/3,3.jpg"],
    "clean_train": ["images/2/20/c.jpg"],
    "clean_val": ["images/1/10/v.jpg"],
    "clean_test": ["images/2/20/t.jpg", "images/3/25/both.jpg"],
}
EXPECTED = [
    ("train", "Underwear", "images/3/25/2,2.jpg"),
    ("train", "Sweater", "images/0/00/1,1.jpg"),
    ("train", "T-shirt", "images/9/99/3,3.jpg"),
    ("val", "Shirt", "images/1/10/v.jpg"),
    ("test", "Vest", "images/2/20/t.jpg"),
    ("test", "Jacket", "images/3/25/both.jpg"),
]


def build(root: Path, lists: str = "", prefix: str = "images/", end: str = "\n") -> Path:
    """A copy with the lists in a folder of their own or not, and names with or without images/."""
    home = root / lists
    home.mkdir(parents=True, exist_ok=True)

    def write(name: str, lines: list[str]) -> None:
        text = end.join(line.replace("images/", prefix) for line in lines) + end
        (home / name).write_bytes(text.encode())

    write("category_names_eng.txt", list(CLASSES))
    write("noisy_label_kv.txt", [f"{name} {label}" for name, label in NOISY.items()])
    write("clean_label_kv.txt", [f"{name} {label}" for name, label in CLEAN.items()])
    for name, keys in LISTS.items():
        write(f"{name}_key_list.txt", keys)
    for name in {**NOISY, **CLEAN}:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def listing(root: Path) -> list[tuple[str, str, str]]:
    index = open_source(root)
    names = map(os.fsdecode, index.column("file_name"))
    labels = [index.classes[label] for label in index.labels()]
    return list(zip(index.column("split"), labels, names, strict=True))


@pytest.mark.parametrize("lists", ["", "annotations"])
@pytest.mark.parametrize("prefix", ["images/", ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_copy_gives_the_same_list(tmp_path: Path, lists: str, prefix: str, end: str) -> None:
    root = build(tmp_path, lists, prefix, end)
    assert listing(root) == EXPECTED
    assert open_source(root).classes == CLASSES


def test_the_images_may_stand_without_their_folder(tmp_path: Path) -> None:
    build(tmp_path)
    for folder in (tmp_path / "images").iterdir():
        folder.rename(tmp_path / folder.name)
    (tmp_path / "images").rmdir()
    assert listing(tmp_path) == [(split, name, file.removeprefix("images/")) for split, name, file in EXPECTED]


def test_a_lost_file_is_no_reason_to_refuse_the_rest(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "images/3/25/2,2.jpg").unlink()
    assert listing(tmp_path) == EXPECTED


def test_an_image_without_a_label_has_a_reason(tmp_path: Path) -> None:
    build(tmp_path)
    with (tmp_path / "noisy_train_key_list.txt").open("a") as file:
        file.write("images/0/00/stranger.jpg\n")
    index = open_source(tmp_path).of_split("train")
    assert index.column("problem") == [None] * 3 + ["has no label in noisy_label_kv.txt: add a line for it"]
    assert index.labels()[-1] == -1


@pytest.mark.parametrize(
    "name",
    [
        "category_names_eng.txt",
        "noisy_label_kv.txt",
        "clean_label_kv.txt",
        "noisy_train_key_list.txt",
        "clean_test_key_list.txt",
    ],
)
def test_a_missing_list_is_named(tmp_path: Path, name: str) -> None:
    (build(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing: unpack"):
        open_source(tmp_path)


def test_missing_and_empty_folders_are_named(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "images/9/99/3,3.jpg").unlink()
    (tmp_path / "images/0/00/1,1.jpg").unlink()
    (tmp_path / "images/0/00").rmdir()
    with pytest.raises(DataError, match=r"images/0/00/, images/9/99/ are missing or empty, where 2 of 6 listed"):
        open_source(tmp_path)


def test_lists_alone_are_refused(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="no images/: unpack"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("images/0/00/1,1.jpg 14", "labels from 0 to 14, but there are 14 classes, counted from 0"),
        ("images/0/00/1,1.jpg -1", "labels from -1"),
        ("images/0/00/1,1.jpg shirt", "shirt"),
        ("images/0/00/1,1.jpg", "Row #"),
        ("a b c 3", "Row #"),
    ],
)
def test_a_wrong_line_is_told(tmp_path: Path, line: str, said: str) -> None:
    build(tmp_path)
    with (tmp_path / "noisy_label_kv.txt").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=said):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["../secret.jpg", "images/../../secret.jpg", "/etc/passwd"])
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    build(tmp_path)
    for file, text in (("noisy_train_key_list.txt", name), ("noisy_label_kv.txt", f"{name} 1")):
        with (tmp_path / file).open("a") as lines:
            lines.write(text + "\n")
    with pytest.raises(DataError, match="outside the data folder: remove"):
        open_source(tmp_path)
