"""The first page: how much of the data is clean, what is wrong with the rest, and how that was found out."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from somnet.report.frame import Frame
from somnet.report.records import STATES, Records
from somnet.runs.doubt import flagged_sentence
from somnet.runs.run_folder import RunFolder
from somnet.system.files import csv_text
from somnet.system.folders import CONFIG, DUPLICATES
from somnet.system.progress import duration

MOST_LISTED = 200  # unreadable files and groups of duplicates on the page; the tables of the run have all
TITLES = {
    "clean": "Clean",
    "label": "Wrong labels",
    "outlier": "Outliers",
    "background": "Background noise",
    "poor": "Poor pictures",
    "duplicate": "Duplicates",
    "test-leak": "Leaks into test",
    "unreadable": "Unreadable",
}


@dataclass(frozen=True)
class Row:
    """A class or the whole data set as counts."""

    name: str
    number: int | None  # of the class page; None where there is nothing to see
    images: int
    counts: dict[str, int]  # by fault; an image can have several
    bar: tuple[tuple[str, float, float], ...]  # state, where its segment begins and how long it is, in percent


@dataclass(frozen=True)
class Copies:
    """A group of files with the same picture."""

    files: tuple[tuple[str, str, str], ...]  # name, split, label
    exact: bool
    leak: bool  # in train and held out at once


def write_overview(frame: Frame, run: RunFolder, records: Records, pictures: NDArray[np.bool_], folder: Path) -> None:
    """index.html."""
    groups = read_duplicates(run.path / DUPLICATES)
    rows = [count_row(records, name, number) for number, name in enumerate(records.classes)]
    unreadable = np.flatnonzero(records.unreadable)
    shown = unreadable[:MOST_LISTED]
    reasons = records.table["unreadable_reason"].take(pa.array(shown)).to_pylist()
    frame.write_page(
        folder,
        "index.html",
        "overview.html",
        page="Overview",
        titles=TITLES,
        flagged=flagged_sentence(records.table).capitalize(),
        total=count_row(records, "All images", None),
        rows=sorted(rows, key=lambda row: -(row.counts["label"] + row.counts["outlier"]) / max(row.images, 1)),
        test=run.summary["test"],
        to_review=to_review(records),
        unchecked=unchecked(run, records, pictures),
        facts=facts(run),
        unreadable=list(zip(records.names(shown), reasons, strict=True)),
        unreadable_count=len(unreadable),
        groups=groups[:MOST_LISTED],
        group_count=len(groups),
        leaks=sum(group.leak for group in groups),
    )


def to_review(records: Records) -> list[tuple[str, int, int]]:
    """Name, class and row of the images whose judgement would tell most, the best first."""
    if "review_order" not in records.table.column_names:  # a run of an older version
        return []
    order = np.asarray(records.table["review_order"].fill_null(0).to_numpy())
    rows = np.flatnonzero(order)
    rows = rows[np.argsort(order[rows])]
    return list(zip(records.names(rows), records.label[rows].tolist(), rows.tolist(), strict=True))


def count_row(records: Records, name: str, number: int | None) -> Row:
    """Counts of a class, or of all images."""
    mine = slice(None) if number is None else records.label == number
    states = np.bincount(records.state[mine], minlength=len(STATES))
    images = int(states.sum())
    shares = 100 * states / max(images, 1)
    starts = np.cumsum(shares) - shares
    return Row(
        name,
        number if (states[:-1] > 0).any() else None,
        images,
        {fault: int(flag[mine].sum()) for fault, flag in records.flags.items()},
        tuple(zip(STATES, starts.round(2).tolist(), shares.round(2).tolist(), strict=True)),
    )


def unchecked(run: RunFolder, records: Records, pictures: NDArray[np.bool_]) -> list[str]:
    """What the numbers of this report do not tell, as sentences."""
    lines = []
    if not run.summary["test"]["n"]:
        lines.append(
            "Accuracy: the data has no test images. Put some, rightly labelled, under test/, or use somnet eval."
        )
    if not knows_regions(records):
        lines.append(
            f"Background noise: the method {run.config.method} tells nothing about regions. Train with somnet+."
        )
    if "duplicate_group" not in records.table.column_names:
        lines.append(
            "Near duplicates: only files with exactly the same content were looked for, in the training images."
        )
    if "suggested_label" not in records.table.column_names:
        lines.append("Outliers and suggested labels: this run is of an older version. Train again to get them.")
    if "poor_picture_score" not in records.table.column_names:
        lines.append("Poor pictures and leaks into test: this run is of an older version. Train again to get them.")
    held_out = run.summary["data"]["unreadable"] - int(records.unreadable.sum())
    if held_out:
        lines.append(f"{held_out} held-out files could not be read; train.log names them.")
    without = int((~pictures & ~records.unreadable).sum())
    if without:
        lines.append(
            f"Pictures: {without:,} of {len(records):,} images are shown by name and boxes only. Images that are gone "
            "have no picture, and of a large data set every class shows its worst and best: somnet report --pictures "
            "has more."
        )
    return lines


def knows_regions(records: Records) -> bool:
    """Whether the method has weighed regions: one that has not gives all weight to the image itself."""
    regions = records.regions
    proposed = np.ones(len(regions.weight), bool)
    proposed[regions.first[:-1]] = False
    return bool(regions.weight[proposed].any())


def facts(run: RunFolder) -> list[tuple[str, str]]:
    """How the run was made, so that it can be made again."""
    summary = run.summary
    versions = summary.get("versions", {})
    seconds = summary["seconds"]["total"]
    command = ["somnet", "train", run.data["path"], "--config", str(run.path / CONFIG), "--out", "NEW_FOLDER"]
    return [
        ("Make it again", shlex.join(command)),
        ("Method", f"{run.config.method}, {run.config.model.name} at {run.config.model.imgsz} pixels"),
        ("Seed", str(run.config.seed)),
        ("Settings", f"{CONFIG}, hash {summary['config_hash']}"),
        ("Data", f"{run.data['path']}, hash {run.data['fingerprint']} of {run.data['images']:,} training images"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in versions.items()) or "not recorded"),
        ("Took", duration(seconds)),
    ]


def read_duplicates(file: Path) -> list[Copies]:
    """The groups of duplicates.csv, leaks between train and held-out images first."""
    if not file.is_file():
        return []
    text = dict.fromkeys(("group", "file_name", "split", "label", "exact"), pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    members: dict[str, list[dict[str, Any]]] = {}
    for row in pyarrow.csv.read_csv(file, parse_options=parse, convert_options=options).to_pylist():
        members.setdefault(row["group"], []).append(row)
    groups = [_copies(rows) for rows in members.values()]
    return sorted(groups, key=lambda group: not group.leak)


def _copies(rows: Sequence[dict[str, Any]]) -> Copies:
    files = tuple((csv_text(row["file_name"]), row["split"], csv_text(row["label"])) for row in rows)
    splits = {row["split"] for row in rows}
    return Copies(files, all(row["exact"].lower() == "true" for row in rows), "train" in splits and len(splits) > 1)
