"""The first page: how much of the data is clean, what is wrong or not clear, and how that was found out."""

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
from somnet.report.thumbnails import picture_name
from somnet.runs.doubt import FEWEST, flagged_sentence
from somnet.runs.run_folder import RunFolder
from somnet.system.files import csv_text
from somnet.system.folders import CONFIG, DUPLICATES
from somnet.system.progress import duration

MOST_SHOWN = 12  # pictures on the page of the images to judge first; the list has all of them
MOST_HELD_OUT = 1_000_000  # images, that copies may be among
MOST_LISTED = 200  # unreadable files and groups of duplicates on the page; the tables of the run have all
TITLES = {
    "clean": "Clean",
    "label": "Wrong labels",
    "outlier": "Outliers",
    "unclear": "Not clear",
    "background": "Small among clutter",
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
    groups = read_duplicates(run.path / DUPLICATES, len(records))
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
        to_judge=to_judge(records, pictures)[:MOST_SHOWN],
        to_judge_count=int((records.review_order > 0).sum()),
        unchecked=unchecked(run, records, pictures),
        facts=facts(run),
        unreadable=list(zip(records.names(shown), reasons, strict=True)),
        unreadable_count=len(unreadable),
        groups=groups[:MOST_LISTED],
        group_count=len(groups),
        leaks=sum(group.leak for group in groups),
    )


@dataclass(frozen=True)
class ToJudge:
    """An image whose judgement would tell much about others."""

    row: int
    name: str
    label: str
    state: str
    picture: str | None  # its file, if the report has one


def to_judge(records: Records, pictures: NDArray[np.bool_]) -> list[ToJudge]:
    """The images whose judgement would tell most, the best first."""
    rows = np.flatnonzero(records.review_order)
    rows = rows[np.argsort(records.review_order[rows])]
    return [
        ToJudge(
            row,
            name,
            records.classes[records.label[row]],
            STATES[records.state[row]],
            picture_name(row) if pictures[row] else None,
        )
        for row, name in zip(rows.tolist(), records.names(rows), strict=True)
    ]


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
    if len(records) - int(records.unreadable.sum()) < FEWEST:
        lines.append(f"Labels: fewer than {FEWEST} images tell nothing about each other, so no label was doubted.")
    if not records.regions.weighed:  # all weight is on whole images
        lines.append(
            f"Small among clutter: the method {run.config.method} tells nothing about regions. Train with somnet+."
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


def read_duplicates(file: Path, images: int) -> list[Copies]:
    """The groups of duplicates.csv, leaks between train and held-out images first; ValueError for impossibly many."""
    if not file.is_file():
        return []
    text = dict.fromkeys(("group", "file_name", "split", "label", "exact"), pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    members: dict[str, list[dict[str, Any]]] = {}
    table = pyarrow.csv.read_csv(file, parse_options=parse, convert_options=options)
    if table.num_rows > images + MOST_HELD_OUT:
        raise ValueError(f"{file.name} has {table.num_rows:,} rows")
    for row in table.to_pylist():
        members.setdefault(row["group"], []).append(row)
    groups = [_copies(rows) for rows in members.values()]
    return sorted(groups, key=lambda group: not group.leak)


def _copies(rows: Sequence[dict[str, Any]]) -> Copies:
    files = tuple((csv_text(row["file_name"]), row["split"], csv_text(row["label"])) for row in rows)
    splits = {row["split"] for row in rows}
    return Copies(files, all(row["exact"].lower() == "true" for row in rows), "train" in splits and len(splits) > 1)
