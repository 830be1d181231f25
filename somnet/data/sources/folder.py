"""DIR/<class>/* and DIR/train|val|test/<class>/*."""

import itertools
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from somnet.data.decode import read_picture
from somnet.data.index import Index, make_index
from somnet.data.sources.links import LEADS_OUT, leads_out
from somnet.errors import DataError, UnreadableImage
from somnet.system.files import display_name

SPLITS = {b"train": "train", b"val": "val", b"validation": "val", b"valid": "val", b"test": "test"}

HIDDEN = "hidden: its name begins with a dot"  # why a folder with images is left out
BESIDE = "it lies beside the folder train, not in it"
MOST_TRIED = 20  # files that are opened to see whether a folder has images

# What crawlers leave beside images. All other files are tried as images, whatever their name says.
SIDECARS = tuple(
    b".txt .json .jsonl .csv .tsv .xml .html .htm .md .parquet .db .ini .log .py .yaml .yml .toml .zip .tar .gz .npy "
    b".npz .arrow".split()
)


IMAGES = (b".jpg", b".jpeg", b".png", b".webp", b".avif", b".heic")  # by name alone: they are not opened
ARCHIVES = (b".zip", b".tar", b".tar.gz", b".tgz", b".7z", b".rar")


def read_folder(root: Path, *, follow_links: bool = False) -> Index:
    """List a folder of class folders, with or without a level of splits above."""
    top = os.fsencode(root)
    real_top = os.path.realpath(top)
    folders = folders_in(top)
    splits = [(SPLITS[name.lower()], name) for name in split_folders(folders)] or [("train", b"")]
    images: list[tuple[str, bytes, bytes, str | None]] = []
    empty, passed_over = [], _passed_over(top, [folder for _, folder in splits])
    for split, folder in splits:
        for class_name in folders_in(os.path.join(top, folder)):
            place = os.path.join(folder, class_name)
            if not follow_links and leads_out(real_top, os.path.join(top, place)):
                passed_over.append(f"'{display_name(place)}' ({LEADS_OUT})")
                continue
            links: list[bytes] = []
            found = list(files_below(top, place, follow_links=follow_links, left_out=links))
            images += [(split, class_name, file_name, None) for file_name in found]
            images += [(split, class_name, file_name, LEADS_OUT) for file_name in links]
            if not found and not links:
                empty.append(display_name(place))
    classes = sorted({class_name for _, class_name, _, _ in images})
    number = {class_name: i for i, class_name in enumerate(classes)}
    rows = (
        {"file_name": file_name, "label": number[class_name], "split": split, "problem": problem}
        for split, class_name, file_name, problem in images
    )
    index = make_index(root, map(display_name, classes), rows)
    beside = tuple(map(display_name, files_beside(top, folders)))
    return replace(index, empty=tuple(empty), beside=beside, passed_over=tuple(passed_over))


def files_beside(top: bytes, folders: Collection[bytes]) -> list[bytes]:
    """Images and archives beside the folders, which somebody may have meant as classes; not what was unpacked there."""
    with os.scandir(top) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file() and not entry.name.startswith(b"."))
    unpacked = {name.lower() for name in folders}
    return [
        name
        for name in names
        if name.lower().endswith(IMAGES)
        or (name.lower().endswith(ARCHIVES) and name.lower().partition(b".")[0] not in unpacked)
    ]


def _passed_over(top: bytes, splits: list[bytes]) -> list[str]:
    """Folders that have images and are no classes, each with the reason: nobody shall miss a class unawares."""
    hidden = [os.path.join(split, name) for split in splits for name in _folders(os.path.join(top, split), hidden=True)]
    beside = [name for name in folders_in(top) if name not in splits] if splits != [b""] else []
    reasons = dict.fromkeys(hidden, HIDDEN) | dict.fromkeys(beside, BESIDE)
    return [f"'{display_name(name)}' ({reason})" for name, reason in reasons.items() if _has_images(top, name)]


def _has_images(top: bytes, folder: bytes) -> bool:
    files = itertools.islice(files_below(top, folder), MOST_TRIED)
    return any(_is_image(os.path.join(top, file)) for file in files)


def split_folders(folders: Collection[bytes]) -> list[bytes]:
    """Which of the topmost folders are splits: none where a class may be called `test`."""
    splits = [name for name in folders if name.lower() in SPLITS]
    return splits if len(splits) == len(folders) or b"train" in [name.lower() for name in splits] else []


def refuse_one_class(root: Path) -> None:
    """Refuse a folder that has images itself, and none in folders of its own: somebody has given a single class."""
    with os.scandir(os.fsencode(root)) as entries:
        files = sorted(entry.path for entry in entries if is_candidate(entry.name) and entry.is_file())
    if not any(_is_image(file) for file in files[:MOST_TRIED]):
        return
    parent = Path(os.path.abspath(root)).parent
    whole = parent.parent if os.fsencode(parent.name.lower()) in SPLITS else parent
    raise DataError(
        f"{root} has images, but no class folders, as if it were a single class: give its parent, {whole}, or put the "
        "images of each class into a folder of its own"
    )


def is_candidate(name: bytes) -> bool:
    """Whether a file may be an image, by its name: it is not hidden, and nothing that lies beside images."""
    return not name.startswith(b".") and not name.lower().endswith(SIDECARS)


def _is_image(file: bytes) -> bool:
    try:
        read_picture(os.fsdecode(file), at_least=1)
    except UnreadableImage:
        return False
    return True


def folders_in(path: bytes) -> list[bytes]:
    """Names of the folders in a folder, hidden ones left out."""
    return _folders(path, hidden=False)


def _folders(path: bytes, *, hidden: bool) -> list[bytes]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and entry.name.startswith(b".") is hidden)
    except OSError as error:
        _refuse(error)


def _refuse(error: OSError) -> NoReturn:
    """A folder that is passed over in silence would be a class that is missing."""
    name = display_name(os.fsencode(error.filename))
    raise DataError(f"cannot list the folder {name}: {error.strerror}: make it readable, or move it away") from None


def files_below(
    root: bytes, folder: bytes, *, follow_links: bool = False, left_out: list[bytes] | None = None
) -> Iterator[bytes]:
    """Files below a class folder, relative to the root, in a fixed order; links that lead in circles end.

    Links that lead out of the root, to files or to folders, are followed only if asked to; else their names are added
    to `left_out`.
    """
    visited: set[tuple[int, int]] = set()
    real_root = os.path.realpath(root)

    def is_left_out(path: bytes) -> bool:
        if follow_links or not os.path.islink(path) or not leads_out(real_root, path):
            return False
        if left_out is not None:
            left_out.append(os.path.relpath(path, root))
        return True

    for current, folders, files in os.walk(os.path.join(root, folder), onerror=_refuse, followlinks=True):
        status = os.stat(current)
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        seen = sorted(name for name in folders if not name.startswith(b"."))
        folders[:] = [name for name in seen if not is_left_out(os.path.join(current, name))]
        for name in sorted(filter(is_candidate, files)):
            if not is_left_out(path := os.path.join(current, name)):
                yield os.path.relpath(path, root)
