"""Food-101N, 101 dishes from the web with noisy labels, to train on; and Food-101, the clean set, to test on."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from somnet.data.index import SOMETHING_ELSE, Index, index_from_columns, join_indexes
from somnet.data.sources.lists import (
    class_names,
    need,
    need_folders,
    number_of,
    prefixed,
    read_list,
    refuse_paths_outside,
    repeated,
)
from somnet.errors import DataError

log = logging.getLogger("somnet")

WEB, CLEAN = "Food-101N_release", "food-101"  # as their archives unpack
VERIFIED = ("meta/verified_train.tsv", "meta/verified_val.tsv")
HEADER = "class_name"  # begins the first line of each list of Food-101N, which is neither an image nor a class


def is_food101n(root: Path) -> bool:
    """Whether a folder is Food-101N, or holds it under its usual name."""
    return any((folder / name).is_file() for folder in (root, root / WEB) for name in ("meta/imagelist.tsv", *VERIFIED))


def is_food101(root: Path) -> bool:
    """Whether a folder is Food-101, or holds it under its usual name."""
    return any(_list_of(folder, split) is not None for folder in (root, root / CLEAN) for split in ("train", "test"))


def read_food101n(root: Path) -> Index:
    """All of Food-101N for training; the test images of Food-101 too, where a folder holds both data sets."""
    folder = "" if (root / "meta").is_dir() else f"{WEB}/"
    home = root / folder
    need(home, ("images", "meta/classes.txt", "meta/imagelist.tsv", *VERIFIED), "Food-101N")
    classes = class_names(home / "meta/classes.txt", header=HEADER)
    file = home / "meta/imagelist.tsv"
    names = read_list(file, [("name", pa.binary())], separator="\t", header=HEADER)["name"]
    refuse_paths_outside(file, names)
    columns = {
        "file_name": prefixed(f"{folder}images/".encode(), names),
        "label": number_of(file, _class_of(names), classes),
        "split": repeated("train", len(names)),
        "true_label": _verified(home, names),
    }
    web = index_from_columns(root, classes, columns)
    need_folders(root, web.table["file_name"], "Food-101N")
    if folder and (root / CLEAN).is_dir():
        return join_indexes(root, classes, [web, _read_clean(root, f"{CLEAN}/", ("test",), classes)])
    return web


def read_food101(root: Path) -> Index:
    """Food-101 with its own training and test images."""
    folder = "" if (root / "meta").is_dir() else f"{CLEAN}/"
    return _read_clean(root, folder, ("train", "test"))


def _read_clean(root: Path, folder: str, splits: tuple[str, ...], classes: list[str] | None = None) -> Index:
    need(root / folder, ("images", "meta"), "Food-101")
    listed = {split: _read_clean_list(root / folder, split) for split in splits}
    if classes is None:
        class_lists = (_class_of(names).unique().to_pylist() for names in listed.values())
        classes = sorted({name.decode("utf-8", "backslashreplace") for names in class_lists for name in names})
    indexes = []
    for split, names in listed.items():
        file = _list_of(root / folder, split) or root
        refuse_paths_outside(file, names)
        columns = {
            "file_name": prefixed(f"{folder}images/".encode(), names, b".jpg"),
            "label": number_of(file, _class_of(names), classes),
            "split": repeated(split, len(names)),
        }
        indexes.append(index_from_columns(root, classes, columns))
    whole = join_indexes(root, classes, indexes)
    need_folders(root, whole.table["file_name"], "Food-101")
    return whole


def _list_of(home: Path, split: str) -> Path | None:
    return next((file for kind in ("txt", "json") if (file := home / f"meta/{split}.{kind}").is_file()), None)


def _read_clean_list(home: Path, split: str) -> pa.ChunkedArray:
    """`class/id` of each image, from meta/train.txt or meta/train.json."""
    file = _list_of(home, split)
    if file is None:
        raise DataError(
            f"{home} is not a complete copy of Food-101: meta/{split}.txt is missing: unpack the archive again"
        )
    if file.suffix == ".txt":
        return read_list(file, [("name", pa.binary())], separator="\t")["name"]
    try:
        listed = json.loads(file.read_text(encoding="utf-8"))
        return pa.chunked_array([[name.encode() for names in listed.values() for name in names]], pa.binary())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"cannot read {file}: {error}: unpack the archive again") from None


def _class_of(names: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(names, r"/[^/]*$", "")


def _verified(home: Path, names: pa.ChunkedArray) -> pa.ChunkedArray:
    """What people said of some labels: the class itself where it is right, else only that it is wrong."""
    columns = [("name", pa.binary()), ("right", pa.int8())]
    checked = pa.concat_tables(
        [read_list(home / file, columns, separator="\t", header=HEADER) for file in VERIFIED]
    ).combine_chunks()
    right = checked["right"].take(pc.index_in(names, value_set=checked["name"]))
    if unlisted := pc.sum(pc.is_null(pc.index_in(checked["name"], value_set=names))).as_py():
        log.warning("%s: %d verified images are not in meta/imagelist.tsv: they are left out", home, unlisted)
    classes = _class_of(names).cast(pa.string())
    return pc.if_else(pc.equal(right, 1), classes, pc.if_else(pc.is_null(right), None, SOMETHING_ELSE))
