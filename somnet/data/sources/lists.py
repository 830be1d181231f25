"""Lists of images as text files. Arrow reads a million lines in a second, without a Python object per line."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from somnet.errors import DataError
from somnet.system.files import display_name

MOST_NAMED = 3  # missing files or folders that a message names


def read_list(
    file: Path, columns: Sequence[tuple[str, pa.DataType]], *, separator: str = " ", header: str = ""
) -> pa.Table:
    """The lines of a list as a table; blank lines do not count, and a first line that begins with `header` is one."""
    try:
        with file.open("rb") as lines:
            first = lines.readline()
        if not first:
            raise DataError(f"{file} is empty: unpack it again")
        return pa.csv.read_csv(
            file,
            pa.csv.ReadOptions(
                column_names=[name for name, _ in columns],
                skip_rows=int(bool(header) and first.removeprefix(b"\xef\xbb\xbf").startswith(header.encode())),
                use_threads=False,  # so that errors name the line
            ),
            pa.csv.ParseOptions(delimiter=separator, quote_char=False),
            pa.csv.ConvertOptions(column_types=dict(columns)),
        )
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {file}: {error}: unpack it again") from None


def need(root: Path, names: Sequence[str], what: str) -> None:
    """Refuse a copy that lacks some of its files or folders."""
    if missing := [name for name in names if not (root / name).exists()]:
        raise DataError(
            f"{root} is not a complete copy of {what}: {_some(missing)} missing: unpack the archives again, all here"
        )


def need_folders(root: Path, file_names: pa.ChunkedArray, what: str) -> None:
    """Refuse a copy in which whole folders of listed images are missing or empty; single files may be."""
    folders = pc.replace_substring_regex(file_names, r"[^/]*$", "").value_counts()
    top = os.fsencode(root)
    lost = [
        (display_name(pair["values"]), pair["counts"])
        for pair in folders.to_pylist()
        if not _holds_something(os.path.join(top, pair["values"]))
    ]
    if lost:
        images = sum(count for _, count in lost)
        raise DataError(
            f"{root} is not a complete copy of {what}: {_some(sorted(name for name, _ in lost))} missing or empty, "
            f"where {images} of {len(file_names)} listed images should be: unpack the archives again, all here"
        )


def refuse_paths_outside(file: Path, names: pa.ChunkedArray) -> None:
    """Refuse a list with absolute names, or with names that climb out of the data folder."""
    doubtful = names.filter(pc.or_(pc.match_substring(names, b".."), pc.starts_with(names, b"/")))
    for name in doubtful.to_pylist():
        if name.startswith(b"/") or b".." in name.split(b"/"):
            raise DataError(f"{file} names {display_name(name)}, outside the data folder: remove that line")


def number_of(file: Path, names: pa.ChunkedArray, classes: Sequence[str]) -> pa.ChunkedArray:
    """The class numbers of class names; an unknown one is refused."""
    numbers = pc.index_in(names, value_set=pa.array([name.encode() for name in classes], pa.binary()))
    if numbers.null_count:
        unknown = display_name(names.filter(pc.is_null(numbers))[0].as_py())
        raise DataError(
            f"{file} names the class '{unknown}', which is not one of the {len(classes)} classes: fix that line"
        )
    return numbers


def check_labels(file: Path, labels: pa.ChunkedArray, classes: int) -> None:
    """Refuse labels that are not counted from 0 to the last class."""
    span = pc.min_max(labels).as_py()
    if span["min"] < 0 or span["max"] >= classes:
        raise DataError(
            f"{file} has labels from {span['min']} to {span['max']}, but there are {classes} classes, counted from 0: "
            "use the lists that came with the images"
        )


def class_names(file: Path, *, header: str = "") -> list[str]:
    """Class names, one per line."""
    names = read_list(file, [("name", pa.binary())], separator="\x01", header=header)["name"].to_pylist()
    classes = [display_name(name).strip() for name in names]
    if len(set(classes)) < len(classes):
        raise DataError(f"{file} names a class twice: unpack it again")
    return classes


def prefixed(prefix: bytes, names: pa.ChunkedArray, suffix: bytes = b"") -> pa.ChunkedArray:
    """Names with something before and after each."""
    return pc.binary_join_element_wise(pa.scalar(prefix), names, pa.scalar(suffix), pa.scalar(b""))


def repeated(value: str, count: int) -> pa.Array:
    """A column of one value."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _holds_something(folder: bytes) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    verb = "is" if len(names) == 1 else "are"
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "") + f" {verb}"
