"""What the pages show of every image: a few numbers of all, and a card of each with the reason for its state."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from somnet.report.frame import Frame, write_data
from somnet.report.records import CERTAIN, STATES, Records
from somnet.report.similar import Similar
from somnet.report.twins import Twins
from somnet.runs.kinds import explain, percent

THRESHOLDS = 100  # the threshold moves in steps of 1 / THRESHOLDS
IMAGES_PER_FILE = 100


@dataclass(frozen=True)
class Beside:
    """The other images that a card shows: copies of the same picture, and similar ones, if the run can tell."""

    twins: Twins
    similar: Similar | None = None

    def of(self, rows: NDArray[np.int64]) -> dict[str, list[Any]]:
        """Those of some images, as columns."""
        columns: dict[str, list[Any]] = {"twins": [self.twins.get(row) for row in rows.tolist()]}
        if self.similar is not None:
            found = {"nearest": self.similar.of_all, "given": self.similar.of_given, "seen": self.similar.of_seen}
            columns |= {
                name: [[o for o in own if o >= 0] for own in some[rows].tolist()] for name, some in found.items()
            }
        return columns


def write_image_pages(
    frame: Frame, records: Records, pictures: NDArray[np.bool_], beside: Beside, folder: Path
) -> None:
    """list.html and class.html, data/images.js with numbers of all images, data/cards-K.js with what the cards show."""
    frame.write_page(folder, "list.html", "list.html", page="Issues")
    frame.write_page(folder, "class.html", "class.html", page="Classes")
    write_data(folder, "images", describe_all(records, pictures))
    for first in range(0, len(records), IMAGES_PER_FILE):
        rows = np.arange(first, min(first + IMAGES_PER_FILE, len(records)))
        cards = {**describe_images(records, rows), **beside.of(rows)}
        write_data(folder, f"cards-{first // IMAGES_PER_FILE}", cards)


def describe_all(records: Records, pictures: NDArray[np.bool_]) -> dict[str, Any]:
    """What lists, filters and the threshold need of every image: some bytes each, so that a page can have them all."""
    flags = sum(records.flags[state].astype(np.uint16) << bit for bit, state in enumerate(STATES))
    return {
        "label": packed(records.label.astype(np.int32)),
        "seen": packed(seen(records).astype(np.int32)),
        "sure": packed((records.suggested >= 0).astype(np.uint8)),
        "score": packed(records.label_score.astype(np.float32)),
        "flags": packed(np.asarray(flags, np.uint16)),
        "pictured": packed(pictures.astype(np.uint8)),
        "first": packed(records.review_order.astype(np.uint16)),
    }


def packed(values: NDArray[Any]) -> dict[str, str]:
    """A column as bytes in base64; `somnet.unpack` in a page makes an array of it."""
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    return {"type": values.dtype.name, "bytes": base64.b64encode(data.tobytes()).decode("ascii")}


def seen(records: Records) -> NDArray[np.int64]:
    """Number of the class (n,) that is offered as the new label: the suggested one, else the predicted one."""
    return np.where(records.suggested < 0, records.predicted, records.suggested)


def counts_below(score: NDArray[np.float64]) -> list[int]:
    """How many scores lie below each step of the threshold, from 0 to 1."""
    steps = np.arange(THRESHOLDS + 1) / THRESHOLDS
    return np.searchsorted(np.sort(score), steps, side="left").tolist()  # type: ignore[no-any-return]


def describe_images(records: Records, rows: NDArray[np.int64]) -> dict[str, list[Any]]:
    """What the cards of some images show, as columns."""
    clean_boxes = records.table["clean_box"].take(pa.array(rows)).to_pylist()
    return {
        "name": records.names(rows),
        "background": records.background_score[rows].round(4).tolist(),
        "why": why(records, rows),
        "regions": [describe_regions(records, int(row), box) for row, box in zip(rows, clean_boxes, strict=True)],
    }


def describe_regions(records: Records, row: int, clean_box: list[float] | None) -> dict[str, Any] | None:
    """The boxes of an image, their weights, slots and scores, and which of them is the best; None: unreadable."""
    if records.unreadable[row] or clean_box is None:
        return None
    mine = records.regions.of_image(int(records.readable_number[row]))
    return {
        "size": mine.box[0, 2:].tolist(),
        "box": mine.box.ravel().tolist(),
        "weight": mine.weight.tolist(),
        "best": int(np.abs(mine.box - np.array(clean_box)).sum(axis=1).argmin()),
        **{name: value.tolist() for name, value in mine.details.items()},
    }


def why(records: Records, rows: NDArray[np.int64]) -> list[dict[str, str]]:
    """For each image one plain sentence for each of its states, the gravest first; a sound one has one, too."""
    found = explain(records.table.take(pa.array(rows)))
    return [
        said or {STATES[records.state[row]]: _sound(records, row)}
        for row, said in zip(rows.tolist(), found, strict=True)
    ]


def _sound(records: Records, row: int) -> str:
    given, predicted = (records.classes[number] for number in (records.label[row], records.predicted[row]))
    score = records.label_score[row]
    if given != predicted:
        return f"Not clear: the model would say “{predicted}”, but the given label “{given}” has {percent(score)}."
    if score < CERTAIN:
        untypical = "but this is no typical picture of it, and the label has only"
        return f"Not clear: the model sees “{given}” too, {untypical} {percent(score)}."
    return f"Clean: the model sees “{given}” too, and the label has {percent(score)}."
