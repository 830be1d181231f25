"""Data sets as Hugging Face lays them out: Parquet or Arrow files whose rows have an image's bytes and its label.

Arrow files, as `save_to_disk` writes them, are read in place. Parquet compresses many images together, so these files
are unpacked once, into Arrow files in the cache. Either way an image is then a stretch of a file.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from somnet.data.index import Index, index_from_columns, join_indexes
from somnet.data.sources.lists import repeated
from somnet.data.sources.manifest import label_text
from somnet.data.sources.shards import split_of
from somnet.errors import DataError
from somnet.system.files import atomic_path, cache_folder, display_name, parse_json
from somnet.system.progress import track

SUFFIXES = (".parquet", ".arrow")
IMAGES = ("image", "img", "picture", "photo", "jpg", "png")  # columns of bytes that are taken for images
LABELS = ("label", "labels", "class", "category", "target", "fine_label")  # the first of them that is there counts
ROWS_AT_ONCE = 64  # while unpacking
ENDINGS = {0xFF: b".jpg", 0x89: b".png", ord("G"): b".gif", ord("R"): b".webp", ord("B"): b".bmp"}  # by the first byte


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are meant, and the names that the numbers in them stand for."""

    image: str
    label: str
    true_label: str | None
    names: dict[str, list[str]]  # by column, where there are any

    def all(self) -> list[str]:
        """Those that are read."""
        return [name for name in (self.image, self.label, self.true_label) if name is not None]


def find_tables(root: Path) -> list[Path]:
    """The files with images of a data set's folder, or of folders up to two levels below."""
    patterns = [f"{folders}*{suffix}" for folders in ("", "*/", "*/*/") for suffix in SUFFIXES]
    files = (file for pattern in patterns for file in sorted(root.glob(pattern)))
    return [file for file in files if is_table_of_images(file)]


def is_table_of_images(file: Path) -> bool:
    """Whether a file is a table that has a column of images."""
    if file.suffix not in SUFFIXES or not file.is_file():
        return False
    try:
        return _image_column(_schema(file)) is not None
    except (OSError, pa.ArrowException):
        return False


def read_huggingface(data: Path) -> Index:
    """The images of one file or of all files of a folder; the names of files and folders tell the splits."""
    files = [data] if data.is_file() else find_tables(data)
    root = data.parent if data.is_file() else data
    if not files:
        raise DataError(f"{data} has no Parquet or Arrow file with a column of images: give the folder that has them")
    parts = [_read_table(file) for file in files]
    texts = {text for part in parts for text in part.labels.unique().drop_null().to_pylist()}
    orders = {tuple(part.names) for part in parts}
    order = list(orders.pop()) if len(orders) == 1 else []
    classes = [name for name in order if name in texts] or sorted(texts, key=_by_number)
    indexes = []
    for file, part in zip(files, parts, strict=True):
        columns = {
            "file_name": _file_names(os.fsencode(file.relative_to(root)), part),
            "label": pc.index_in(part.labels, value_set=pa.array(classes, pa.string())),
            "split": repeated(split_of(file.relative_to(root)), len(part.labels)),
            "true_label": part.true_labels,
            "problem": pc.coalesce(
                pc.if_else(pa.array(part.sizes >= 0), None, "the row has no image bytes: save it with its images"),
                pc.if_else(part.labels.is_valid(), None, "the row has no label: fill it in"),
            ),
            "archive": pa.repeat(pa.scalar(os.fsencode(os.path.abspath(part.file)), pa.binary()), len(part.labels)),
            "offset": pa.array(part.offsets),
            "size": pa.array(part.sizes),
        }
        indexes.append(index_from_columns(root, classes, columns))
    index = join_indexes(root, classes, indexes)
    return Index(root, index.classes, index.table, tuple(name for name in order if name not in texts))


@dataclass(frozen=True)
class _Part:
    """The images of one file."""

    file: Path  # the Arrow file that holds the bytes
    offsets: NDArray[np.int64]  # (n,) in it
    sizes: NDArray[np.int64]  # (n,) -1: there are no bytes
    firsts: NDArray[np.uint8]  # (n,) the first byte of each, which tells the kind of image
    labels: pa.Array
    true_labels: pa.Array
    paths: pa.Array  # how a file was called once; null where nobody knows
    names: list[str]  # of the classes, in their order


def _by_number(label: str) -> tuple[int, str]:
    return (int(label), "") if label.isdecimal() and len(label) < 10 else (10**9, label)


def _file_names(archive: bytes, part: _Part) -> pa.Array:
    """The row and, where it is known, the name that an image had: unique, and with an ending that programs know."""
    names = []
    for row, (path, first) in enumerate(zip(part.paths.to_pylist(), part.firsts.tolist(), strict=True)):
        base = os.path.basename((path or "").replace("\\", "/")).encode("utf-8", "replace").replace(b"\0", b"")
        names.append(b"%s/%d%s" % (archive, row, b"-" + base if base else ENDINGS.get(first, b"")))
    return pa.array(names, pa.binary())


# --- one file


def _read_table(file: Path) -> _Part:
    try:
        columns = _columns(file, _schema(file))
        part = _read_arrow(file, columns) if file.suffix == ".arrow" else None
        if part is None:  # compressed
            part = _read_unpacked(file, columns)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(file, error) from None
    if part is None:
        raise DataError(f"cannot read {file}: its images cannot be found in it: fetch it again")
    return part


def _unreadable(file: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {file}: {' '.join(str(error).split())}: fetch it again")


def _schema(file: Path) -> pa.Schema:
    if file.suffix == ".parquet":
        return pq.read_schema(file)
    with pa.memory_map(str(file)) as source:
        return _open_arrow(source).schema


def _open_arrow(source: Any) -> Any:
    """Arrow has two formats: save_to_disk writes the one that is a stream."""
    source.seek(0)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)


def _batches(reader: Any) -> Iterator[Any]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _columns(file: Path, schema: pa.Schema) -> Columns:
    image, features = _image_column(schema), _features(schema)
    names = {name: list(map(str, kind["names"])) for name, kind in features.items() if kind.get("names")}
    label = next((name for name in LABELS if name in schema.names), None)
    if label is None and len(names) == 1:  # it is called as its author liked
        label = next(iter(names))
    if image is None or label is None:
        raise DataError(
            f"{file} has no column {'of images' if image is None else 'label'} (it has {', '.join(schema.names)}): "
            "rename the one that is meant"
        )
    return Columns(image, label, "true_label" if "true_label" in schema.names else None, names)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """What Hugging Face notes of the columns, as the names of the classes."""
    try:
        features = parse_json((schema.metadata or {})[b"huggingface"].decode())["info"]["features"]
        return {name: kind for name, kind in features.items() if isinstance(kind, dict)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _image_column(schema: pa.Schema) -> str | None:
    """The first column that is declared as one of images, looks like one, or has bytes and such a name."""
    declared = [name for name, kind in _features(schema).items() if kind.get("_type") == "Image"]
    structs = [
        field.name
        for field in schema
        if pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0  # image: {bytes, path}
    ]
    plain = [field.name for field in schema if field.name in IMAGES and _is_bytes(field.type)]
    return next((name for name in (*declared, *structs, *plain) if name in schema.names), None)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _read_unpacked(file: Path, columns: Columns) -> _Part | None:
    """The columns that are read, from an uncompressed Arrow file in the cache, which follows the original."""
    status = os.stat(file)
    times = status.st_mtime_ns, status.st_ctime_ns  # the latter is the kernel's alone: cp -p and rsync keep the former
    stamp = json.dumps([2, status.st_size, *times, status.st_ino, columns.all()]).encode()
    key = hashlib.sha256(os.fsencode(os.path.abspath(file))).hexdigest()[:16]
    target = cache_folder() / "unpacked" / f"{key}.arrow"
    batches, schema, count = _packed(file, columns)
    with contextlib.suppress(OSError, pa.ArrowException):  # not there, or damaged and as good as not there
        if (_schema(target).metadata or {}).get(b"somnet") == stamp:
            part = _read_arrow(target, columns)
            if part is not None and len(part.labels) == count:
                return part
    schema = schema.with_metadata({**(schema.metadata or {}), b"somnet": stamp})
    with (
        atomic_path(target) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        track(f"unpacking {display_name(os.fsencode(file.name))}", count) as advance,
    ):
        for batch in _refused_if_damaged(file, batches):
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            advance(len(batch))
    return _read_arrow(target, columns)


def _refused_if_damaged(file: Path, batches: Iterator[Any]) -> Iterator[Any]:
    """So that an error in reading is not taken for one in writing."""
    try:
        yield from batches
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def _packed(file: Path, columns: Columns) -> tuple[Iterator[Any], pa.Schema, int]:
    """The batches of a compressed file, their schema and how many rows there are."""
    if file.suffix == ".parquet":
        parquet = pq.ParquetFile(file)
        schema = pa.schema([parquet.schema_arrow.field(name) for name in columns.all()], parquet.schema_arrow.metadata)
        batches = parquet.iter_batches(ROWS_AT_ONCE, columns=columns.all())
        return (batch.select(columns.all()) for batch in batches), schema, parquet.metadata.num_rows
    reader = _open_arrow(pa.memory_map(str(file)))
    schema = pa.schema([reader.schema.field(name) for name in columns.all()], reader.schema.metadata)
    count = sum(map(len, _batches(reader)))
    again = _batches(_open_arrow(pa.memory_map(str(file))))
    return (batch.select(columns.all()) for batch in again), schema, count


def _read_arrow(file: Path, columns: Columns) -> _Part | None:
    """Where each image of an Arrow file is, and what is said of it; None if the file is compressed."""
    places, labels, true_labels, paths = [], [], [], []
    with pa.memory_map(str(file)) as source:
        start = source.read_buffer(1).address
        for batch in _batches(_open_arrow(source)):
            batch.validate(full=True)  # offsets of unknown origin
            image = batch.column(columns.image)
            content = image if _is_bytes(image.type) else image.field("bytes")
            place = _places(content, start, source.size())
            if place is None:
                return None
            place[np.asarray(pc.or_(image.is_null(), content.is_null())), 1] = -1
            places.append(place)
            known = not _is_bytes(image.type) and image.type.get_field_index("path") >= 0
            paths.append((image.field("path") if known else pa.nulls(len(batch), pa.string())).cast(pa.string()))
            labels.append(_texts(file, batch.column(columns.label), columns.names.get(columns.label)))
            true_labels.append(
                pa.nulls(len(batch), pa.string())
                if columns.true_label is None
                else _texts(file, batch.column(columns.true_label), columns.names.get(columns.true_label))
            )
        table = np.concatenate(places) if places else np.zeros((0, 2), np.int64)  # (n, 2)
        source.seek(0)
        mapped = np.frombuffer(source.read_buffer(), np.uint8)
        firsts = np.where(table[:, 1] > 0, mapped[np.minimum(table[:, 0], len(mapped) - 1)], 0).astype(np.uint8)
    own, true, called = (
        pa.chunked_array(parts, pa.string()).combine_chunks() for parts in (labels, true_labels, paths)
    )
    return _Part(file, table[:, 0], table[:, 1], firsts, own, true, called, columns.names.get(columns.label, []))


def _places(content: pa.Array, start: int, length: int) -> NDArray[np.int64] | None:
    """Offset and size (n, 2) of byte strings in a file of some length that is mapped to `start`, if they are in it."""
    if len(content) == 0:
        return np.zeros((0, 2), np.int64)
    kind = np.int64 if pa.types.is_large_binary(content.type) else np.int32
    _, bounds, values = content.buffers()
    ends = np.frombuffer(bounds, kind)[content.offset : content.offset + len(content) + 1].astype(np.int64)
    first = 0 if values is None else values.address - start
    if not 0 <= first <= length - int(ends[-1]):
        return None
    return np.column_stack([first + ends[:-1], np.diff(ends)])


def _texts(file: Path, labels: pa.Array, names: Sequence[str] | None) -> pa.Array:
    """Labels as text; numbers below zero stand for none, as in test data that nobody has labelled."""
    if not pa.types.is_integer(labels.type):
        return pa.array([label_text(value) for value in labels.to_pylist()], pa.string())
    labels = pc.if_else(pc.less(labels, 0), None, labels)
    if names is None:
        return labels.cast(pa.string())
    if len(labels) and (pc.max(labels).as_py() or 0) >= len(names):
        raise DataError(f"{file} has a label {pc.max(labels)}, but only {len(names)} names of classes: fetch it again")
    return pa.array(names, pa.string()).take(labels)
