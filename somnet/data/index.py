"""The list of a data set's images, as an Arrow table: a million rows cost megabytes, not Python objects."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from somnet.data.location import Location
from somnet.system.files import display_name

SCHEMA = pa.schema(
    [
        ("file_name", pa.binary()),  # relative to the root, as the file system spells it: it need not be UTF-8
        ("label", pa.int32()),  # index of the given class; null where there is none
        ("split", pa.string()),
        (
            "true_label",
            pa.string(),
        ),  # known truth, for scoring only; null: unknown; no class's name: the label is wrong
        ("true_box", pa.list_(pa.float32())),  # pixels, xyxy, upright frame
        ("weight", pa.float32()),  # how much the image counts in training; null: 1
        ("verified", pa.bool_()),  # whether a person has confirmed the label; null: no
        ("judged_label", pa.int32()),  # the label that a person has judged, who may have given another; null: none has
        ("problem", pa.string()),  # why a listed file cannot be used; null: it has not been tried
        ("archive", pa.binary()),  # the larger file of which the image is a stretch, from the root on; else null
        ("offset", pa.int64()),  # of the stretch
        ("size", pa.int64()),
        ("deflated", pa.bool_()),  # whether the stretch is compressed; null: it is not
    ]
)
ROWS_AT_ONCE = 65_536  # where a table is gone through in Python
SOMETHING_ELSE = "something else"  # a true_label that says no more than that the given label is wrong


@dataclass(frozen=True)
class Index:
    """Images under one root, with their given labels."""

    root: Path
    classes: tuple[str, ...]
    table: pa.Table
    empty: tuple[str, ...] = ()  # classes that were found without any image; they are not among `classes`
    beside: tuple[str, ...] = ()  # archives and images that lie beside the class folders, and are not read
    passed_over: tuple[str, ...] = ()  # folders with images that are not read, each with the reason

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def path(self, row: int) -> str:
        """Full path of the file that holds an image."""
        name = self.table["archive"][row].as_py() or self.table["file_name"][row].as_py()
        return os.path.join(self.root, os.fsdecode(name))

    def location(self, row: int) -> Location:
        """Where the bytes of an image are."""
        offset, size, deflated = (self.table[name][row].as_py() for name in ("offset", "size", "deflated"))
        return Location(self.path(row), offset or 0, size, bool(deflated))

    def locations(self) -> Iterator[Location]:
        """The same for all images, in order, and faster."""
        columns = self.table.select(["file_name", "archive", "offset", "size", "deflated"])
        for batch in columns.to_batches(max_chunksize=ROWS_AT_ONCE):
            for name, archive, offset, size, deflated in zip(*(column.to_pylist() for column in batch), strict=True):
                path = os.path.join(self.root, os.fsdecode(archive or name))
                yield Location(path, offset or 0, size, bool(deflated))

    def labels(self) -> NDArray[np.int64]:
        """Given labels, -1 where there is none."""
        return np.asarray(self.table["label"].fill_null(-1).to_numpy(), dtype=np.int64)

    def weights(self) -> NDArray[np.float32]:
        """How much each image counts in training, 1 where nothing is said."""
        return np.asarray(self.table["weight"].fill_null(1.0).to_numpy(), np.float32)

    def verified(self) -> NDArray[np.bool_]:
        """Whether a person has confirmed the label (n,)."""
        return np.asarray(self.table["verified"].fill_null(False).to_numpy(), bool)

    def column(self, name: str) -> list[Any]:
        """A column as Python values."""
        return list(self.table[name].to_pylist())

    def names(self) -> Iterator[str]:
        """File names as they are shown, in order; a million of them are never Python objects at once."""
        for batch in self.table.select(["file_name"]).to_batches(max_chunksize=ROWS_AT_ONCE):
            yield from map(display_name, batch["file_name"].to_pylist())

    def shown_names(self) -> pa.ChunkedArray:
        """The same as a column."""
        batches = self.table.select(["file_name"]).to_batches(max_chunksize=ROWS_AT_ONCE)
        return pa.chunked_array([_as_text(batch["file_name"]) for batch in batches], pa.string())

    def splits(self) -> set[str]:
        """Names of the splits that have images."""
        return set(self.table["split"].unique().to_pylist())

    def of_split(self, *names: str) -> "Index":
        """The images of some splits."""
        return replace(self, table=self.table.filter(pc.is_in(self.table["split"], pa.array(names, pa.string()))))

    def take(self, rows: NDArray[np.int64]) -> "Index":
        """The images of some rows."""
        return replace(self, table=self.table.take(pa.array(rows)))


def _as_text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # not all of them are UTF-8
        return pa.array(map(display_name, names.to_pylist()), pa.string())


def make_index(root: Path, classes: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Index:
    """An index from rows; keys that a row lacks are null."""
    left, batches = iter(rows), []
    while some := [dict(row) for row in itertools.islice(left, ROWS_AT_ONCE)]:
        batches.append(pa.RecordBatch.from_pylist(some, schema=SCHEMA))
    return Index(root, tuple(classes), pa.Table.from_batches(batches, SCHEMA).combine_chunks())


def index_from_columns(root: Path, classes: Iterable[str], columns: Mapping[str, Any]) -> Index:
    """An index from whole columns, without a Python object per row; columns that are not given are null."""
    count = len(columns["file_name"])
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return Index(root, tuple(classes), pa.Table.from_arrays(arrays, schema=SCHEMA))


def join_indexes(root: Path, classes: Iterable[str], indexes: Iterable[Index]) -> Index:
    """One index of several that share root and classes."""
    return Index(root, tuple(classes), pa.concat_tables([index.table for index in indexes]))
