"""Vectors that another model has made of the images: a Parquet or npy file, which nobody but the user can vouch for."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from somnet.data.index import Index
from somnet.errors import DataError
from somnet.system.files import display_name, some

NAME, COLUMN = "file_name", "embedding"  # of a Parquet file; somnet embed writes the same
LARGEST = 60_000.0  # of a vector's numbers: features are kept in half precision


@dataclass(frozen=True)
class Embeddings:
    """Vectors by the names of their images."""

    file: Path
    row: dict[str, int]
    vectors: NDArray[np.float32]  # (m, F)

    def of(self, index: Index) -> NDArray[np.float32]:
        """Those of all images (n, F) of an index, each of which needs one."""
        names = [display_name(name) for name in index.column("file_name")]
        if missing := [name for name in names if name not in self.row]:
            known = next(iter(self.row), "nothing")
            raise DataError(
                f"{self.file} has no vector of {len(missing)} of {len(names)} images, as {some(missing)}: its "
                f"{NAME} has to be as in issues.csv, from the data's folder on, but it has {known}, ..."
            )
        found = self.vectors[[self.row[name] for name in names]]
        bad = ~(np.abs(found) <= LARGEST).all(axis=1)  # NaN is not
        if bad.any():
            raise DataError(
                f"{self.file} has {int(bad.sum())} vectors with NaN, infinite or huge numbers, as that of "
                f"{names[int(bad.argmax())]}: compute them again, or leave these images out of the data"
            )
        return found


def vector_width(file: Path) -> int:
    """How many numbers its vectors have; the file is not read whole."""
    if file.suffix == ".npy":
        return int(_open_array(file).shape[1])
    table = _open_parquet(file)
    column = _vector_column(file, table.schema_arrow)
    first = next(table.iter_batches(1, columns=[column]), None)
    width = 0 if first is None or first.column(0)[0].as_py() is None else len(first.column(0)[0])
    if width == 0:
        raise DataError(f"{file} has no vectors in its column {column}: write a vector for each image")
    return width


def read_embeddings(file: Path, index: Index) -> Embeddings:
    """The vectors of a file: by their names, or of an npy file in the order in which the images of DATA are listed."""
    if file.suffix == ".npy":
        array = _open_array(file)
        if len(array) != len(index):
            raise DataError(
                f"{file} has {len(array)} rows, but the data have {len(index)} images, unreadable ones among them: "
                f"write a row for each, sorted by folder and file name, or Parquet with {NAME} and {COLUMN}"
            )
        names = [display_name(name) for name in index.column("file_name")]
        return Embeddings(file, {name: row for row, name in enumerate(names)}, np.asarray(array, np.float32))
    parquet = _open_parquet(file)
    column = _vector_column(file, parquet.schema_arrow)
    table = parquet.read(columns=[NAME, column])
    names = [str(name) for name in table[NAME].to_pylist()]
    row = {name: number for number, name in enumerate(names)}
    if len(row) < len(names):
        twice = next(name for number, name in enumerate(names) if row[name] != number)
        raise DataError(f"{file} has several vectors of {twice}: keep one of them")
    return Embeddings(file, row, _as_array(file, table[column].combine_chunks()))


def _as_array(file: Path, column: pa.Array) -> NDArray[np.float32]:
    if column.null_count:
        raise DataError(f"{file} has {column.null_count} rows without a vector: write one for each, or leave them out")
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) > 1:
        raise DataError(
            f"{file} has vectors of different lengths, {lengths[0]} to {lengths[-1]}: use one model for all"
        )
    flat = column.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
    return np.asarray(flat, np.float32).reshape(len(column), -1)


def _open_array(file: Path) -> NDArray[np.floating]:
    try:
        array: NDArray[np.floating] = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DataError(f"cannot read the vectors {file} ({error.strerror or error}): give an existing file") from None
    except Exception as error:  # numpy raises many kinds, where a file is something else
        raise DataError(f"{file} is not an array of numpy ({error}): write it with numpy.save") from None
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "fiu":
        raise DataError(f"{file} has shape {array.shape} of {array.dtype}: write a row of numbers for each image")
    return array


def _open_parquet(file: Path) -> pq.ParquetFile:
    if file.suffix != ".parquet":
        raise DataError(f"{file} is neither .parquet nor .npy: write vectors as one of them")
    try:
        return pq.ParquetFile(file)
    except OSError as error:
        raise DataError(
            f"cannot read the vectors {file} ({error.strerror or 'not there'}): give an existing file"
        ) from None
    except pa.ArrowException as error:
        raise DataError(f"{file} is not a Parquet file ({error}): write it again") from None


def _vector_column(file: Path, schema: pa.Schema) -> str:
    """The column of vectors: `embedding`, or the only one of lists of numbers."""
    if NAME not in schema.names:
        raise DataError(f"{file} has no column {NAME}: name the image of each vector, as issues.csv does")
    lists = [field.name for field in schema if _is_vector(field.type)]
    if COLUMN in lists:
        return COLUMN
    if len(lists) != 1:
        told = f"several columns of vectors, {', '.join(lists)}" if lists else "no column of vectors"
        raise DataError(f"{file} has {told}: call the right one {COLUMN}, each a list of numbers")
    return str(lists[0])


def _is_vector(kind: pa.DataType) -> bool:
    is_list: bool = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
