"""metadata.csv, .jsonl or .parquet: one row per image. Once it exists it, not the folder, gives the label."""

import contextlib
import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from somnet.data.index import Index, make_index
from somnet.data.sources.folder import SPLITS, folders_in
from somnet.data.sources.links import LEADS_OUT
from somnet.errors import DataError
from somnet.system.files import atomic_path, display_name

NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
COLUMNS = "file_name, label, and optionally split, weight, verified, true_label, true_box (x1 y1 x2 y2)"
VERIFIED = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}
OUTSIDE = "lies outside the data folder: put the file inside it"


def find_manifest(folder: Path) -> Path | None:
    """The manifest of a folder, if it has one."""
    manifests = [folder / name for name in NAMES if os.path.isfile(folder / name)]
    if len(manifests) > 1:
        raise DataError(f"{folder} has {len(manifests)} manifests, {', '.join(f.name for f in manifests)}: keep one")
    return manifests[0] if manifests else None


def find_manifests(root: Path) -> list[Path]:
    """The manifest of a data folder; or those of its train, val and test folders."""
    if manifest := find_manifest(root):
        return [manifest]
    splits = (root / os.fsdecode(name) for name in folders_in(os.fsencode(root)) if name.lower() in SPLITS)
    return [manifest for folder in splits if (manifest := find_manifest(folder))]


def read_manifest(file: Path, *, follow_links: bool = False) -> Index:
    """List the rows of a manifest; file names are relative to its folder and may not lead out of it."""
    return read_manifests(file.parent, [file], follow_links=follow_links)


def read_manifests(root: Path, files: Sequence[Path], *, follow_links: bool = False) -> Index:
    """The same for several, in a data folder itself or in those of its splits."""
    listed = [row for file in files for row in _listed(root, file, follow_links=follow_links)]
    classes = sorted({row["label"] for row in listed if row["label"] is not None})
    number = {name: i for i, name in enumerate(classes)}
    return make_index(root, classes, ({**row, "label": number.get(row["label"])} for row in listed))


def _listed(root: Path, file: Path, *, follow_links: bool) -> Iterator[dict[str, Any]]:
    """The rows of a manifest as rows of an index, with the name of the class for a label."""
    rows = list(_rows(file))
    if not rows:
        raise DataError(f"{file} lists no images: fill it in, or delete it where the folders are the classes")
    for column in ("file_name", "label"):
        if column not in rows[0]:
            present = ", ".join(str(name) for name in rows[0] if name is not None)
            raise DataError(f"{file} has no column {column} (it has {present}): the columns are {COLUMNS}")
    folder = os.path.relpath(file.parent, root)
    own_root = os.path.realpath(file.parent)
    for line, row in enumerate(rows, start=1):
        name, label = _bytes(str(row.get("file_name") or "")), label_text(row.get("label"))
        yield {
            "file_name": name if folder == "." else os.path.join(os.fsencode(folder), name),
            "label": label,
            "split": _split(label_text(row.get("split")) or (None if folder == "." else folder)),
            "weight": _weight(row.get("weight"), file, line),
            "true_label": label_text(row.get("true_label")),
            "true_box": _box(row.get("true_box"), file, line),
            "verified": _verified(row.get("verified"), file, line),
            "problem": _problem(own_root, row.get("file_name"), label, follow_links=follow_links),
        }


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


def _weight(value: Any, file: Path, line: int) -> float | None:
    """How much an image counts in training; None where nothing is said."""
    if label_text(value) is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if 0 <= float(value) < math.inf:
            return float(value)
    raise DataError(f"{file} row {line}: the weight {value!r} is not a number of 0 or more: fix it, or leave it empty")


def _verified(value: Any, file: Path, line: int) -> bool:
    """Whether a person has confirmed the label."""
    spelled = (label_text(value) or "").lower().removesuffix(".0")  # as tables write a flag that is sometimes empty
    if spelled not in VERIFIED:
        raise DataError(f"{file} row {line}: verified is {value!r}: write true, or nothing")
    return VERIFIED[spelled]


def _box(value: Any, file: Path, line: int) -> list[float] | None:
    if value is None or value == "":
        return None
    try:
        numbers = value.replace(",", " ").strip("[]() ").split() if isinstance(value, str) else list(value)
        x1, y1, x2, y2 = (float(number) for number in numbers)
    except (TypeError, ValueError):
        raise DataError(f"{file} row {line}: the true_box {value!r} is not four numbers: write x1 y1 x2 y2") from None
    return [x1, y1, x2, y2]


def _problem(real_root: str, name: Any, label: str | None, *, follow_links: bool) -> str | None:
    """Why a row cannot be used, judged by its name alone."""
    if not name or not isinstance(name, str):
        return "the row has no file_name: fill it in"
    if label is None:
        return "the row has no label: fill it in"
    if "\0" in name:
        return "the file name contains a null byte: fix it"
    if os.fsdecode(_bytes(name)) != name:
        return "the file name contains characters that are not allowed: fix it"
    named = os.path.normpath(os.path.join(real_root, os.fsdecode(_bytes(name))))
    if os.path.isabs(name) or os.path.commonpath([named, real_root]) != real_root:
        return OUTSIDE
    real = os.path.realpath(os.path.join(real_root, os.fsdecode(_bytes(name))))
    if not follow_links and os.path.commonpath([real, real_root]) != real_root:
        return LEADS_OUT
    return None
