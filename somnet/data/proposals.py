"""Boxes, hash and quality of every image of a data set: read once on all cores, cached by content and parameters.

The cache is a folder of Parquet files, each written whole or not at all; a kill loses the one that is being written.
A second table remembers size, times and inode of each file, so that an unchanged data set is not even read again.
What pixels are taken from is checked by its content, here and wherever else they are used.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from somnet.config import ProposalConfig
from somnet.data.checked_tables import TABLE, read_checked, write_checked
from somnet.data.decode import read_picture
from somnet.data.duplicates import HASH_BYTES, picture_hash
from somnet.data.edgeboxes import edge_boxes
from somnet.data.index import Index
from somnet.data.location import KEY_BYTES, Location, content_key
from somnet.data.picture_quality import SIDE, STORED, measure_picture
from somnet.errors import UnreadableImage
from somnet.system.files import cache_folder
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

log = logging.getLogger("somnet")

ALGORITHM = 3  # raise it when what is found in an image changes, so that old caches are left behind
FILES_PER_CHUNK = 1024
CHUNKS_AT_ONCE = 64

KEY = pa.binary(KEY_BYTES)

SCAN_SCHEMA = pa.schema(
    [
        ("key", KEY),  # of the file's content
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("boxes", pa.list_(pa.float32())),  # x1 y1 x2 y2, pixels of the upright image, best first
        ("hash", pa.binary(HASH_BYTES)),  # of what the picture shows; null where it shows nothing
        ("quality", pa.list_(pa.float32())),  # measures of the pixels
        ("reason", pa.string()),  # why it cannot be read
    ]
)
STAMP = ("size", "time", "changed", "inode")
FILES_SCHEMA = pa.schema([("file_name", pa.binary()), *((name, pa.int64()) for name in STAMP), ("key", KEY)])
NO_STAMP = (-1, -1, -1, -1)
SETTLED_NS = 2_000_000_000  # what was changed less than this ago may change again without a trace

Stamp = tuple[int, int, int, int]

WHOLE = (0.0, 0.0, 1.0, 1.0)  # the view of a whole image


@dataclass(frozen=True)
class Scan:
    """What the images of an index contain: one row each, in the index's order.

    Texts are Arrow arrays: of Python objects every worker process would soon have a copy, as counting references
    writes to them.
    """

    keys: pa.Array  # (n,) of the content; null where there is no file
    sizes: NDArray[np.int32]  # (n, 2) width and height of the upright image
    boxes: NDArray[np.float32]  # (n, max_boxes, 4) shares of width and height, zero where padded
    counts: NDArray[np.int64]  # (n,) boxes found
    reasons: pa.Array  # (n,) why an image cannot be used; null where it can
    hashes: pa.Array  # (n,) of what a picture shows; null where that cannot be told
    quality: NDArray[np.float32]  # (n, 5) measures of the pixels, see picture_quality.py

    def readable(self) -> NDArray[np.int64]:
        """Rows that can be used."""
        return np.flatnonzero(self.reasons.is_null())

    def take(self, rows: NDArray[np.int64]) -> "Scan":
        """Some rows."""
        keys, reasons, hashes = (column.take(pa.array(rows)) for column in (self.keys, self.reasons, self.hashes))
        numbers = self.sizes[rows], self.boxes[rows], self.counts[rows]
        return Scan(keys, *numbers, reasons, hashes, self.quality[rows])


def scan(index: Index, config: ProposalConfig, workers: int | None = None, *, share: str = "") -> Scan:
    """Try every image and find its boxes, as far as the cache does not have them.

    Processes that each scan a share of a data set name their shares; a scan of the whole puts them together.
    """
    keys, reasons = content_keys(index, workers, share)
    folder = scan_folder(config)
    gathered = _Gathered(keys, reasons, config.max_boxes)
    for table in _read_chunks(folder):
        gathered.add(table)
    missing = gathered.missing()
    if len(missing):
        tasks = [(keys[row].as_py(), index.location(row)) for row in missing.tolist()]
        stage = "finding boxes" if config.max_boxes else "reading images"
        with track(stage, len(tasks)) as advance, _ChunkWriter(folder) as writer:
            for rows in on_all_cores(_Propose(config), tasks, workers, in_order=False):
                writer.add(rows)
                advance(len(rows))
        for start in range(0, len(writer.tables), CHUNKS_AT_ONCE):
            gathered.add(pa.concat_tables(writer.tables[start : start + CHUNKS_AT_ONCE]))
    return gathered.scan()


def scan_folder(config: ProposalConfig) -> Path:
    """Where the cache keeps what was found in images with these parameters."""
    parameters = {"algorithm": ALGORITHM, **config.model_dump()}
    name = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "proposals" / name


def files_table(root: Path) -> Path:
    """Where the cache remembers the files of a data set."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(root))).hexdigest()[:16]
    return cache_folder() / "files" / f"{name}{TABLE}"


@dataclass(frozen=True)
class _Propose:
    """What a worker does to a file: read it, find its boxes and its hash, measure its quality."""

    config: ProposalConfig

    def __call__(self, task: tuple[bytes, Location]) -> dict[str, Any]:
        key, location = task
        try:
            picture = read_picture(location, at_least=max(self.config.edge_side, SIDE), key=key)
        except UnreadableImage as error:
            return {"key": key, "width": 0, "height": 0, "boxes": [], "reason": str(error)}
        boxes = edge_boxes(
            picture.image,
            max_boxes=self.config.max_boxes,
            min_area=self.config.min_area,
            edge_side=self.config.edge_side,
        )[:, :4]
        scale = np.array([picture.width / picture.image.width, picture.height / picture.image.height] * 2)
        pixels = (boxes * scale).ravel().tolist()
        return {
            "key": key,
            "width": picture.width,
            "height": picture.height,
            "boxes": pixels,
            "hash": picture_hash(picture.image),
            "quality": measure_picture(picture.image),
            "reason": None,
        }


def _fingerprint(location: Location) -> tuple[bytes | None, Stamp, str | None]:
    """Key and stamp of an image, or the reason why there is none."""
    try:
        stamp = _stamp(location)  # first: of a file that is changed meanwhile it is an old one
        with location.open() as stream:
            return content_key(stream), stamp, None
    except UnreadableImage as error:
        return None, NO_STAMP, str(error)
    except OSError as error:
        return None, NO_STAMP, f"cannot be read: {error.strerror}"


def _stamp(location: Location) -> Stamp:
    """What tells that a file has been changed, replaced or restored, without reading it.

    Sizes and times can be alike, as after cp -p, rsync or tar. The time of a file's last change of any kind (ctime) is
    the kernel's alone, and a file of another inode is another file. What was changed a moment ago gets a stamp that
    nothing is equal to: it could change again within a tick of the clock.
    """
    status = os.stat(location.path)
    size = status.st_size if location.size is None else location.size
    if time.time_ns() - max(status.st_ctime_ns, status.st_mtime_ns) < SETTLED_NS:
        return size, status.st_mtime_ns, time.time_ns(), -1
    return size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino & (2**63 - 1)


def content_keys(index: Index, workers: int | None = None, share: str = "") -> tuple[pa.Array, pa.Array]:
    """Content key of each file, from the table of known files or by reading it; and why there is none."""
    names, reasons = (index.table[name].combine_chunks() for name in ("file_name", "problem"))
    table_file = files_table(index.root)
    known = _known_files(table_file, put_together=not share).combine_chunks()
    listed = np.asarray(reasons.is_null())  # (n,) files that may be there
    now = np.tile(np.array(NO_STAMP), (len(index), 1))  # (n, 4)
    for row, location in enumerate(index.locations()):
        with contextlib.suppress(OSError):  # reading it will tell why
            now[row] = _stamp(location) if listed[row] else NO_STAMP
    place = pc.index_in(names, value_set=known["file_name"].combine_chunks())  # (n,) in the table; null: not in it
    before = np.column_stack([known[name].take(place).fill_null(-2).to_numpy() for name in STAMP])  # (n, 4)
    same = listed & (before == now).all(axis=1)
    keys = known["key"].take(pc.if_else(pa.array(same), place, None)).combine_chunks()
    to_read = np.flatnonzero(listed & ~same)
    if len(to_read):
        new_keys: list[bytes | None] = []
        new_reasons: list[str | None] = []
        with track("reading files", len(to_read)) as advance:
            for chunk in on_all_cores(_fingerprint, [index.location(row) for row in to_read.tolist()], workers):
                for key, stamp, reason in chunk:
                    now[to_read[len(new_keys)]] = stamp
                    new_keys.append(key)
                    new_reasons.append(reason)
                advance(len(chunk))
        mask = pa.array(listed & ~same)
        keys = pc.replace_with_mask(keys, mask, pa.array(new_keys, KEY))
        reasons = pc.replace_with_mask(reasons, mask, pa.array(new_reasons, pa.string()))
        read = pa.table([names, *map(pa.array, now.T), keys], schema=FILES_SCHEMA).filter(
            pc.and_(mask, keys.is_valid())
        )
        write_checked(
            _share_file(table_file, share) if share else table_file, read if share else _replaced(known, read)
        )
    return keys, reasons


def _known_files(table_file: Path, *, put_together: bool) -> pa.Table:
    """The table of known files; those of the ranks' shares are merged into it if they are to be put together."""
    known = read_checked(table_file, FILES_SCHEMA)
    shares = sorted(table_file.parent.glob(_share_file(table_file, "*").name)) if put_together else []
    for file in shares:
        known = _replaced(known, read_checked(file, FILES_SCHEMA))
    if shares:
        write_checked(table_file, known)
    for file in shares:
        file.unlink(missing_ok=True)
    return known


def _share_file(table_file: Path, share: str) -> Path:
    return table_file.with_stem(f"{table_file.stem}-{share}")


def _replaced(known: pa.Table, newer: pa.Table) -> pa.Table:
    """A table of known files in which newer rows take the place of older ones."""
    kept = known.filter(pc.invert(pc.is_in(known["file_name"], value_set=newer["file_name"].combine_chunks())))
    return pa.concat_tables([kept, newer])


class _Gathered:
    """What is known of the images of an index, table by table of the cache: all at once would not fit into memory."""

    def __init__(self, keys: pa.Array, reasons: pa.Array, max_boxes: int) -> None:
        self.keys, self.reasons, self.hashes = keys, reasons, pa.nulls(len(keys), pa.binary(HASH_BYTES))
        self.known = np.zeros(len(keys), bool)
        self.sizes = np.zeros((len(keys), 2), np.int32)
        self.boxes = np.zeros((len(keys), max_boxes, 4), np.float32)
        self.counts = np.zeros(len(keys), np.int64)
        self.quality = np.zeros((len(keys), STORED), np.float32)

    def add(self, table: pa.Table) -> None:
        """Take the rows whose keys are asked for."""
        place = pc.index_in(self.keys, value_set=table["key"].combine_chunks())  # (n,) in the table; null: not in it
        here = place.is_valid()
        rows = np.flatnonzero(here)
        matches = table.take(place.drop_null()).combine_chunks()
        self.known[rows] = True
        sizes = np.column_stack([matches["width"], matches["height"]])  # (I, 2)
        counts = pc.list_value_length(matches["boxes"]).to_numpy() // 4  # (I,)
        pixels = matches["boxes"].combine_chunks().flatten().to_numpy().reshape(-1, 4)  # (R, 4) of all images
        boxes = np.zeros((len(rows), *self.boxes.shape[1:]), np.float32)  # (I, max_boxes, 4)
        boxes[np.arange(boxes.shape[1]) < counts[:, None]] = pixels / np.tile(sizes, 2).repeat(counts, axis=0)
        self.sizes[rows], self.counts[rows], self.boxes[rows] = sizes, counts, boxes
        measured = matches["quality"].is_valid().to_numpy()  # not of what cannot be read
        self.quality[rows[measured]] = matches["quality"].combine_chunks().flatten().to_numpy().reshape(-1, STORED)
        self.hashes = pc.replace_with_mask(self.hashes, here, matches["hash"].combine_chunks())
        self.reasons = pc.coalesce(self.reasons, table["reason"].take(place).combine_chunks())

    def missing(self) -> NDArray[np.int64]:
        """Rows of which nothing is known yet; of equal keys only the first."""
        rows = np.flatnonzero(np.asarray(self.keys.is_valid()) & ~self.known)
        number = self.keys.take(pa.array(rows)).dictionary_encode().indices.to_numpy()  # equal for equal keys
        return np.asarray(rows[np.unique(number, return_index=True)[1]], np.int64)

    def scan(self) -> Scan:
        """All of it."""
        return Scan(self.keys, self.sizes, self.boxes, self.counts, self.reasons, self.hashes, self.quality)


def _read_chunks(folder: Path) -> Iterator[pa.Table]:
    """The cache, some files at a time."""
    files = sorted(folder.glob(f"*{TABLE}"))
    for start in range(0, len(files), CHUNKS_AT_ONCE):
        yield pa.concat_tables([read_checked(file, SCAN_SCHEMA) for file in files[start : start + CHUNKS_AT_ONCE]])


class _ChunkWriter:
    """Collects rows into files of the cache; what is there when the work ends or is interrupted is written too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self.tables: list[pa.Table] = []  # all that was added

    def __enter__(self) -> "_ChunkWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, rows: list[dict[str, Any]]) -> None:
        self.rows.extend(rows)
        if len(self.rows) >= FILES_PER_CHUNK:
            self._write()

    def _write(self) -> None:
        table = pa.Table.from_pylist(self.rows, schema=SCAN_SCHEMA)
        good = table.filter(table["reason"].is_null())  # a bad file may be fixed by now, or memory was short
        if len(good):
            name = hashlib.sha256(b"".join(sorted(good["key"].to_pylist()))).hexdigest()[:16]
            write_checked(self.folder / f"{name}{TABLE}", good)
        self.tables.append(table)
        self.rows = []
