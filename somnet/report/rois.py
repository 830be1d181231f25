"""The regions of a run by memory slot, the nearest to the slot's key first, and their crops."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from somnet.data.decode import Picture
from somnet.errors import RunError
from somnet.report.regions import Regions, SlotRegions


@dataclass(frozen=True)
class SlotRois:
    """How many ROIs each memory slot has won, and the nearest of them, each of another image."""

    hits: NDArray[np.int64]  # (L,)
    class_hits: NDArray[np.int64]  # (L, C) of images of each class
    nearest: SlotRegions  # (k,) ordered by slot, the nearest to its key first
    bounds: NDArray[np.int64]  # (L + 1,) those of slot l are bounds[l] to bounds[l + 1]

    def of_slot(self, slot: int, count: int) -> list[int]:
        """Places of the ROIs nearest to a slot, among all that are known."""
        return list(range(self.bounds[slot], min(self.bounds[slot + 1], self.bounds[slot] + count)))


def rois_by_slot(regions: Regions, slots: int, labels: NDArray[np.int64], classes: int, most: int) -> SlotRois:
    """The ROIs of a run whose method has a memory of this many slots; `most` of each are told.

    Labels (n,) are those of the readable images, -1 where one is missing.
    """
    hits, class_hits = np.zeros(slots, np.int64), np.zeros(slots * classes, np.int64)
    none = np.zeros(0, np.int64)
    nearest = SlotRegions(none, none, none, np.zeros(0))
    for some in regions.by_slot():
        if len(some.slot) and (some.slot.min() < 0 or some.slot.max() >= slots):
            raise RunError(f"regions.parquet of {regions.run} names slots beyond {slots}: train again with --overwrite")
        hits += np.bincount(some.slot, minlength=slots)
        label = labels[some.image]
        known = label >= 0
        np.add.at(class_hits, some.slot[known] * classes + label[known], 1)
        nearest = _nearest_of(nearest, some, most)
    bounds = np.searchsorted(nearest.slot, np.arange(slots + 1))
    return SlotRois(hits, class_hits.reshape(slots, classes), nearest, bounds)


def _nearest_of(before: SlotRegions, more: SlotRegions, most: int) -> SlotRegions:
    """Of both, the nearest ROIs of each slot, each of another image."""
    number, image, slot, similarity = (
        np.concatenate([getattr(some, name) for some in (before, more)])
        for name in ("number", "image", "slot", "similarity")
    )
    order = np.lexsort((number, -similarity, slot))
    pair = slot[order] * (image.max(initial=0) + 1) + image[order]
    _, first = np.unique(pair, return_index=True)
    order = order[np.sort(first)]
    starts = np.searchsorted(slot[order], slot[order])  # (k,) where the slot of each begins
    order = order[np.arange(len(order)) - starts < most]
    return SlotRegions(number[order], image[order], slot[order], similarity[order])


def crops_of(picture: Picture, boxes: NDArray[np.int32]) -> list[Image.Image]:
    """Boxes (n, 4) of one image, in pixels of its upright original."""
    scale = np.array([picture.image.width / picture.width, picture.image.height / picture.height] * 2)
    places = np.rint(boxes * scale).astype(int).tolist()
    return [
        picture.image.crop((left, top, max(left + 1, right), max(top + 1, bottom)))
        for left, top, right, bottom in places
    ]
