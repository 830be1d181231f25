"""The training page: every figure that was logged, epoch by epoch, as small curves that share an axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from somnet.report.chart import axis_ticks
from somnet.report.frame import Frame, write_data
from somnet.runs.run_folder import RunFolder
from somnet.system.files import parse_json
from somnet.system.folders import METRICS

WIDTH, HEIGHT = 360, 172  # of a curve, in its own units
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 18, 22  # its margins
MOST_DOTS = 60  # epochs that are drawn as dots too
X_TICKS, Y_TICKS = 6, 4
SMALLEST_RANGE = 1e-8  # of values that an axis tells apart

PLACE = ("phase", "epoch", "epochs", "steps")  # where a row belongs: no figures
SECTIONS = (  # title, and how the names of its values begin
    ("Outcome", ("test/", "scores/")),
    ("Losses", ("loss/",)),
    ("Memory", ("memory/",)),
    ("Schedule", ("keep", "lr/", "seconds")),
)
OTHER = "The method’s own figures"
PHASES = {  # of the paper's method, in words
    "init-cnn": "the network alone",
    "init-memory": "the memory alone",
    "joint": "network and memory",
}
TITLES = {  # name: title and what it says
    "test/top1": ("Accuracy", "share of test images that are classified rightly"),
    "scores/stability": ("Score stability", "rank correlation of the images’ scores with those an epoch before"),
    "loss/cls": ("Classification loss", "cross entropy, Eq. 1"),
    "loss/som_key": ("Key loss", "summed over the neighbourhood, Eq. 8"),
    "loss/d_value": ("d-value loss", "Eq. 4"),
    "loss/r_value": ("r-value loss", "Eq. 6"),
    "loss/early": ("Early-learning term", "keeps to early predictions"),
    "loss/divergence": ("Divergence", "of the predictions from the labels that are learnt"),
    "loss/entropy": ("Entropy", "of the predictions"),
    "loss/prior": ("Prior term", "how far the predictions are from the shares of the classes"),
    "loss/meta": ("Meta loss", "disagreement with the mean network after a step on other labels"),
    "loss/prototype": ("Prototype loss", "against the means of the classes"),
    "loss/instance": ("Instance loss", "two views of an image against all others"),
    "loss/reverse": ("Reverse cross entropy", "of the labels, as the predictions see them"),
    "loss/labelled": ("Loss, believed labels", "cross entropy of mixed images"),
    "loss/unlabelled": ("Loss, doubted labels", "squared difference from the guessed labels"),
    "loss/balance": ("Balance", "how far the predictions are from equal shares"),
    "memory/occupancy": ("Occupancy entropy", "1: all slots win alike, 0: one slot wins all"),
    "memory/quantisation": ("Quantisation error", "mean of 1 − cosine of a bag and its winner"),
    "memory/topographic": ("Topographic error", "share of bags whose two nearest slots do not touch"),
    "memory/dead": (
        "Idle slots",
        "that won nothing in the steps of the epoch; the memory map counts dead slots on all regions",
    ),
    "keep": ("p", "share of regions that keep their weight"),
    "lr/network": ("Learning rate, network", "at the end of the epoch"),
    "lr/keys": ("Learning rate, keys", "at the end of the epoch"),
    "lr/d": ("Learning rate, D", "at the end of the epoch"),
    "lr/r": ("Learning rate, R", "at the end of the epoch"),
    "seconds": ("Seconds", "that the epoch took"),
}


def in_words(losses: Mapping[str, float]) -> str:
    """The losses of a step for a screen, with names that tell what they are."""
    names = {name: TITLES.get(f"loss/{name}", (name.replace("_", " "), ""))[0].lower() for name in losses}
    return ", ".join(f"{names[name]} {loss:.3f}" for name, loss in losses.items())


@dataclass(frozen=True)
class Stretch:
    """Epochs in a row of one kind."""

    number: int
    name: str
    epochs: int
    x: float
    width: float


@dataclass(frozen=True)
class Curve:
    """A figure over the epochs, in the units of its drawing."""

    name: str
    title: str
    note: str
    last: str  # value
    lines: Sequence[str]  # points of polylines: epochs that did not log the value interrupt them
    dots: Sequence[tuple[float, float]]
    y_ticks: Sequence[tuple[float, str]]


def write_training_page(frame: Frame, run: RunFolder, folder: Path) -> None:
    """training.html, with data/training.js for the values under the pointer."""
    rows = read_metrics(run.path / METRICS)
    names = figure_names(rows)
    curves = {name: draw_curve(name, [row.get(name) for row in rows]) for name in names}
    sections = [(title, [curves[name] for name in names if section_of(name) == title]) for title in section_titles()]
    frame.write_page(
        folder,
        "training.html",
        "training.html",
        page="Training",
        rows=rows,
        stretches=stretches(rows),
        phases=PHASES,
        sections=[(title, own) for title, own in sections if own],
        x_ticks=x_ticks(len(rows)),
        names=names,
        titles={name: curves[name].title for name in names},
        text=as_text,
        size={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
    )
    write_data(
        folder,
        "training",
        {
            "x": [round(place(number, len(rows)), 2) for number in range(len(rows))],
            "epochs": [f"{row['phase']}, epoch {row['epoch'] + 1} of {row['epochs']}" for row in rows],
            "values": {name: [as_text(row.get(name)) for row in rows] for name in names},
        },
    )


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; values that are not numbers are left out."""
    if not file.is_file():
        return []
    rows = [parse_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name in PLACE or _is_number(value)} for row in rows]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def figure_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All figures of a run: known ones in the order of TITLES, then the others."""
    logged = {name: None for row in rows for name in row if name not in PLACE}
    return [*(name for name in TITLES if name in logged), *(name for name in logged if name not in TITLES)]


def section_titles() -> list[str]:
    """In the order of the page."""
    titles = [title for title, _ in SECTIONS]
    return [*titles[:-1], OTHER, titles[-1]]


def section_of(name: str) -> str:
    """The section that a figure is shown in."""
    return next((title for title, beginnings in SECTIONS if name.startswith(beginnings)), OTHER)


def place(number: float, count: int) -> float:
    """Where the epoch of this number, from 0, lies from left to right."""
    return LEFT + (WIDTH - LEFT - RIGHT) * (number + 0.5) / max(1, count)


def stretches(rows: Sequence[Mapping[str, Any]]) -> list[Stretch]:
    """The phases of a run; those that follow each other under one name are one."""
    stretches: list[Stretch] = []
    first = 0
    for name, own in groupby(rows, key=lambda row: str(row["phase"])):
        count = len(list(own))
        x, end = place(first - 0.5, len(rows)), place(first + count - 0.5, len(rows))
        stretches.append(Stretch(len(stretches) + 1, name, count, x, end - x))
        first += count
    return stretches


def x_ticks(count: int) -> list[tuple[float, str]]:
    """Epochs to name below the axis, counted from 1 over all phases."""
    if count <= 1:
        return [(place(0, 1), "1")] * count
    ticks = {1, *(round(tick) for tick in axis_ticks(1, count, X_TICKS) if tick == round(tick) and 1 < tick <= count)}
    return [(place(tick - 1, count), str(tick)) for tick in sorted(ticks)]


def draw_curve(name: str, values: Sequence[float | None]) -> Curve:
    """The curve of a figure that at least one epoch has logged."""
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    if high - low < SMALLEST_RANGE * max(1.0, abs(high)):  # a flat curve lies in the middle
        low, high = low - max(SMALLEST_RANGE, abs(low) / 2), high + max(SMALLEST_RANGE, abs(high) / 2)
    ticks = axis_ticks(low, high, Y_TICKS)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    points = [None if value is None else (place(n, len(values)), y(value)) for n, value in enumerate(values)]
    runs = [[point for point in own if point is not None] for known, own in groupby(points, bool) if known]
    title, note = TITLES.get(name, (name, ""))
    return Curve(
        name=name,
        title=title,
        note=note,
        last=as_text(known[-1]),
        lines=[" ".join(f"{x:.1f},{y:.1f}" for x, y in run) for run in runs],
        dots=[point for run in runs for point in run if len(values) <= MOST_DOTS or len(run) == 1],
        y_ticks=[(y(tick), f"{tick:g}") for tick in ticks],
    )


def as_text(value: float | None) -> str:
    """A value as text."""
    return "" if value is None else f"{value:.4g}"
