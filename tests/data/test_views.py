"""Views: what a training step may see of an image."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.config import ViewConfig
from somnet.data.proposals import Scan
from somnet.data.transforms import ASPECTS
from somnet.data.views import WHOLE, View, draw_views, random_crop, whole_images


def scanned(*counts: int) -> Scan:
    n = len(counts)
    boxes = np.tile(np.array([0.1, 0.2, 0.6, 0.7], np.float32), (n, 3, 1)) + np.arange(3)[:, None] / 10
    boxes[np.arange(3) >= np.array(counts)[:, None]] = 0
    keys = pa.array([bytes([row]) * 16 for row in range(n)], pa.binary(16))
    sizes, quality = np.full((n, 2), 60, np.int32), np.ones((n, 5), np.float32)
    none = pa.nulls(n)
    return Scan(keys, sizes, boxes.astype(np.float32), np.array(counts), none, none, quality)


def test_the_image_comes_first_then_its_proposals_then_what_is_drawn() -> None:
    scan = scanned(3, 1)
    views = draw_views(scan, ViewConfig(proposals=2, crops=2), seed=0, augmented=False)
    assert len(views) == 6
    assert (views[0].boxes == WHOLE).all()
    assert np.array_equal(views[1].boxes, scan.boxes[:, 0])
    assert np.array_equal(views[2].boxes[0], scan.boxes[0, 1])
    assert (views[2].boxes[1] == WHOLE).all()  # there is no second proposal
    assert (views[3].boxes == WHOLE).all()
    assert views[3].mirrored.all()
    assert not any(view.mirrored.any() for view in views[:3])
    assert not (views[4].boxes == views[5].boxes).any()


def test_more_proposals_than_were_looked_for_are_the_image() -> None:
    views = draw_views(scanned(3), ViewConfig(proposals=5, crops=0, mirror=False), seed=0, augmented=False)
    assert [(view.boxes[0] == WHOLE).all() for view in views] == [True, False, False, False, True, True]


def test_crops_are_drawn_by_the_seed_and_by_the_content() -> None:
    scan, config = scanned(0, 0, 0), ViewConfig(proposals=0, crops=1, mirror=False)
    first, again, other = (draw_views(scan, config, seed, augmented=False)[1].boxes for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not (first == other).any()
    assert not (first[0] == first[1]).any()
    turned = draw_views(scan.take(np.array([2, 0])), config, 1, augmented=False)[1].boxes
    assert np.array_equal(turned, first[[2, 0]])  # wherever an image stands, its crops are the same


def test_where_images_are_augmented_nothing_is_cropped_before() -> None:
    views = draw_views(scanned(1, 2), ViewConfig(proposals=1, crops=3), seed=0, augmented=True)
    assert len(views) == 6
    assert all((view.boxes == WHOLE).all() and not view.mirrored.any() for view in [views[0], *views[2:]])


@given(st.tuples(st.integers(20, 400), st.integers(20, 400)), st.floats(0.1, 0.9), st.integers(0, 1000))
def test_a_random_crop_has_the_asked_area_and_shape(size: tuple[int, int], smallest: float, seed: int) -> None:
    crop = random_crop(np.array(size, np.int32), smallest, np.random.default_rng(seed)).astype(float)
    assert (crop >= 0).all()
    assert (crop <= 1 + 1e-6).all()
    width, height = crop[2:] - crop[:2]
    if (crop == WHOLE).all():
        return
    assert width * height >= smallest - 1e-5
    assert ASPECTS[0] - 1e-4 <= width * size[0] / (height * size[1]) <= ASPECTS[1] + 1e-4


def test_views_have_keys_of_their_own() -> None:
    scan = scanned(2, 2)
    views = draw_views(scan, ViewConfig(proposals=1, crops=0), seed=0, augmented=False)
    keys = [view.keys(scan).to_pylist() for view in (*views, whole_images(2))]
    assert keys[0] == keys[3] == scan.keys.to_pylist()
    assert len({*keys[0], *keys[1], *keys[2]}) == 6


@pytest.mark.parametrize("mirrored", [False, True])
def test_boxes_move_with_a_view(mirrored: bool) -> None:
    view = View(np.array([[0.5, 0.0, 1.0, 0.5]], np.float32), np.array([mirrored]))
    boxes = torch.tensor([[0, 0, 1, 1], [0.5, 0, 0.75, 0.5], [0, 0.5, 0.5, 1]])
    moved, mask = view.regions(boxes, torch.ones(3).bool(), 0)
    assert mask.tolist() == [True, True, False]
    assert moved[1].tolist() == ([0.5, 0, 1, 1] if mirrored else [0, 0, 0.5, 1])
