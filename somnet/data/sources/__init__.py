"""Data sets on disk, told apart by what is there, or by a name before the path: `mini-webvision:DIR`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from somnet.data.index import Index
from somnet.data.sources.clothing1m import is_clothing1m, read_clothing1m
from somnet.data.sources.folder import read_folder, refuse_one_class
from somnet.data.sources.food101 import is_food101, is_food101n, read_food101, read_food101n
from somnet.data.sources.huggingface import find_tables, is_table_of_images, read_huggingface
from somnet.data.sources.ilsvrc import is_ilsvrc, read_ilsvrc
from somnet.data.sources.manifest import find_manifests, read_manifest, read_manifests
from somnet.data.sources.shards import find_shards, read_shards
from somnet.data.sources.webvision import is_webvision, read_mini_webvision, read_webvision
from somnet.data.sources.zipped import find_zips, read_zips
from somnet.errors import DataError

HELP = (
    "give a folder with one sub-folder of images per class, the same under train/ and test/, a zip file of that, or a "
    "metadata.csv, .jsonl or .parquet manifest with the columns file_name and label; docs/data.md has all that is read"
)


@dataclass(frozen=True)
class Layout:
    """A data set that is not simply folders of classes: how it is read, and how its folder is recognised."""

    read: Callable[[Path], Index]
    is_here: Callable[[Path], bool]


LAYOUTS: Mapping[str, Layout] = {  # recognised in this order
    "clothing1m": Layout(read_clothing1m, is_clothing1m),
    "food101n": Layout(read_food101n, is_food101n),
    "food101": Layout(read_food101, is_food101),
    "webvision": Layout(read_webvision, is_webvision),
    "mini-webvision": Layout(
        read_mini_webvision, lambda _: False
    ),  # a part of the former, which only a name can ask for
    "ilsvrc": Layout(read_ilsvrc, is_ilsvrc),
}
PACKED: Mapping[str, Layout] = {  # the same for images within larger files: an archive may lie beside what came out
    "shards": Layout(read_shards, lambda root: bool(find_shards(root))),
    "huggingface": Layout(read_huggingface, lambda root: bool(find_tables(root))),
    "zip": Layout(read_zips, lambda root: bool(find_zips(root))),
}
NAMED = {**LAYOUTS, **PACKED}


def open_source(data: Path) -> Index:
    """List the images of a data set. Nothing is opened yet: files that are not images are found when scanned."""
    layout, path = split_name(data)
    if not path.exists():
        raise DataError(f"{path} does not exist: {HELP}")
    index = NAMED[layout].read(path) if layout else _read_whatever_is_there(path)
    if len(index) == 0:
        raise DataError(f"{data} contains no images: {HELP}")
    return index


def _read_whatever_is_there(path: Path) -> Index:
    if path.is_file():
        return _read_file(path)
    if manifests := find_manifests(path):
        return read_manifests(path, manifests)
    if layout := next((layout for layout in LAYOUTS.values() if layout.is_here(path)), None):
        return layout.read(path)
    index = read_folder(path)
    if len(index) == 0:
        if packed := next((layout for layout in PACKED.values() if layout.is_here(path)), None):
            return packed.read(path)
        refuse_one_class(path)
    return index


def _read_file(path: Path) -> Index:
    if path.suffix == ".tar":
        return read_shards(path)
    if path.suffix == ".zip":
        return read_zips(path)
    return read_huggingface(path) if is_table_of_images(path) else read_manifest(path)


def split_name(data: Path) -> tuple[str | None, Path]:
    """The name of a layout, where one is given before the path, and the path."""
    name, colon, rest = str(data).partition(":")
    if not colon or name not in NAMED or data.exists():
        return None, data
    return name, Path(rest or ".")


def absolute(data: Path) -> str:
    """The same data set, named from anywhere."""
    name, path = split_name(data)
    return (f"{name}:" if name else "") + os.path.abspath(path)
