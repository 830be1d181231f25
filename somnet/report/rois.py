"""The regions of a run by memory slot, the nearest to the slot's key first, and their crops."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from somnet.data.decode import Picture
from somnet.errors import RunError
from somnet.report.records import Regions
from somnet.runs.run_folder import RunFolder
from somnet.system.folders import REGIONS


@dataclass(frozen=True)
class SlotRois:
    """All ROIs of a run, ordered by winner slot and within a slot by similarity."""

    order: NDArray[np.int64]  # (R,) ROI numbers: rows of regions.parquet
    bounds: NDArray[np.int64]  # (L + 1,) the ROIs of slot l are order[bounds[l] : bounds[l + 1]]
    image: NDArray[np.int64]  # (R,) the readable image of each ROI
    slot: NDArray[np.int64]  # (R,) the winner slot of each ROI
    similarity: NDArray[np.float64]  # (R,)

    @property
    def hits(self) -> NDArray[np.int64]:
        """How many ROIs each slot has won (L,)."""
        return np.diff(self.bounds)

    def class_hits(self, labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
        """How many ROIs of images of each class every slot has won (L, C); labels (n,) are those of the images."""
        slots, label = len(self.bounds) - 1, labels[self.image]
        known = label >= 0
        pair = self.slot[known] * classes + label[known]
        return np.bincount(pair, minlength=slots * classes).reshape(slots, classes)

    def nearest(self, slot: int, count: int) -> list[int]:
        """The ROIs nearest to a slot, each of another image."""
        roi_of_image: dict[int, int] = {}
        for roi in self.order[self.bounds[slot] : self.bounds[slot + 1]].tolist():
            roi_of_image.setdefault(int(self.image[roi]), roi)
            if len(roi_of_image) == count:
                break
        return list(roi_of_image.values())


def rois_by_slot(run: RunFolder, regions: Regions, slots: int) -> SlotRois:
    """The ROIs of a run whose method has a memory of this many slots."""
    slot = regions.details["slot"].astype(np.int64)
    if slot.min() < 0 or slot.max() >= slots:
        raise RunError(f"regions.parquet of {run.path} names slots beyond {slots}: train again with --overwrite")
    similarity = _similarity(run, regions)
    order = np.lexsort((-similarity, slot))
    bounds = np.searchsorted(slot[order], np.arange(slots + 1))
    image = np.repeat(np.arange(len(regions.first) - 1), np.diff(regions.first))
    return SlotRois(order, bounds, image, slot, similarity)


def _similarity(run: RunFolder, regions: Regions) -> NDArray[np.float64]:
    """Cosine of each ROI and its winner's key; an older run does not tell it, there heavy ROIs count as near."""
    file = pq.ParquetFile(run.path / REGIONS)
    if "similarity" not in file.schema_arrow.names:
        return regions.weight
    return np.nan_to_num(np.asarray(file.read(["similarity"])["similarity"].to_numpy(), np.float64))


def crops_of(picture: Picture, boxes: NDArray[np.int32]) -> list[Image.Image]:
    """Boxes (n, 4) of one image, in pixels of its upright original."""
    scale = np.array([picture.image.width / picture.width, picture.image.height / picture.height] * 2)
    places = np.rint(boxes * scale).astype(int).tolist()
    return [
        picture.image.crop((left, top, max(left + 1, right), max(top + 1, bottom)))
        for left, top, right, bottom in places
    ]
