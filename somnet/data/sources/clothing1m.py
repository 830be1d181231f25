"""Clothing1M: 14 kinds of clothes, a million noisy images for training, clean ones for validation and test."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from somnet.data.index import Index, index_from_columns, join_indexes
from somnet.data.sources.lists import (
    check_labels,
    class_names,
    need,
    need_folders,
    prefixed,
    read_list,
    refuse_paths_outside,
    repeated,
)
from somnet.errors import DataError

CATEGORIES = "category_names_eng.txt"
SPLITS = (  # split, list of its images, their labels
    ("train", "noisy_train_key_list.txt", "noisy_label_kv.txt"),
    ("val", "clean_val_key_list.txt", "clean_label_kv.txt"),
    ("test", "clean_test_key_list.txt", "clean_label_kv.txt"),
)
FILES = (CATEGORIES, *dict.fromkeys(name for _, *names in SPLITS for name in names))


def is_clothing1m(root: Path) -> bool:
    """Whether a folder has any of the lists of Clothing1M."""
    return any((folder / name).is_file() for folder in (root, root / "annotations") for name in FILES)


def read_clothing1m(root: Path) -> Index:
    """The paper's split: train on the noisy list, test on the clean test list."""
    lists = root / "annotations" if (root / "annotations").is_dir() else root
    need(lists, FILES, "Clothing1M")
    classes = class_names(lists / CATEGORIES)
    images = b"images/" if (root / "images").is_dir() else b""
    if not images and not any((root / str(digit)).is_dir() for digit in range(10)):
        raise DataError(f"{root} has the lists of Clothing1M, but no images/: unpack the images beside the lists")
    parts = [_read_split(root, images, split, lists / keys, lists / labels, classes) for split, keys, labels in SPLITS]
    whole = join_indexes(root, classes, parts)
    need_folders(root, whole.table["file_name"], "Clothing1M")
    return whole


def _read_split(root: Path, images: bytes, split: str, keys: Path, labels: Path, classes: list[str]) -> Index:
    known = read_list(labels, [("name", pa.binary()), ("label", pa.int32())])
    check_labels(labels, known["label"], len(classes))
    names = _without_folder(read_list(keys, [("name", pa.binary())], separator="\t")["name"])
    refuse_paths_outside(keys, names)
    where = pc.index_in(names, value_set=_without_folder(known["name"]))
    problem = pc.if_else(pc.is_null(where), f"has no label in {labels.name}: add a line for it", None)
    columns = {
        "file_name": prefixed(images, names),
        "label": known["label"].take(where),
        "split": repeated(split, len(names)),
        "problem": problem,
    }
    return index_from_columns(root, classes, columns)


def _without_folder(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Copies of the lists differ: with images/ before each name, or without."""
    for start in (b"./", b"images/"):
        names = pc.if_else(pc.starts_with(names, start), pc.binary_slice(names, len(start)), names)
    return names
