"""Boxes and hash of every image of a data set: read once on all cores, cached by content and parameters.

The cache is a folder of Parquet files, each written whole or not at all; a kill loses the one that is being written.
A second table remembers size and time of each file, so that an unchanged data set is not even read again.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from somnet.config import ProposalConfig
from somnet.data.decode import read_picture
from somnet.data.duplicates import HASH_BYTES, picture_hash
from somnet.data.edgeboxes import edge_boxes
from somnet.data.index import Index
from somnet.data.location import Location
from somnet.errors import UnreadableImage
from somnet.system.files import atomic_path, cache_folder
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

log = logging.getLogger("somnet")

ALGORITHM = 2  # raise it when what is found in an image changes, so that old caches are left behind
FILES_PER_CHUNK = 1024
CHUNKS_AT_ONCE = 64

KEY = pa.binary(16)

SCAN_SCHEMA = pa.schema(
    [
        ("key", KEY),  # of the file's content
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("boxes", pa.list_(pa.float32())),  # x1 y1 x2 y2, pixels of the upright image, best first
        ("hash", pa.binary(HASH_BYTES)),  # of what the picture shows; null where it shows nothing
        ("reason", pa.string()),  # why it cannot be read
    ]
)
FILES_SCHEMA = pa.schema([("file_name", pa.binary()), ("size", pa.int64()), ("time", pa.int64()), ("key", KEY)])

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

    def readable(self) -> NDArray[np.int64]:
        """Rows that can be used."""
        return np.flatnonzero(self.reasons.is_null())

    def take(self, rows: NDArray[np.int64]) -> "Scan":
        """Some rows."""
        keys, reasons, hashes = (column.take(pa.array(rows)) for column in (self.keys, self.reasons, self.hashes))
        return Scan(keys, self.sizes[rows], self.boxes[rows], self.counts[rows], reasons, hashes)


def scan(index: Index, config: ProposalConfig, workers: int | None = None, *, share: str = "") -> Scan:
    """Try every image and find its boxes, as far as the cache does not have them.

    Processes that each scan a share of a data set name their shares; a scan of the whole puts them together.
    """
    keys, reasons = _content_keys(index, workers, share)
    folder = scan_folder(config)
    gathered = _Gathered(keys, reasons, config.max_boxes)
    for table in _read_chunks(folder):
        gathered.add(table)
    missing = gathered.missing()
    if len(missing):
        tasks = [(keys[row].as_py(), index.location(row)) for row in missing.tolist()]
        with track("finding boxes", len(tasks)) as advance, _ChunkWriter(folder) as writer:
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
    return cache_folder() / "files" / f"{name}.parquet"


@dataclass(frozen=True)
class _Propose:
    """What a worker does to a file: read it, find its boxes and its hash."""

    config: ProposalConfig

    def __call__(self, task: tuple[bytes, Location]) -> dict[str, Any]:
        key, location = task
        try:
            picture = read_picture(location, at_least=self.config.edge_side)
        except UnreadableImage as error:
            return {"key": key, "width": 0, "height": 0, "boxes": [], "hash": None, "reason": str(error)}
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
            "reason": None,
        }


def _fingerprint(location: Location) -> tuple[bytes | None, int, int, str | None]:
    """Key, size and time of an image, or the reason why there is none."""
    try:
        with location.open() as stream:
            size, time = _size_and_time(location)
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()
    except UnreadableImage as error:
        return None, 0, 0, str(error)
    except OSError as error:
        return None, 0, 0, f"cannot be read: {error.strerror}"
    return digest, size, time, None


def _size_and_time(location: Location) -> tuple[int, int]:
    """What tells a changed image: its bytes, and the time of the file that holds it."""
    status = os.stat(location.path)
    return (status.st_size if location.size is None else location.size), status.st_mtime_ns


def _content_keys(index: Index, workers: int | None, share: str) -> tuple[pa.Array, pa.Array]:
    """Content key of each file, from the table of known files or by reading it; and why there is none."""
    names, reasons = (index.table[name].combine_chunks() for name in ("file_name", "problem"))
    table_file = files_table(index.root)
    known = _known_files(table_file, put_together=not share).combine_chunks()
    listed = np.asarray(reasons.is_null())  # (n,) files that may be there
    now = np.full((len(index), 2), -1, np.int64)  # (n, 2) size and time
    for row, location in enumerate(index.locations()):
        with contextlib.suppress(OSError):  # reading it will tell why
            now[row] = _size_and_time(location) if listed[row] else -1
    place = pc.index_in(names, value_set=known["file_name"].combine_chunks())  # (n,) in the table; null: not in it
    before = np.column_stack([known[name].take(place).fill_null(-2).to_numpy() for name in ("size", "time")])  # (n, 2)
    same = listed & (before == now).all(axis=1)
    keys = known["key"].take(pc.if_else(pa.array(same), place, None)).combine_chunks()
    to_read = np.flatnonzero(listed & ~same)
    if len(to_read):
        new_keys: list[bytes | None] = []
        new_reasons: list[str | None] = []
        with track("reading files", len(to_read)) as advance:
            for chunk in on_all_cores(_fingerprint, [index.location(row) for row in to_read.tolist()], workers):
                for key, size, time, reason in chunk:
                    now[to_read[len(new_keys)]] = size, time
                    new_keys.append(key)
                    new_reasons.append(reason)
                advance(len(chunk))
        mask = pa.array(listed & ~same)
        keys = pc.replace_with_mask(keys, mask, pa.array(new_keys, KEY))
        reasons = pc.replace_with_mask(reasons, mask, pa.array(new_reasons, pa.string()))
        read = pa.table([names, *map(pa.array, now.T), keys], schema=FILES_SCHEMA).filter(
            pc.and_(mask, keys.is_valid())
        )
        with atomic_path(_share_file(table_file, share) if share else table_file) as temporary:
            pq.write_table(read if share else _replaced(known, read), temporary)
    return keys, reasons


def _known_files(table_file: Path, *, put_together: bool) -> pa.Table:
    """The table of known files; those of the ranks' shares are merged into it if they are to be put together."""
    known = _read_table(table_file, FILES_SCHEMA)
    shares = sorted(table_file.parent.glob(_share_file(table_file, "*").name)) if put_together else []
    for file in shares:
        known = _replaced(known, _read_table(file, FILES_SCHEMA))
    if shares:
        with atomic_path(table_file) as temporary:
            pq.write_table(known, temporary)
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
        self.hashes = pc.replace_with_mask(self.hashes, here, matches["hash"].combine_chunks())
        self.reasons = pc.coalesce(self.reasons, table["reason"].take(place).combine_chunks())

    def missing(self) -> NDArray[np.int64]:
        """Rows of which nothing is known yet; of equal keys only the first."""
        rows = np.flatnonzero(np.asarray(self.keys.is_valid()) & ~self.known)
        number = self.keys.take(pa.array(rows)).dictionary_encode().indices.to_numpy()  # equal for equal keys
        return np.asarray(rows[np.unique(number, return_index=True)[1]], np.int64)

    def scan(self) -> Scan:
        """All of it."""
        return Scan(self.keys, self.sizes, self.boxes, self.counts, self.reasons, self.hashes)


def _read_chunks(folder: Path) -> Iterator[pa.Table]:
    """The cache, some files at a time."""
    files = sorted(folder.glob("*.parquet"))
    for start in range(0, len(files), CHUNKS_AT_ONCE):
        yield pa.concat_tables([_read_table(file, SCAN_SCHEMA) for file in files[start : start + CHUNKS_AT_ONCE]])


def _read_table(file: Path, schema: pa.Schema) -> pa.Table:
    """A cache file; a damaged one is ignored."""
    if not file.exists():
        return schema.empty_table()
    try:
        return pq.read_table(file).select(schema.names).cast(schema)
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        log.warning("the cache file %s is damaged (%s): it is computed again", file, error)
        return schema.empty_table()


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
            with atomic_path(self.folder / f"{name}.parquet") as temporary:
                pq.write_table(good, temporary, compression="zstd")
        self.tables.append(table)
        self.rows = []
