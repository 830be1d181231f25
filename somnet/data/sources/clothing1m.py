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

IMAGES = b"images/"
CATEGORIES = "category_names_eng.txt"
SPLITS = (  # split, list of its images, their labels
    ("train", "noisy_train_key_list.txt", "noisy_label_kv.txt"),
    ("val", "clean_val_key_list.txt", "clean_label_kv.txt"),
    ("test", "clean_test_key_list.txt", "clean_label_kv.txt"),
)
FILES = (CATEGORIES, *dict.fromkeys(name for _, *names in SPLITS for name in names))


def is_clothing1m(root: Path) -> bool:
    """Whether a folder has any of the lists of Clothing1M."""
    return _folder_of_lists(root) is not None


def _folder_of_lists(root: Path) -> Path | None:
    folders = (root, root / "annotations")
    return next((folder for folder in folders if any((folder / name).is_file() for name in FILES)), None)


def read_clothing1m(root: Path) -> Index:
    """The paper's split: train on the noisy list, test on the clean test list."""
    lists = _folder_of_lists(root) or root
    need(lists, FILES, "Clothing1M")
    classes = class_names(lists / CATEGORIES)
    if not (root / "images").is_dir() and not any((root / str(digit)).is_dir() for digit in range(10)):
        raise DataError(f"{root} has the lists of Clothing1M, but no images/: unpack the images beside the lists")
    indexes = [_read_split(root, split, lists / keys, lists / labels, classes) for split, keys, labels in SPLITS]
    whole = join_indexes(root, classes, indexes)
    need_folders(root, whole.table["file_name"], "Clothing1M")
    return whole


def _read_split(root: Path, split: str, keys: Path, labels: Path, classes: list[str]) -> Index:
    known = read_list(labels, [("name", pa.binary()), ("label", pa.int32())])
    check_labels(labels, known["label"], len(classes))
    listed = read_list(keys, [("name", pa.binary())], separator="\t")["name"]
    refuse_paths_outside(keys, listed)
    names = _with_folder(listed)
    where = pc.index_in(names, value_set=_with_folder(known["name"]))
    if not (root / "images").is_dir():
        names = pc.replace_substring(names, IMAGES, b"", max_replacements=1)
    problem = pc.if_else(pc.is_null(where), f"has no label in {labels.name}: add a line for it", None)
    columns = {
        "file_name": names,
        "label": known["label"].take(where),
        "split": repeated(split, len(names)),
        "problem": problem,
    }
    return index_from_columns(root, classes, columns)


def _with_folder(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Copies of the lists differ: with images/ before each name, or without."""
    return pc.if_else(pc.starts_with(names, IMAGES), names, prefixed(IMAGES, names))
