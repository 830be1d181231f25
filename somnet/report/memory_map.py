"""The memory map: the SOM grid to explore, as hits, classes, distances and planes, with the nearest regions of a slot.

What the page loads at once is small at any size of the memory: a few numbers per slot. The planes of a class and the
details of a hundred slots are files of their own, loaded when they are looked at.
"""

import base64
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from somnet.errors import UnreadableImage
from somnet.report.frame import Frame, write_data
from somnet.report.originals import Original, Originals
from somnet.report.records import Records
from somnet.report.rois import SlotRois, crops_of, rois_by_slot
from somnet.runs.checkpoint_arrays import load_arrays
from somnet.runs.run_folder import RunFolder
from somnet.system.folders import LAST
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

SLOTS_PER_FILE = 100
SLICES = 40_000  # of all pies together, at least a few each; what is left of a pie is one more
FEWEST_SLICES = 4
SLOT_CLASSES = 12  # of a slot, that its d- and r-score are told for
NEAREST = 12  # regions shown of a slot ...
CROPS = 6000  # ... fewer where the memory is large: crops of all slots together, but at least one each
CROP_SIDE = 112
QUALITY = 75


@dataclass(frozen=True)
class Memory:
    """The tables of a trained memory."""

    keys: NDArray[np.float32]  # (L, F)
    d: NDArray[np.float32]  # (L, C)
    r: NDArray[np.float32]  # (L, C), turned round to go with d

    @property
    def side(self) -> int:
        """Of the square grid."""
        return math.isqrt(len(self.keys))


def read_memory(run: RunFolder) -> Memory | None:
    """The memory of a run, or None if its method has none or its checkpoint is gone."""
    names = [f"method.memory.{name}" for name in ("keys", "d", "r")]
    arrays = load_arrays(run.path / LAST, names) if (run.path / LAST).is_file() else {}
    if names[0] not in arrays:
        return None
    keys, d, r = (arrays[name].astype(np.float32) for name in names)
    return Memory(keys, d, r.T)


def write_memory_pages(frame: Frame, run: RunFolder, records: Records, originals: Originals, folder: Path) -> None:
    """memory.html with its data and crops; for a method without memory a page that says so."""
    with_slots = "slot" in records.regions.details
    memory = read_memory(run) if with_slots else None
    state = {"has_memory": memory is not None, "is_gone": with_slots and memory is None}
    frame.write_page(folder, "memory.html", "memory.html", page="Memory", method=run.config.method, **state)
    if memory is not None:
        labels = records.label[~records.unreadable]
        rois = rois_by_slot(records.regions, len(memory.keys), labels, memory.d.shape[1], NEAREST)
        chosen = choose_rois(rois)
        have = write_crops(records, rois, chosen, originals, folder)
        write_map_data(memory, records, rois, chosen, have, folder)


def write_map_data(
    memory: Memory, records: Records, rois: SlotRois, chosen: list[list[int]], have: set[int], folder: Path
) -> None:
    """data/memory.js, data/plane-C.js for every class and data/slots-K.js for every hundred slots."""
    write_data(folder, "memory", describe_map(memory, rois.class_hits))
    for number in range(memory.d.shape[1]):
        planes = {"d": quantised(memory.d[:, number]), "r": quantised(memory.r[:, number])}
        write_data(folder, f"plane-{number}", planes)
    for first in range(0, len(memory.keys), SLOTS_PER_FILE):
        slots = range(first, min(first + SLOTS_PER_FILE, len(memory.keys)))
        described = describe_slots(memory, records, rois, slots, chosen, have)
        write_data(folder, f"slots-{first // SLOTS_PER_FILE}", described)


def describe_map(memory: Memory, counts: NDArray[np.int64]) -> dict[str, Any]:
    """What the page needs of every slot."""
    slots, classes = counts.shape
    kept = min(classes, max(FEWEST_SLICES, SLICES // slots))
    largest = np.argsort(-counts, axis=1, kind="stable")[:, :kept]  # (L, kept)
    return {
        "side": memory.side,
        "slotsPerFile": SLOTS_PER_FILE,
        "hits": counts.sum(axis=1).tolist(),
        "distance": quantised(u_matrix(memory.keys, memory.side)),
        "slices": kept,
        "sliceClass": largest.ravel().tolist(),
        "sliceHits": np.take_along_axis(counts, largest, axis=1).ravel().tolist(),
    }


def u_matrix(keys: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Mean cosine distance (L,) of each unit key to those of the slots beside it; ridges separate clusters."""
    grid = keys.reshape(side, side, -1)
    total, count = np.zeros((side, side), np.float32), np.zeros((side, side), np.float32)
    for here, beside in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])):
        distance = 1.0 - (here * beside).sum(axis=2)  # (rows, columns) that have a slot below, or to the right
        rows, columns = distance.shape
        for first_row, first_column in ((0, 0), (side - rows, side - columns)):  # each pair counts for both
            place = slice(first_row, first_row + rows), slice(first_column, first_column + columns)
            total[place] += distance
            count[place] += 1
    return np.asarray((total / count.clip(min=1)).clip(min=0).ravel())


def quantised(values: NDArray[np.floating]) -> dict[str, Any]:
    """Numbers from 0 on as bytes of the largest one: a 255th of it is as fine as a colour tells."""
    top = float(values.max(initial=0.0))
    levels = np.rint(values / (top or 1.0) * 255).astype(np.uint8)
    return {"top": top, "levels": base64.b64encode(levels.tobytes()).decode("ascii")}


def describe_slots(
    memory: Memory, records: Records, rois: SlotRois, slots: range, chosen: list[list[int]], have: set[int]
) -> list[dict[str, Any]]:
    """What the page shows of each slot when it is opened: its classes by S = D x R, and its nearest regions."""
    classes = np.argsort(-memory.d[slots] * memory.r[slots], axis=1, kind="stable")[:, :SLOT_CLASSES]
    row_of = np.flatnonzero(~records.unreadable)  # (n,) of the readable images
    return [
        {
            "classes": own.tolist(),
            "d": _rounded(memory.d[slot, own]),
            "r": _rounded(memory.r[slot, own]),
            "rois": _describe_rois(records, rois, np.array(chosen[slot], np.int64), row_of, have),
        }
        for slot, own in zip(slots, classes, strict=True)
    ]


def _describe_rois(
    records: Records, rois: SlotRois, chosen: NDArray[np.int64], row_of: NDArray[np.int64], have: set[int]
) -> dict[str, list[Any]]:
    image = rois.nearest.image[chosen]
    rows = row_of[image]
    return {
        "row": rows.tolist(),
        "label": records.label[rows].tolist(),
        "name": records.names(rows),
        "region": (rois.nearest.number[chosen] - records.regions.first[image]).tolist(),
        "similarity": _rounded(rois.nearest.similarity[chosen]),
        "crop": [int(roi in have) for roi in chosen.tolist()],
    }


def _rounded(values: NDArray[np.floating]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


# --- crops


def choose_rois(rois: SlotRois) -> list[list[int]]:
    """The nearest ROIs of every slot that will be shown, by their places among those that are known."""
    each = max(1, min(NEAREST, CROPS // max(1, int((rois.hits > 0).sum()))))
    return [rois.of_slot(slot, each) for slot in range(len(rois.hits))]


def crop_name(slot: int, place: int) -> str:
    """Where a crop lies in a report; memory.js knows the same rule."""
    return f"crops/{slot // SLOTS_PER_FILE}/{slot}-{place}.jpg"


@dataclass(frozen=True)
class _Task:
    source: Original
    at_least: int
    boxes: NDArray[np.int32]  # (n, 4)
    targets: list[str]
    rois: list[int]


def write_crops(
    records: Records, rois: SlotRois, chosen: list[list[int]], originals: Originals, folder: Path
) -> set[int]:
    """Write the crops of the chosen ROIs, and tell which ROIs have one now; each image is decoded once."""
    wanted: dict[int, list[tuple[int, str]]] = defaultdict(list)  # image -> its ROIs and where they go
    for slot, mine in enumerate(chosen):
        for place, roi in enumerate(mine):
            wanted[int(rois.nearest.image[roi])].append((roi, str(folder / crop_name(slot, place))))
    for number in {slot // SLOTS_PER_FILE for slot, mine in enumerate(chosen) if mine}:
        (folder / "crops" / str(number)).mkdir(parents=True)
    images = sorted(wanted)
    rows = np.flatnonzero(~records.unreadable)[images] if images else np.zeros(0, np.int64)
    tasks = [
        _task(records, rois, image, source, wanted[image])
        for image, source in zip(images, originals.find(records.names(rows)), strict=True)
        if source is not None
    ]
    have: set[int] = set()
    with track("crops", len(tasks)) as advance:
        for chunk in on_all_cores(_write_crops, tasks, in_order=False):
            have.update(roi for written in chunk for roi in written)
            advance(len(chunk))
    return have


def _task(records: Records, rois: SlotRois, image: int, source: Original, wanted: list[tuple[int, str]]) -> _Task:
    numbers = [roi for roi, _ in wanted]
    all_boxes = records.regions.of_image(image).box
    boxes = all_boxes[rois.nearest.number[numbers] - records.regions.first[image]]
    whole = all_boxes[0]  # the image itself
    longest = max(1, int((boxes[:, 2:] - boxes[:, :2]).max(axis=1).min()))  # side of the smallest box
    at_least = -(-CROP_SIDE * int(whole[2:].min()) // longest)
    return _Task(source, at_least, boxes, [target for _, target in wanted], numbers)


def _write_crops(task: _Task) -> list[int]:
    try:
        crops = crops_of(task.source.read(task.at_least), task.boxes)
    except UnreadableImage:
        return []
    for crop, target in zip(crops, task.targets, strict=True):
        crop.thumbnail((CROP_SIDE, CROP_SIDE))
        crop.save(target, "JPEG", quality=QUALITY)
    return task.rois
