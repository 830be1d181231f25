"""Which files to predict, and the table of predictions."""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from somnet.data.sources.folder import files_below
from somnet.errors import DataError
from somnet.files import atomic_path, csv_cell, display_name
from somnet.run import Prediction


def image_files(paths: Sequence[Path]) -> list[str]:
    """The files themselves, and all files below the folders, in a fixed order."""
    files: list[str] = []
    for path in paths:
        if path.is_dir():
            below = files_below(os.fsencode(path), b"")
            files.extend(os.path.join(path, os.fsdecode(name)) for name in below)
        else:
            files.append(str(path))
    if not files:
        raise DataError(f"no files in {', '.join(map(str, paths))}: give images or folders of images")
    return files


def write_predictions(predictions: Iterable[Prediction], out: Path) -> tuple[int, int]:
    """A row per file with its classes, most probable first; returns how many rows, and how many without a class."""
    rows = list(predictions)
    most = max((len(row.labels) for row in rows), default=1)
    header = ["file_name", "predicted_label", "probability"]
    header += [name for place in range(2, most + 1) for name in (f"label_{place}", f"probability_{place}")]
    with atomic_path(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "unreadable_reason"])
        for row in rows:
            pairs = zip(row.labels, row.probabilities, strict=True)
            cells = [cell for label, probability in pairs for cell in (csv_cell(label), f"{probability:.6f}")]
            cells += [""] * (2 * most - len(cells))
            name = csv_cell(display_name(os.fsencode(row.file_name)))
            writer.writerow([name, *cells, csv_cell(row.unreadable_reason or "")])
    return len(rows), sum(row.unreadable_reason is not None for row in rows)
