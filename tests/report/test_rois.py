"""The regions of each slot, nearest first, and their crops."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from somnet.data.decode import read_picture
from somnet.report import regions
from somnet.report.regions import Regions, SlotRegions
from somnet.report.rois import crops_of, rois_by_slot
from somnet.system.folders import REGIONS
from tests.report.conftest import made_up_run
from tests.report.memories import with_memory

FILES = [(f"{number}.jpg", "ab"[number % 2]) for number in range(20)]  # two regions each


class ByHand(Regions):
    """Slot 0 has the ROIs 2 (image 1) and 0, 1 (image 0); slot 1 none; slot 2 the ROI 3 (image 1)."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

    def by_slot(self) -> Iterator[SlotRegions]:
        image, slot, similarity = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 2]), np.array([0.1, 0.5, 0.9, 0.2])
        for start in range(0, 4, self.at_once):
            mine = slice(start, start + self.at_once)
            yield SlotRegions(np.arange(4)[mine], image[mine], slot[mine], similarity[mine])


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_the_nearest_are_of_different_images(at_once: int) -> None:
    rois = rois_by_slot(ByHand(at_once), 3, np.array([0, 0]), 1, most=5)
    assert rois.nearest.number.tolist() == [2, 1, 3]
    assert rois.of_slot(0, 5) == [0, 1]
    assert rois.of_slot(0, 1) == [0]
    assert rois.of_slot(1, 5) == []
    assert rois.of_slot(2, 5) == [2]
    assert rois.hits.tolist() == [3, 0, 1]
    assert rois_by_slot(ByHand(at_once), 3, np.array([0, 0]), 1, most=1).nearest.number.tolist() == [2, 3]


@pytest.mark.parametrize("at_once", [1, 3, 4])
def test_hits_by_class(at_once: int) -> None:
    def hits(*labels: int) -> list[list[int]]:
        found: list[list[int]] = rois_by_slot(ByHand(at_once), 3, np.array(labels), 2, most=1).class_hits.tolist()
        return found

    assert hits(1, 0) == [[1, 2], [0, 0], [1, 0]]
    assert hits(-1, 0) == [[1, 0], [0, 0], [1, 0]]  # a label is missing


def labels_of(count: int) -> NDArray[np.int64]:
    return np.arange(count) % 2


@pytest.mark.parametrize("at_once", [3, 1000])
def test_the_regions_of_a_run_are_ordered_by_similarity(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "AT_ONCE", at_once)
    run = with_memory(made_up_run(tmp_path / "run", FILES), side=3)
    rois = rois_by_slot(Regions(run), 9, labels_of(20), 2, most=12)
    table = pq.read_table(run.path / REGIONS)
    slot, similarity = (np.asarray(table[name].to_numpy(), float) for name in ("winner_slot", "similarity"))
    assert rois.hits.tolist() == np.bincount(slot.astype(int), minlength=9).tolist()
    assert rois.hits.sum() == 40
    assert rois.hits[0] == 0
    for number in range(9):
        mine = rois.of_slot(number, 12)
        assert (rois.nearest.slot[mine] == number).all()
        best: dict[int, float] = {}  # the nearest of each image
        for roi in np.flatnonzero(slot == number).tolist():
            best[roi // 2] = max(best.get(roi // 2, -1.0), similarity[roi])
        assert rois.nearest.similarity[mine].tolist() == sorted(best.values(), reverse=True)[:12]
    assert rois.nearest.image.tolist() == (rois.nearest.number // 2).tolist()


def test_crops_are_those_of_the_upright_original(tmp_path: Path) -> None:
    pixels = np.zeros((400, 800, 3), np.uint8)
    pixels[100:200, 600:700, 0] = 250  # a red square
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side: to be turned clockwise
    Image.fromarray(np.rot90(pixels)).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    box = np.array([[600, 100, 700, 200]], np.int32)
    for at_least in (None, 100):  # whole, and decoded at a quarter
        (crop,) = crops_of(read_picture(tmp_path / "turned.jpg", at_least=at_least), box)
        assert np.asarray(crop)[2:-2, 2:-2, 0].min() > 200
        assert crop.size == ((100, 100) if at_least is None else (25, 25))


def test_a_box_without_area_is_still_a_picture(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (crop,) = crops_of(read_picture(tmp_path / "a.png"), np.array([[5, 5, 5, 5]], np.int32))
    assert crop.size == (1, 1)


def test_an_older_run_counts_heavy_regions_as_near(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", FILES)
    rois = rois_by_slot(Regions(run), 9, labels_of(20), 2, most=12)
    assert set(rois.nearest.similarity[rois.nearest.number % 2 == 0]) <= {0.25}
    assert set(rois.nearest.similarity[rois.nearest.number % 2 == 1]) == {0.75}
