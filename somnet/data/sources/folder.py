"""DIR/<class>/* and DIR/train|val|test/<class>/*."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from somnet.data.index import Index, make_index
from somnet.errors import DataError
from somnet.system.files import display_name

SPLITS = {b"train": "train", b"val": "val", b"validation": "val", b"valid": "val", b"test": "test"}

# What crawlers leave beside images. All other files are tried as images, whatever their name says.
SIDECARS = tuple(
    b".txt .json .jsonl .csv .tsv .xml .html .htm .md .parquet .db .ini .log .py .yaml .yml .toml .zip .tar .gz .npy "
    b".npz".split()
)


def read_folder(root: Path) -> Index:
    """List a folder of class folders, with or without a level of splits above."""
    top = os.fsencode(root)
    folders = _folders(top)
    split_folders = [name for name in folders if name.lower() in SPLITS]
    if split_folders and (len(split_folders) == len(folders) or b"train" in [name.lower() for name in split_folders]):
        splits = [(SPLITS[name.lower()], name) for name in split_folders]
    else:
        splits = [("train", b"")]
    images = [
        (split, class_name, file_name)
        for split, folder in splits
        for class_name in _folders(os.path.join(top, folder))
        for file_name in files_below(top, os.path.join(folder, class_name))
    ]
    classes = sorted({class_name for _, class_name, _ in images})
    number = {class_name: i for i, class_name in enumerate(classes)}
    rows = (
        {"file_name": file_name, "label": number[class_name], "split": split} for split, class_name, file_name in images
    )
    return make_index(root, map(display_name, classes), rows)


def _folders(path: bytes) -> list[bytes]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(b"."))
    except OSError as error:
        _refuse(error)


def _refuse(error: OSError) -> NoReturn:
    """A folder that is passed over in silence would be a class that is missing."""
    name = display_name(os.fsencode(error.filename))
    raise DataError(f"cannot list the folder {name}: {error.strerror}: make it readable, or move it away") from None


def files_below(root: bytes, folder: bytes) -> Iterator[bytes]:
    """Files below a class folder, relative to the root, in a fixed order; links that lead in circles end."""
    visited: set[tuple[int, int]] = set()
    for current, folders, files in os.walk(os.path.join(root, folder), onerror=_refuse, followlinks=True):
        status = os.stat(current)
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith(b"."))
        for name in sorted(files):
            if not name.startswith(b".") and not name.lower().endswith(SIDECARS):
                yield os.path.relpath(os.path.join(current, name), root)
