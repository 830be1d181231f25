"""Small pictures of the images a person will look at, as files of the report."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from somnet.errors import UnreadableImage
from somnet.report.originals import Original, Originals
from somnet.report.records import Records
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

log = logging.getLogger("somnet")

SIDE = 320  # of a picture, its longer one: enough for the image card
QUALITY = 72
EXEMPLARS = 12  # clean images that a class page shows beside the worst
ROWS_PER_FOLDER = 1000
HELD_OUT = "pictures/held-out"


def picture_name(row: int) -> str:
    """Where the picture of an image lies in a report; somnet.js knows the same rule."""
    return f"pictures/{row // ROWS_PER_FOLDER}/{row}.jpg"


def exemplars(records: Records, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the best clean images in the worst-first rows of a class, the best first."""
    clean = np.flatnonzero(records.flags["clean"][rows])
    return clean[::-1][:EXEMPLARS]


def chosen_rows(records: Records, most: int) -> NDArray[np.int64]:
    """The images that get a picture: of every class the exemplars and the worst, at most `most` in all.

    Small classes are shown whole, and what they leave goes to the large ones.
    """
    classes = [rows for _, rows in records.by_class()]
    budget = fair_shares(np.array([len(rows) for rows in classes], np.int64), most)
    chosen: list[int] = []
    for rows, share in zip(classes, budget.tolist(), strict=True):
        best = rows[exemplars(records, rows)[: share // 2]]
        worst = rows[~np.isin(rows, best)][: share - len(best)]
        chosen += [*best.tolist(), *worst.tolist()]
    return np.array(sorted(chosen), np.int64)


def fair_shares(sizes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """How many of each group to take, `most` in all: small groups whole, large ones equally much."""
    shares = np.zeros_like(sizes)
    left = most
    order = np.argsort(sizes, kind="stable")
    for place, group in enumerate(order):
        shares[group] = min(int(sizes[group]), left // (len(order) - place))
        left -= int(shares[group])
    return shares


@dataclass(frozen=True)
class _Task:
    source: Original
    target: str


def write_pictures(records: Records, originals: Originals, folder: Path, most: int) -> NDArray[np.bool_]:
    """Write the pictures of the chosen images, and tell (n,) which images have one now.

    An image that is another one since gets no picture.
    """
    have = np.zeros(len(records), bool)
    rows = chosen_rows(records, most)
    found = originals.find(records.names(rows))
    located = [(row, source) for row, source in zip(rows.tolist(), found, strict=True) if source is not None]
    for number in sorted({row // ROWS_PER_FOLDER for row, _ in located}):
        (folder / "pictures" / str(number)).mkdir(parents=True)
    tasks = [_Task(source, str(folder / picture_name(row))) for row, source in located]
    done = 0
    with track("pictures", len(tasks)) as advance:
        for chunk in on_all_cores(_write_picture, tasks):
            have[[row for row, _ in located[done : done + len(chunk)]]] = chunk
            done += len(chunk)
            advance(len(chunk))
    if missing := len(rows) - int(have.sum()):
        log.warning(
            "the report has no picture of %d images: they are gone or have changed at %s", missing, originals.data
        )
    return have


def write_held_out(names: Sequence[str], originals: Originals, folder: Path) -> dict[str, str]:
    """Pictures of images that are not trained on, as twins of training images; where each lies in the report."""
    places = originals.find(names) if names else []
    found = [(name, place) for name, place in zip(names, places, strict=True) if place is not None]
    if found:
        (folder / HELD_OUT).mkdir(parents=True)
    tasks = [_Task(place, str(folder / HELD_OUT / f"{number}.jpg")) for number, (_, place) in enumerate(found)]
    done = [have for chunk in on_all_cores(_write_picture, tasks) for have in chunk]
    return {name: f"{HELD_OUT}/{n}.jpg" for n, ((name, _), have) in enumerate(zip(found, done, strict=True)) if have}


def _write_picture(task: _Task) -> bool:
    try:
        image = task.source.read(at_least=SIDE * 3 // 4).image
    except UnreadableImage:
        return False
    image.thumbnail((SIDE, SIDE))
    image.save(task.target, "JPEG", quality=QUALITY)
    return True
