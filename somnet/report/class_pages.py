"""The class pages with their image cards: worst images first, beside clean ones, and a live threshold."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from somnet.report.frame import Frame, write_data
from somnet.report.records import STATES, Records
from somnet.report.thumbnails import exemplars

THRESHOLDS = 100  # the threshold moves in steps of 1 / THRESHOLDS
BINS = 50  # bars of the histogram
IMAGES_PER_FILE = 100
CERTAIN = 0.8  # label_score from which on an image is called clean


def write_class_pages(frame: Frame, records: Records, pictures: NDArray[np.bool_], folder: Path) -> None:
    """class.html, data/class-C.js for every class, and data/class-C-K.js with what the cards show of its images."""
    frame.write_page(folder, "class.html", "class.html", page="Classes")
    for number, rows in records.by_class():
        write_data(folder, f"class-{number}", describe_class(records, rows, pictures))
        for first in range(0, len(rows), IMAGES_PER_FILE):
            cards = describe_images(records, rows[first : first + IMAGES_PER_FILE])
            write_data(folder, f"class-{number}-{first // IMAGES_PER_FILE}", cards)


def describe_class(records: Records, rows: NDArray[np.int64], pictures: NDArray[np.bool_]) -> dict[str, Any]:
    """What the sheet and the threshold of a class need: little for every image of it."""
    doubted = records.doubted[rows]
    score = records.label_score[rows]
    return {
        "rows": rows.tolist(),
        "states": "".join(STATES[state][0] for state in records.state[rows]),
        "pictures": "".join("01"[have] for have in pictures[rows].astype(int)),
        "exemplars": exemplars(records, rows).tolist(),
        "below": counts_below(score),
        "histogram": {"agrees": _bars(score[~doubted]), "differs": _bars(score[doubted])},
    }


def counts_below(score: NDArray[np.float64]) -> list[int]:
    """How many scores lie below each step of the threshold, from 0 to 1."""
    steps = np.arange(THRESHOLDS + 1) / THRESHOLDS
    return np.searchsorted(np.sort(score), steps, side="left").tolist()  # type: ignore[no-any-return]


def _bars(score: NDArray[np.float64]) -> list[int]:
    return np.histogram(score, bins=BINS, range=(0, 1))[0].tolist()  # type: ignore[no-any-return]


def describe_images(records: Records, rows: NDArray[np.int64]) -> dict[str, list[Any]]:
    """What the cards of some images show, as columns."""
    names, suggested = records.names(rows), records.suggested[rows]
    clean_boxes = np.array(records.table["clean_box"].take(pa.array(rows)).to_pylist(), np.float64).reshape(-1, 4)
    regions = [describe_regions(records, int(row), box) for row, box in zip(rows, clean_boxes, strict=True)]
    return {
        "name": names,
        "predicted": np.where(suggested < 0, records.predicted[rows], suggested).tolist(),
        "sure": (suggested >= 0).astype(int).tolist(),
        "score": records.label_score[rows].round(4).tolist(),
        "background": records.background_score[rows].round(4).tolist(),
        "why": [why(records, int(row)) for row in rows],
        "regions": regions,
    }


def describe_regions(records: Records, row: int, clean_box: NDArray[np.float64]) -> dict[str, Any]:
    """The boxes of an image, their weights, slots and scores, and which of them is the best."""
    regions, number = records.regions, records.readable_number[row]
    mine = slice(regions.first[number], regions.first[number + 1])
    box = regions.box[mine]
    return {
        "size": box[0, 2:].tolist(),
        "box": box.ravel().tolist(),
        "weight": regions.weight[mine].tolist(),
        "best": int(np.abs(box - clean_box).sum(axis=1).argmin()),
        **{name: value[mine].tolist() for name, value in regions.details.items()},
    }


def percent(share: float) -> str:
    """A share as text: 4 %."""
    return f"{100 * share:.0f} %"


def why(records: Records, row: int) -> str:
    """One plain sentence: why an image is suspicious, or clean."""
    given, predicted = (records.classes[number] for number in (records.label[row], records.predicted[row]))
    score, background = records.label_score[row], records.background_score[row]
    state = STATES[records.state[row]]
    if state == "label":
        other = records.suggested[row]
        instead = f" and are sure of “{records.classes[other]}”" if other >= 0 else ""
        return f"Probably not “{given}”: the other images give this label only {percent(score)}{instead}."
    if state == "outlier":
        return "Probably none of the classes: it is less like any of them than their own images are."
    if state == "background":
        doubt = "" if given == predicted else f", or maybe “{predicted}”"
        return (
            f"“{given}” seems to be there{doubt}, but small among clutter: in the whole image it is only "
            f"{percent(background)} as probable as in its best region."
        )
    if state == "duplicate":
        return "Its content is in the training images once more; one copy is enough."
    if given != predicted:
        return f"Not clear: the model would say “{predicted}”, but the given label “{given}” has {percent(score)}."
    if score < CERTAIN:
        return (
            f"Probably right, but not certain: the model sees “{given}” too, but the label has only {percent(score)}."
        )
    return f"Clean: the model sees “{given}” too, and the label has {percent(score)}."
