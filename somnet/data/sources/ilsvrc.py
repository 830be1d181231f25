"""The validation images of ILSVRC-2012, to test on, in all the ways in which people keep them."""

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from somnet.data.index import Index, index_from_columns
from somnet.data.sources.folder import files_below
from somnet.data.sources.lists import check_labels, need_folders, prefixed, read_list, refuse_paths_outside, repeated
from somnet.errors import DataError

IMAGES = ("val", "ILSVRC2012_img_val", ".")  # folders in which the images may be
DEVKITS = ("ILSVRC2012_devkit_t12", "devkit", ".")
TRUTH, META = "data/ILSVRC2012_validation_ground_truth.txt", "data/meta.mat"
FIRST = "ILSVRC2012_val_00000001.JPEG"
WAYS = (
    f"unpack the images and ILSVRC2012_devkit_t12 side by side, or have folders val/<wnid>/ or val/<label>/, or a text "
    f"file val.txt with lines '{FIRST} 65', labels being rows of the sorted WNIDs, from 0"
)


def is_ilsvrc(root: Path) -> bool:
    """Whether a folder has the development kit or an image under its own name."""
    return any((root / kit / TRUTH).is_file() for kit in DEVKITS) or any(
        (root / folder / FIRST).is_file() for folder in IMAGES
    )


def read_ilsvrc(root: Path) -> Index:
    """The validation images as test images; classes are WNIDs, as those of WebVision are."""
    from timm.data.imagenet_info import ImageNetInfo  # here: it brings torch along, which others need not wait for

    info: Any = ImageNetInfo()
    wnids: list[str] = info.label_names()  # sorted
    folder = next(name for name in IMAGES if (root / name).is_dir())
    if labelled := _class_folders(root / folder, wnids):
        index = _from_folders(root, folder, labelled, wnids)
    elif kit := next((root / name for name in DEVKITS if (root / name / TRUTH).is_file()), None):
        index = _from_devkit(root, folder, kit, wnids)
    elif listed := next((file for file in sorted(root.glob("*val*.txt")) if file.is_file()), None):
        index = _from_list(root, folder, listed, wnids)
    else:
        raise DataError(f"{root} does not say which class its images have: {WAYS}")
    need_folders(root, index.table["file_name"], "the ILSVRC-2012 validation set")
    return index


def _class_folders(images: Path, wnids: list[str]) -> dict[str, int]:
    """Label of each class folder: a WNID, or a row of the sorted ones."""
    rows = {wnid: row for row, wnid in enumerate(wnids)}
    names = sorted(entry.name for entry in os.scandir(images) if entry.is_dir() and not entry.name.startswith("."))
    if all(re.fullmatch(r"[0-9]{1,4}", name) and int(name) < len(wnids) for name in names):
        return {name: int(name) for name in names}
    if wrong := [name for name in names if re.fullmatch(r"n[0-9]{8}", name) and name not in rows]:
        raise DataError(f"{images / wrong[0]} is not a class of ILSVRC-2012: remove the folder")
    return {name: rows[name] for name in names if name in rows}


def _from_folders(root: Path, folder: str, labelled: dict[str, int], wnids: list[str]) -> Index:
    top = os.fsencode(root)
    names, labels = [], []
    for name, label in labelled.items():
        files = list(files_below(top, os.fsencode(os.path.join(folder, name)), follow_links=True))
        names.extend(files)
        labels.extend([label] * len(files))
    return _index(root, pa.chunked_array([names], pa.binary()), pa.chunked_array([labels], pa.int32()), wnids)


def _from_devkit(root: Path, folder: str, kit: Path, wnids: list[str]) -> Index:
    """Line n of the truth is the ID of image n, and the ID leads to the WNID: IDs are not in the order of WNIDs."""
    ids = read_list(kit / TRUTH, [("id", pa.int32())])["id"].to_pylist()
    rows = {wnid: row for row, wnid in enumerate(wnids)}
    try:
        from scipy.io import loadmat  # slow to load, and few have this data set

        synsets = loadmat(kit / META, squeeze_me=True)["synsets"]
        row_of = {int(synset["ILSVRC2012_ID"]): rows.get(str(synset["WNID"])) for synset in synsets}
    except Exception as error:  # its reader raises nearly every built-in exception on some broken file
        raise DataError(f"cannot read {kit / META} ({error}): unpack the development kit again") from None
    if unknown := next((number for number in ids if row_of.get(number) is None), None):
        raise DataError(f"{kit / TRUTH} has the ID {unknown}, for which {META} has no class: unpack the kit again")
    numbers = pa.chunked_array(
        [[b"ILSVRC2012_val_%08d.JPEG" % number for number in range(1, len(ids) + 1)]], pa.binary()
    )
    labels = pa.chunked_array([[row_of[number] for number in ids]], pa.int32())
    return _index(root, _below(folder, numbers), labels, wnids)


def _from_list(root: Path, folder: str, file: Path, wnids: list[str]) -> Index:
    listed = read_list(file, [("name", pa.binary()), ("label", pa.int32())])
    check_labels(file, listed["label"], len(wnids))
    refuse_paths_outside(file, listed["name"])
    beside = (root / os.fsdecode(listed["name"][0].as_py())).exists()  # names may have the folder in them, or not
    return _index(root, listed["name"] if beside else _below(folder, listed["name"]), listed["label"], wnids)


def _below(folder: str, names: pa.ChunkedArray) -> pa.ChunkedArray:
    return names if folder == "." else prefixed(f"{folder}/".encode(), names)


def _index(root: Path, names: pa.ChunkedArray, labels: pa.ChunkedArray, wnids: list[str]) -> Index:
    columns = {"file_name": names, "label": labels, "split": repeated("test", len(names))}
    return index_from_columns(root, wnids, columns)
