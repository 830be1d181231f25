"""WebVision 1.0: 2.4 million images that Google and Flickr found for the 1,000 classes of ILSVRC-2012."""

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

GOOGLE, FLICKR, ALL = (f"info/train_filelist_{origin}.txt" for origin in ("google", "flickr", "all"))
SYNSETS, VALIDATION, QUERIES = "info/synsets.txt", "info/val_filelist.txt", "info/queries_synsets_map.txt"
MINI_CLASSES = 50


def is_webvision(root: Path) -> bool:
    """Whether a folder has any of the lists of WebVision."""
    return any((root / name).is_file() for name in (GOOGLE, FLICKR, ALL, SYNSETS, VALIDATION))


def read_webvision(root: Path) -> Index:
    """All training images, and the validation images."""
    lists = (ALL,) if (root / ALL).is_file() and not (root / GOOGLE).is_file() else (GOOGLE, FLICKR)
    return _read(root, lists, None)


def read_mini_webvision(root: Path) -> Index:
    """The images that Google found for the first 50 classes, and their validation images."""
    return _read(root, (GOOGLE,), MINI_CLASSES)


def _read(root: Path, lists: tuple[str, ...], first: int | None) -> Index:
    need(root, (SYNSETS, *lists, VALIDATION, "val_images_256"), "WebVision")
    wnids = [line.partition(" ")[0] for line in class_names(root / SYNSETS)]
    classes = wnids[:first]
    train = [_read_list(root, name, b"", "train", wnids, classes) for name in lists]
    _check_queries(root, train)
    whole = join_indexes(
        root, classes, [*train, _read_list(root, VALIDATION, b"val_images_256/", "val", wnids, classes)]
    )
    need_folders(root, whole.table["file_name"], "WebVision")
    return whole


def _read_list(root: Path, name: str, folder: bytes, split: str, wnids: list[str], classes: list[str]) -> Index:
    listed = read_list(root / name, [("name", pa.binary()), ("label", pa.int32())])
    check_labels(root / name, listed["label"], len(wnids))
    listed = listed.filter(pc.less(listed["label"], len(classes)))
    refuse_paths_outside(root / name, listed["name"])
    columns = {
        "file_name": prefixed(folder, listed["name"]),
        "label": listed["label"],
        "split": repeated(split, len(listed)),
    }
    return index_from_columns(root, classes, columns)


def _check_queries(root: Path, train: list[Index]) -> None:
    """The folder of an image is the query that found it, and names its class too: from 1, where labels are from 0."""
    if not (root / QUERIES).is_file():
        return
    queries = read_list(root / QUERIES, [("query", pa.int32()), ("synset", pa.int32())])
    class_of = dict(zip(queries["query"].to_pylist(), queries["synset"].to_pylist(), strict=True))
    for index in train:
        folders = pc.extract_regex(index.table["file_name"].cast(pa.string()), r"/q(?P<query>[0-9]+)/")
        pairs = pa.table({"query": pc.struct_field(folders, "query"), "label": index.table["label"]})
        for pair in pairs.group_by(["query", "label"]).aggregate([]).to_pylist():
            synset = class_of.get(int(pair["query"])) if pair["query"] else None
            if synset is not None and synset - 1 != pair["label"]:
                raise DataError(
                    f"{root} contradicts itself: images of the query q{pair['query']} have label {pair['label']}, but "
                    f"{QUERIES} says {synset - 1}: use the info folder that came with the images"
                )
