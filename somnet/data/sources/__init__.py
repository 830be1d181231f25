"""Data sets on disk, told apart by what is there, or by a name before the path: `mini-webvision:DIR`."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from somnet.data.index import Index
from somnet.data.sources.clothing1m import is_clothing1m, read_clothing1m
from somnet.data.sources.folder import read_folder, refuse_one_class
from somnet.data.sources.food101 import is_food101, is_food101n, read_food101, read_food101n
from somnet.data.sources.huggingface import find_tables, is_table_of_images, read_huggingface
from somnet.data.sources.ilsvrc import is_ilsvrc, read_ilsvrc
from somnet.data.sources.links import refuse_links_out, without_links_out
from somnet.data.sources.manifest import find_manifests, read_manifest, read_manifests
from somnet.data.sources.shards import find_shards, read_shards
from somnet.data.sources.webvision import is_webvision, read_mini_webvision, read_webvision
from somnet.data.sources.zipped import find_zips, read_zips
from somnet.errors import DataError
from somnet.system.files import some
from somnet.system.folders import refuse_cache_inside

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


@dataclass(frozen=True)
class Packed:
    """Images within larger files: how they are read, and which files of a folder are such."""

    read: Callable[[Path], Index]
    find: Callable[[Path], Sequence[Path]]


PACKED: Mapping[str, Packed] = {  # tried last: an archive may lie beside what came out of it
    "shards": Packed(read_shards, find_shards),
    "huggingface": Packed(read_huggingface, find_tables),
    "zip": Packed(read_zips, find_zips),
}


NAMED: Mapping[str, Layout | Packed] = {**LAYOUTS, **PACKED}


def open_source(data: Path, *, follow_links: bool = False) -> Index:
    """List the images of a data set. Nothing is opened yet: files that are not images are found when scanned.

    What links within it lead to outside of it is left out with a reason, unless they are to be followed.
    """
    name, path = split_name(data)
    if not path.exists():
        raise DataError(f"{path} does not exist: {HELP}")
    refuse_cache_inside(path)
    index = _read(path, name, follow_links=follow_links)
    if len(index) == 0:
        told = f" ({some(list(index.passed_over))})" if index.passed_over else ""
        raise DataError(f"{data} contains no images{told}: {HELP}")
    return index


def _read(path: Path, name: str | None, *, follow_links: bool) -> Index:
    if name is not None:
        named = NAMED[name]
        if isinstance(named, Packed):
            return _read_packed(path, named, follow_links=follow_links)
        return _read_layout(path, named, follow_links=follow_links)
    if path.is_file():
        return _read_file(path, follow_links=follow_links)
    if manifests := find_manifests(path):
        if not follow_links:
            refuse_links_out(path, manifests)
        return read_manifests(path, manifests, follow_links=follow_links)
    if layout := next((layout for layout in LAYOUTS.values() if layout.is_here(path)), None):
        return _read_layout(path, layout, follow_links=follow_links)
    index = read_folder(path, follow_links=follow_links)
    if len(index) == 0:
        if packed := next((packed for packed in PACKED.values() if packed.find(path)), None):
            return _read_packed(path, packed, follow_links=follow_links)
        if not index.passed_over:
            refuse_one_class(path)
    return index


def _read_layout(path: Path, layout: Layout, *, follow_links: bool) -> Index:
    index = layout.read(path)
    return index if follow_links else without_links_out(index)


def _read_packed(path: Path, packed: Packed, *, follow_links: bool) -> Index:
    if path.is_dir() and not follow_links:
        refuse_links_out(path, packed.find(path))
    return packed.read(path)


def _read_file(path: Path, *, follow_links: bool) -> Index:
    if path.suffix == ".tar":
        return read_shards(path)
    if path.suffix == ".zip":
        return read_zips(path)
    return read_huggingface(path) if is_table_of_images(path) else read_manifest(path, follow_links=follow_links)


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
