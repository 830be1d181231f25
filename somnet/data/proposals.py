"""Boxes of every image of a data set: read once on all cores, cached by content and parameters.

The cache is a folder of Parquet parts, each written whole or not at all; a kill loses the part in the making.
A second table remembers size and time of each file, so that an unchanged data set is not even read again.
"""

import hashlib
import json
import logging
import os
import stat
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from somnet.config import ProposalConfig
from somnet.data.decode import read_picture
from somnet.data.edgeboxes import edge_boxes
from somnet.data.index import Index
from somnet.errors import UnreadableImage
from somnet.files import atomic_path, cache_folder
from somnet.parallel import on_all_cores
from somnet.progress import track

log = logging.getLogger("somnet")

ALGORITHM = 1  # raise it when the boxes of an image change, so that old caches are left behind
FILES_A_PART = 1024

FOUND = pa.schema(
    [
        ("key", pa.binary(16)),  # of the file's content
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("boxes", pa.list_(pa.float32())),  # x1 y1 x2 y2, pixels of the upright image, best first
        ("reason", pa.string()),  # why it is no picture
    ]
)
SEEN = pa.schema([("file_name", pa.binary()), ("size", pa.int64()), ("time", pa.int64()), ("key", pa.binary(16))])

WHOLE = (0.0, 0.0, 1.0, 1.0)  # the view of a whole image


@dataclass(frozen=True)
class Scan:
    """What the images of an index hold: one row each, in the index's order."""

    keys: list[bytes | None]  # of the content; None where there is no file
    sizes: NDArray[np.int32]  # (n, 2) width and height of the upright image
    boxes: NDArray[np.float32]  # (n, max_boxes, 4) shares of width and height, zero where padded
    counts: NDArray[np.int64]  # (n,) boxes found
    reasons: list[str | None]  # why an image cannot be used

    def readable(self) -> NDArray[np.int64]:
        """Rows that can be used."""
        return np.flatnonzero([reason is None for reason in self.reasons])

    def copies(self) -> NDArray[np.bool_]:
        """Rows whose file has the same content as another row's."""
        times = Counter(self.keys)
        return np.array([key is not None and times[key] > 1 for key in self.keys], bool)

    def take(self, rows: NDArray[np.int64]) -> "Scan":
        """Some rows."""
        return Scan(
            [self.keys[row] for row in rows],
            self.sizes[rows],
            self.boxes[rows],
            self.counts[rows],
            [self.reasons[row] for row in rows],
        )

    def through(self, views: NDArray[np.float32]) -> "Scan":
        """The same images seen only within a box (n, 4) of shares each: other content, and no proposals."""
        keys = [
            key if key is None or tuple(view) == WHOLE else hashlib.sha256(key + view.tobytes()).digest()[: len(key)]
            for key, view in zip(self.keys, views.astype(np.float32), strict=True)
        ]
        return replace(self, keys=keys, boxes=np.zeros_like(self.boxes), counts=np.zeros_like(self.counts))


def scan(index: Index, config: ProposalConfig, workers: int | None = None) -> Scan:
    """Try every image and find its boxes, as far as the cache does not have them."""
    keys, reasons = _content_keys(index, workers)
    parameters = {"algorithm": ALGORITHM, **config.model_dump()}
    name = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / "proposals" / name
    known = _read_parts(folder, {key for key in keys if key})
    first_row = {key: row for row, key in reversed(list(enumerate(keys))) if key and key not in known}
    if first_row:
        tasks = [(key, index.path(row)) for key, row in sorted(first_row.items(), key=lambda item: item[1])]
        with track("finding boxes", len(tasks)) as advance, _Parts(folder) as parts:
            for found in on_all_cores(_Propose(config), tasks, workers, in_order=False):
                parts.add([row for row in found if row["reason"] is None])  # a bad file may be mended, or memory short
                known.update((row["key"], row) for row in found)
                advance(len(found))
    return _assemble(keys, reasons, known, config.max_boxes)


@dataclass(frozen=True)
class _Propose:
    """What a worker does to a file: read it, find its boxes."""

    config: ProposalConfig

    def __call__(self, task: tuple[bytes, str]) -> dict[str, Any]:
        key, path = task
        try:
            picture = read_picture(path, at_least=self.config.edge_side)
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
        return {"key": key, "width": picture.width, "height": picture.height, "boxes": pixels, "reason": None}


def _fingerprint(path: str) -> tuple[bytes | None, int, int, str | None]:
    """Key, size and time of a file, or the reason why there is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None, 0, 0, "not a regular file"  # a pipe or a device could be read for ever
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
    except OSError as error:
        return None, 0, 0, f"cannot be read: {error.strerror}"
    return digest, status.st_size, status.st_mtime_ns, None


def _content_keys(index: Index, workers: int | None) -> tuple[list[bytes | None], list[str | None]]:
    """Content key of each file, from the table of files seen before or by reading it."""
    names: list[bytes] = index.column("file_name")
    reasons: list[str | None] = index.column("problem")
    root = hashlib.sha256(os.fsencode(os.path.abspath(index.root))).hexdigest()[:16]
    table_file = cache_folder() / "files" / f"{root}.parquet"
    seen = {row["file_name"]: row for row in _read_table(table_file)}
    keys: list[bytes | None] = [None] * len(index)
    unseen = []
    for row, name in enumerate(names):
        if reasons[row] is not None:
            continue
        try:
            status = os.stat(index.path(row))
        except OSError:
            unseen.append(row)  # reading it will tell why
            continue
        old = seen.get(name)
        if old and (old["size"], old["time"]) == (status.st_size, status.st_mtime_ns):
            keys[row] = old["key"]
        else:
            unseen.append(row)
    if unseen:
        with track("reading files", len(unseen)) as advance:
            results = on_all_cores(_fingerprint, [index.path(row) for row in unseen], workers)
            rows = iter(unseen)
            for chunk in results:
                for (key, size, time, reason), row in zip(chunk, rows, strict=False):  # chunk first: it ends first
                    keys[row], reasons[row] = key, reason
                    if key is not None:
                        seen[names[row]] = {"file_name": names[row], "size": size, "time": time, "key": key}
                advance(len(chunk))
        with atomic_path(table_file) as temporary:
            pq.write_table(pa.Table.from_pylist(list(seen.values()), schema=SEEN), temporary)
    return keys, reasons


def _assemble(
    keys: list[bytes | None], reasons: list[str | None], known: dict[bytes, dict[str, Any]], max_boxes: int
) -> Scan:
    sizes = np.zeros((len(keys), 2), np.int32)
    boxes = np.zeros((len(keys), max_boxes, 4), np.float32)
    counts = np.zeros(len(keys), np.int64)
    final = list(reasons)
    for row, key in enumerate(keys):
        if key is None:
            continue
        found = known[key]
        final[row] = final[row] or found["reason"]
        pixels = np.asarray(found["boxes"], np.float32).reshape(-1, 4)
        sizes[row] = found["width"], found["height"]
        counts[row] = len(pixels)
        if len(pixels):
            boxes[row, : len(pixels)] = pixels / np.tile(sizes[row], 2)
    return Scan(keys, sizes, boxes, counts, final)


def _read_parts(folder: Path, wanted: set[bytes]) -> dict[bytes, dict[str, Any]]:
    rows = (row for part in sorted(folder.glob("*.parquet")) for row in _read_table(part))
    return {row["key"]: row for row in rows if row["key"] in wanted}


def _read_table(file: Path) -> list[dict[str, Any]]:
    """Rows of a cache file; a damaged one is as good as none."""
    if not file.exists():
        return []
    try:
        return list(pq.read_table(file).to_pylist())
    except (OSError, ValueError, pa.ArrowException) as error:
        log.warning("the cache file %s is damaged (%s): its part is computed anew", file, error)
        return []


class _Parts:
    """Collects rows into parts of the cache; what is there when the work ends or is interrupted is written too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    def __enter__(self) -> "_Parts":
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, rows: list[dict[str, Any]]) -> None:
        self.rows.extend(rows)
        if len(self.rows) >= FILES_A_PART:
            self._write()

    def _write(self) -> None:
        if self.rows:
            name = hashlib.sha256(b"".join(sorted(row["key"] for row in self.rows))).hexdigest()[:16]
            with atomic_path(self.folder / f"{name}.parquet") as temporary:
                pq.write_table(pa.Table.from_pylist(self.rows, schema=FOUND), temporary, compression="zstd")
            self.rows = []
