"""The regions of each slot, nearest first, and their crops."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from somnet.data.decode import read_picture
from somnet.report.records import read_records
from somnet.report.rois import SlotRois, crops_of, rois_by_slot
from tests.report.conftest import made_up_run
from tests.report.memories import with_memory

FILES = [(f"{number}.jpg", "ab"[number % 2]) for number in range(20)]  # two regions each


def by_hand() -> SlotRois:
    """Slot 0 has the ROIs 2 (image 1) and 0, 1 (image 0); slot 1 none; slot 2 the ROI 3 (image 1)."""
    return SlotRois(
        order=np.array([2, 1, 0, 3]),
        bounds=np.array([0, 3, 3, 4]),
        image=np.array([0, 0, 1, 1]),
        slot=np.array([0, 0, 0, 2]),
        similarity=np.array([0.1, 0.5, 0.9, 0.2]),
    )


def test_the_nearest_are_of_different_images() -> None:
    rois = by_hand()
    assert rois.nearest(0, 5) == [2, 1]
    assert rois.nearest(0, 1) == [2]
    assert rois.nearest(1, 5) == []
    assert rois.hits.tolist() == [3, 0, 1]


def test_hits_by_class() -> None:
    assert by_hand().class_hits(np.array([1, 0]), 2).tolist() == [[1, 2], [0, 0], [1, 0]]
    assert by_hand().class_hits(np.array([-1, 0]), 2).tolist() == [[1, 0], [0, 0], [1, 0]]  # a label is missing


def test_the_regions_of_a_run_are_ordered_by_similarity(tmp_path: Path) -> None:
    run = with_memory(made_up_run(tmp_path / "run", FILES), side=3)
    rois = rois_by_slot(run, read_records(run).regions, 9)
    assert rois.hits.sum() == 40
    assert rois.hits[0] == 0
    for slot in range(9):
        mine = rois.order[rois.bounds[slot] : rois.bounds[slot + 1]]
        assert (rois.slot[mine] == slot).all()
        assert (np.diff(rois.similarity[mine]) <= 0).all()
    assert rois.image.tolist() == np.repeat(np.arange(20), 2).tolist()


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
    rois = rois_by_slot(run, read_records(run).regions, 9)
    assert rois.similarity.tolist() == pytest.approx([0.25, 0.75] * 20)
