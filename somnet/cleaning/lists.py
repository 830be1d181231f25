"""The lists beside a cleaned data set: what was removed, what is not as it was, and what was kept in doubt."""

import csv
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from somnet.cleaning.verdicts import Verdicts
from somnet.exports.label_formats import Labelled
from somnet.system.files import csv_cell


def write_removed(file: Path, scores: pa.Table, verdicts: Verdicts, before: Mapping[str, str]) -> None:
    """What was removed and why; `before` are the images that were dropped before the training, and their labels."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("file_name", "label", "reason", "detail", "label_score"))
        names, labels = scores["file_name"].to_pylist(), scores["given_label"].to_pylist()
        for place, reason in enumerate(verdicts.reasons):
            if reason is not None:
                score = scores["label_score"][place].as_py()
                shown = "" if score is None else f"{score:.4f}"
                cells = (names[place], labels[place] or "", reason, verdicts.details[place])
                table.writerow((*map(csv_cell, cells), shown))
        for name, label in before.items():  # the file may be deleted by now
            table.writerow((*map(csv_cell, (name, label, "decision", "dropped before the training")), ""))


def staying(verdicts: Verdicts) -> list[int]:
    """The places of the images that stay."""
    return [place for place, reason in enumerate(verdicts.reasons) if reason is None and verdicts.labels[place]]


def write_changed(file: Path, stay: list[tuple[Labelled, int]], scores: pa.Table, verdicts: Verdicts) -> None:
    """What is not as it was: another label, or the picture cut to a region."""
    names, given = scores["file_name"].to_pylist(), scores["given_label"].to_pylist()
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("file_name", "kept_as", "label", "new_label", "cropped"))
        for image, place in stay:
            if verdicts.crops[place] or image.label != given[place]:
                cells = (names[place], image.file_name, given[place], image.label)
                table.writerow((*map(csv_cell, cells), str(bool(verdicts.crops[place])).lower()))


def write_in_doubt(file: Path, stay: list[tuple[Labelled, int]], scores: pa.Table, verdicts: Verdicts) -> None:
    """What was kept although something is wrong with it, the lowest score first."""
    names, given = scores["file_name"].to_pylist(), scores["given_label"].to_pylist()
    doubtful = [(image, place) for image, place in stay if verdicts.doubts[place]]
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("file_name", "kept_as", "label", "label_score", "reason"))
        for image, place in sorted(doubtful, key=lambda pair: pair[0].score or 0.0):
            cells = (names[place], image.file_name, given[place])
            table.writerow((*map(csv_cell, cells), f"{image.score or 0.0:.4f}", csv_cell(verdicts.doubts[place] or "")))
