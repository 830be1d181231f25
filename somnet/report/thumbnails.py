"""Small pictures of the images a person will look at, as files of the report."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from somnet.data.decode import read_picture
from somnet.data.location import Location
from somnet.data.sources import open_source
from somnet.errors import DataError, UnreadableImage
from somnet.report.records import Records
from somnet.system.files import display_name
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
    clean = np.flatnonzero(records.flags["clean"][rows] & ~records.doubted[rows])
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
    source: Location
    target: str
    key: bytes | None  # of what was trained on, if that is known


def write_pictures(
    records: Records, data: Path, folder: Path, most: int, keys: Mapping[str, bytes | None]
) -> NDArray[np.bool_]:
    """Write the pictures of the chosen images, and tell (n,) which images have one now.

    `keys`: of the content that was trained on, by name. An image that is another one since gets no picture.
    """
    have = np.zeros(len(records), bool)
    rows = chosen_rows(records, most)
    names = records.names(rows)
    places = find_images(data, names)
    located = [(row, place) for row, place in zip(rows.tolist(), places, strict=True) if place is not None]
    key_of = {row: keys.get(name) for row, name in zip(rows.tolist(), names, strict=True)}
    for number in sorted({row // ROWS_PER_FOLDER for row, _ in located}):
        (folder / "pictures" / str(number)).mkdir(parents=True)
    tasks = [_Task(place, str(folder / picture_name(row)), key_of[row]) for row, place in located]
    done = 0
    with track("pictures", len(tasks)) as advance:
        for chunk in on_all_cores(_write_picture, tasks):
            have[[row for row, _ in located[done : done + len(chunk)]]] = chunk
            done += len(chunk)
            advance(len(chunk))
    if missing := len(rows) - int(have.sum()):
        log.warning("the report has no picture of %d images: they are gone or have changed at %s", missing, data)
    return have


def write_held_out(names: Sequence[str], data: Path, folder: Path) -> dict[str, str]:
    """Pictures of images that are not trained on, as twins of training images; where each lies in the report."""
    places = find_images(data, names) if names else []
    found = [(name, place) for name, place in zip(names, places, strict=True) if place is not None]
    if found:
        (folder / HELD_OUT).mkdir(parents=True)
    tasks = [_Task(place, str(folder / HELD_OUT / f"{number}.jpg"), None) for number, (_, place) in enumerate(found)]
    done = [have for chunk in on_all_cores(_write_picture, tasks) for have in chunk]
    return {name: f"{HELD_OUT}/{n}.jpg" for n, ((name, _), have) in enumerate(zip(found, done, strict=True)) if have}


def find_images(data: Path, names: Sequence[str]) -> list[Location | None]:
    """Where the images of these names are, or None; a name in a table need not be how the file system spells it."""
    try:
        index = open_source(data)
    except (DataError, OSError):
        return [None] * len(names)
    wanted = set(names)
    shown = (display_name(name) for name in index.column("file_name"))
    row = {name: number for number, name in enumerate(shown) if name in wanted}
    return [index.location(row[name]) if name in row else None for name in names]


def _write_picture(task: _Task) -> bool:
    try:
        image = read_picture(task.source, at_least=SIDE * 3 // 4, key=task.key).image
    except UnreadableImage:
        return False
    image.thumbnail((SIDE, SIDE))
    image.save(task.target, "JPEG", quality=QUALITY)
    return True
