"""metadata.csv, .jsonl or .parquet: one row per image. Once it exists it, not the folder, gives the label."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from somnet.data.index import Index, make_index
from somnet.errors import DataError
from somnet.system.files import atomic_path, display_name

NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
COLUMNS = "file_name, label, and optionally split, true_label, true_box (x1 y1 x2 y2)"
OUTSIDE = "lies outside the data folder: put the file inside it"


def find_manifest(folder: Path) -> Path | None:
    """The manifest of a data folder, if it has one."""
    manifests = [folder / name for name in NAMES if (folder / name).is_file()]
    if len(manifests) > 1:
        raise DataError(f"{folder} has {len(manifests)} manifests, {', '.join(f.name for f in manifests)}: keep one")
    return manifests[0] if manifests else None


def read_manifest(file: Path) -> Index:
    """List the rows of a manifest; file names are relative to its folder and may not lead out of it."""
    rows = list(_rows(file))
    if not rows:
        raise DataError(f"{file} lists no images: fill it in, or delete it where the folders are the classes")
    for column in ("file_name", "label"):
        if column not in rows[0]:
            present = ", ".join(str(name) for name in rows[0] if name is not None)
            raise DataError(f"{file} has no column {column} (it has {present}): the columns are {COLUMNS}")
    names = [label_text(row.get("label")) for row in rows]
    classes = sorted({name for name in names if name is not None})
    number = {name: i for i, name in enumerate(classes)}
    root = file.parent
    real_root = os.path.realpath(root)
    listed = (
        {
            "file_name": _bytes(str(row.get("file_name") or "")),
            "label": number[name] if name is not None else None,
            "split": _split(label_text(row.get("split"))),
            "true_label": label_text(row.get("true_label")),
            "true_box": _box(row.get("true_box"), file, line),
            "problem": _problem(real_root, row.get("file_name"), name),
        }
        for line, (row, name) in enumerate(zip(rows, names, strict=True), start=1)
    )
    return make_index(root, classes, listed)


def write_manifest(root: Path, rows: Iterable[tuple[str, str, str, str, str]]) -> None:
    """Write metadata.csv from rows of file name, given label, split, true label and true box."""
    with atomic_path(root / NAMES[0]) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("file_name", "label", "split", "true_label", "true_box"))
        table.writerows(rows)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            yield from pq.read_table(file).to_pylist()
        elif file.suffix == ".jsonl":
            with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        row = json.loads(line)
                        if not isinstance(row, dict):
                            raise DataError(f"{file} line {number} is not a JSON object: write one object per line")
                        yield row
        elif file.suffix == ".csv":
            with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
                yield from csv.DictReader(lines)
        else:
            raise DataError(f"{file} is not a manifest: name it {', '.join(NAMES)}, or give a folder")
    except (OSError, ValueError, pa.ArrowException, csv.Error, RecursionError) as error:
        raise DataError(f"cannot read the manifest {file}: {error}: fix or replace it") from None


def label_text(value: Any) -> str | None:
    """A label as text, with what is not UTF-8 shown as escapes; an empty one is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return display_name(_bytes(str(value))).strip() or None


def _bytes(text: str) -> bytes:
    """Text as it stood in the file. JSON can spell characters that no encoding has; they become question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _split(name: str | None) -> str:
    """Upper and lower case are one, as they are for folders."""
    spelled = (name or "train").lower()
    return {"validation": "val", "valid": "val"}.get(spelled, spelled)


def _box(value: Any, file: Path, line: int) -> list[float] | None:
    if value is None or value == "":
        return None
    try:
        numbers = value.replace(",", " ").strip("[]() ").split() if isinstance(value, str) else list(value)
        x1, y1, x2, y2 = (float(number) for number in numbers)
    except (TypeError, ValueError):
        raise DataError(f"{file} row {line}: the true_box {value!r} is not four numbers: write x1 y1 x2 y2") from None
    return [x1, y1, x2, y2]


def _problem(real_root: str, name: Any, label: str | None) -> str | None:
    """Why a row cannot be used, judged by its name alone."""
    if not name or not isinstance(name, str):
        return "the row has no file_name: fill it in"
    if label is None:
        return "the row has no label: fill it in"
    if "\0" in name:
        return "the file name contains a null byte: fix it"
    if os.fsdecode(_bytes(name)) != name:
        return "the file name contains characters that are not allowed: fix it"
    real = os.path.realpath(os.path.join(real_root, os.fsdecode(_bytes(name))))  # follows links, too
    if os.path.isabs(name) or os.path.commonpath([real, real_root]) != real_root:
        return OUTSIDE
    return None
