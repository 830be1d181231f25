"""WebVision as it unpacks: full and mini."""

import os
from pathlib import Path

import pytest

from somnet.data.sources import open_source
from somnet.errors import DataError

WNIDS = tuple(f"n{number:08d}" for number in range(100, 160))  # 60 of them, so that 50 are a part
GOOGLE = {"google/q0001/a.jpg": 0, "google/q0050/b.jpg": 49, "google/q0051/c.jpg": 50}
FLICKR = {"flickr/q0001/2680197397.jpg": 0, "flickr/q0060/d.jpg": 59}
VALIDATION = {"val000001.jpg": 3, "val000002.jpg": 55}


def build(root: Path) -> Path:
    (root / "info").mkdir(parents=True)
    lists = {"train_filelist_google": GOOGLE, "train_filelist_flickr": FLICKR, "val_filelist": VALIDATION}
    for name, listed in lists.items():
        write_list(root / f"info/{name}.txt", listed)
    (root / "info/synsets.txt").write_text("".join(f"{wnid} crane, bird\n" for wnid in WNIDS))
    (root / "info/queries_google.txt").write_text("".join(f"{q} crane\n" for q in range(1, 61)))
    (root / "info/queries_synsets_map.txt").write_text("".join(f"{q} {q}\n" for q in range(1, 61)))
    for name in (*GOOGLE, *FLICKR, *(f"val_images_256/{name}" for name in VALIDATION)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def write_list(file: Path, listed: dict[str, int]) -> None:
    file.write_text("".join(f"{name} {label}\n" for name, label in listed.items()))


def listing(data: Path) -> list[tuple[str, str, str]]:
    index = open_source(data)
    names = map(os.fsdecode, index.column("file_name"))
    labels = [index.classes[label] for label in index.labels()]
    return list(zip(index.column("split"), labels, names, strict=True))


FULL = [
    *(("train", WNIDS[label], name) for name, label in {**GOOGLE, **FLICKR}.items()),
    *(("val", WNIDS[label], f"val_images_256/{name}") for name, label in VALIDATION.items()),
]


def test_the_full_set_is_both_searches_and_the_validation_images(tmp_path: Path) -> None:
    root = build(tmp_path)
    assert listing(root) == FULL
    assert open_source(root).classes == WNIDS
    assert all(Path(open_source(root).path(row)).is_file() for row in range(len(FULL)))


def test_one_list_of_all_is_the_same(tmp_path: Path) -> None:
    root = build(tmp_path)
    write_list(root / "info/train_filelist_all.txt", {**GOOGLE, **FLICKR})
    assert listing(root) == FULL  # nothing twice
    (root / "info/train_filelist_google.txt").unlink()
    (root / "info/train_filelist_flickr.txt").unlink()
    assert listing(root) == FULL


def test_mini_is_what_google_found_for_the_first_50_classes(tmp_path: Path) -> None:
    root = build(tmp_path)
    mini = Path(f"mini-webvision:{root}")
    assert listing(mini) == [
        ("train", WNIDS[0], "google/q0001/a.jpg"),
        ("train", WNIDS[49], "google/q0050/b.jpg"),
        ("val", WNIDS[3], "val_images_256/val000001.jpg"),
    ]
    assert open_source(mini).classes == WNIDS[:50]


def test_mini_needs_no_more_than_its_own_images(tmp_path: Path) -> None:
    root = build(tmp_path)
    for folder in ("flickr", "google/q0051"):
        (root / folder).rename(tmp_path / folder.replace("/", "-").upper())
    assert len(open_source(Path(f"mini-webvision:{root}"))) == 3
    with pytest.raises(
        DataError, match=r"flickr/q0001/, flickr/q0060/, google/q0051/ are missing or empty, where 3 of 7"
    ):
        open_source(root)


@pytest.mark.parametrize(
    "name",
    [
        "info/synsets.txt",
        "info/train_filelist_google.txt",
        "info/train_filelist_flickr.txt",
        "info/val_filelist.txt",
        "val_images_256",
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    root = build(tmp_path / "webvision")
    (root / name).rename(tmp_path / "away")
    with pytest.raises(DataError, match=f"{name} is missing: unpack"):
        open_source(root)


def test_labels_counted_from_1_are_refused(tmp_path: Path) -> None:
    root = build(tmp_path)
    write_list(root / "info/train_filelist_flickr.txt", {name: label + 1 for name, label in FLICKR.items()})
    with pytest.raises(DataError, match="labels from 1 to 60, but there are 60 classes, counted from 0"):
        open_source(root)


def test_labels_that_contradict_the_queries_are_refused(tmp_path: Path) -> None:
    root = build(tmp_path)
    write_list(root / "info/train_filelist_flickr.txt", {"flickr/q0001/2680197397.jpg": 1})
    with pytest.raises(DataError, match="the query q0001 have label 1, but info"):
        open_source(root)
