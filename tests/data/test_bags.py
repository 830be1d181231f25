"""Bags: who is in them, and what they hold."""

import io
import multiprocessing
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from somnet.core.types import BagBatch
from somnet.data.bags import (
    BagBatches,
    BagList,
    Boxes,
    CachedInputs,
    Inputs,
    PixelInputs,
    RegionInputs,
    count_bags,
    draw_bags,
    draw_epoch,
    each_image_once,
)
from somnet.data.index import Index, index_from_columns, make_index
from somnet.data.loading import load
from somnet.data.location import content_key
from somnet.data.maps import MapStore
from somnet.data.proposals import Scan
from somnet.data.views import whole_images
from somnet.errors import DataError

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(lambda values: np.array(values, np.int64))
SIDE = 32


def drawn(labels: NDArray[np.int64], images_per_bag: int, seed: int = 0) -> BagList:
    return draw_bags(labels, images_per_bag, np.random.default_rng(seed))


def found(counts: list[int]) -> Scan:
    """A scan of images with so many boxes each, three at most."""
    boxes = np.zeros((len(counts), 3, 4), np.float32)
    for row, count in enumerate(counts):
        boxes[row, :count] = [0.1 + row / 100, 0.2, 0.7, 0.9]
    keys = pa.array([row.to_bytes(16, "little") for row in range(len(counts))])
    sizes = np.full((len(counts), 2), 40, np.int32)
    none = pa.nulls(len(counts))
    return Scan(keys, sizes, boxes, np.array(counts, np.int64), none, none, np.ones((len(counts), 5), np.float32))


@dataclass(frozen=True)
class NumberedInputs:
    """Images whose one pixel is their number, and the seed they were asked with."""

    boxes: Boxes

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor([[[float(row)]], [[float(-1 if seed is None else seed % 65536)]]]), *self.boxes(row)


def equal(first: BagBatch, second: BagBatch) -> bool:
    assert first.images is not None
    assert second.images is not None
    return all(
        torch.equal(mine, other)
        for mine, other in (
            (first.rows, second.rows),
            (first.label, second.label),
            (first.boxes, second.boxes),
            (first.mask, second.mask),
            (first.images, second.images),
        )
    )


# --- who is in a bag


@given(LABELS, st.integers(1, 6), st.integers(0, 99))
def test_every_image_is_in_a_bag(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    bags = drawn(labels, images_per_bag, seed)
    assert set(bags.rows[bags.present].tolist()) == set(range(len(labels)))


@given(LABELS, st.integers(1, 6), st.integers(0, 99))
def test_a_bag_has_different_images_of_one_class(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    bags = drawn(labels, images_per_bag, seed)
    assert bags.rows.shape == bags.present.shape == (len(bags.label), images_per_bag)
    assert (labels[bags.rows] == bags.label[:, None]).all()
    for rows, real in zip(bags.rows, bags.present, strict=True):
        assert len(set(rows[real].tolist())) == real.sum() >= 1


@given(LABELS, st.integers(1, 6), st.integers(0, 99))
def test_only_classes_smaller_than_a_bag_are_padded(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    bags = drawn(labels, images_per_bag, seed)
    for label in np.unique(labels):
        size = int((labels == label).sum())
        present = bags.present[bags.label == label]
        assert len(present) == -(-size // images_per_bag)
        assert present.sum() == (size if size < images_per_bag else present.size)


@given(LABELS, st.integers(1, 6), st.integers(0, 99))
def test_bags_are_those_of_one_class_after_the_other(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    order = rng.permutation(sum(-(-len(part) // images_per_bag) for part in parts))
    starts = np.concatenate([part[::images_per_bag] for part in parts])  # the first image of each bag
    assert drawn(labels, images_per_bag, seed).rows[:, 0].tolist() == starts[order].tolist()


@given(LABELS, st.integers(1, 4), st.integers(0, 100))
def test_the_seed_decides_the_bags(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    first, second = drawn(labels, images_per_bag, seed), drawn(labels, images_per_bag, seed)
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.label, second.label)
    assert np.array_equal(first.present, second.present)


def test_another_seed_draws_other_bags() -> None:
    labels = np.repeat(np.arange(3), 20)
    assert not np.array_equal(drawn(labels, 2, 1).rows, drawn(labels, 2, 2).rows)


def test_classes_are_shuffled_among_each_other() -> None:
    order = drawn(np.repeat(np.arange(2), 40), 2).label
    assert not np.array_equal(order, np.sort(order))


@given(LABELS, st.integers(1, 6), st.integers(0, 99), st.data())
def test_duplicates_never_share_a_bag(
    labels: NDArray[np.int64], images_per_bag: int, seed: int, data: st.DataObject
) -> None:
    numbers = st.lists(st.integers(-1, 5), min_size=len(labels), max_size=len(labels))
    groups = np.array(data.draw(numbers), np.int64)
    bags = draw_bags(labels, images_per_bag, np.random.default_rng(seed), groups=groups)
    assert set(bags.rows[bags.present].tolist()) == set(range(len(labels)))
    assert (labels[bags.rows] == bags.label[:, None]).all()
    assert len(bags.label) == count_bags(labels, images_per_bag, np.arange(len(labels)), groups)
    for rows, real in zip(bags.rows, bags.present, strict=True):
        assert real[0]
        members = rows[real].tolist()
        assert len(set(members)) == len(members)
        copies = [groups[row] for row in members if groups[row] >= 0]
        assert len(set(copies)) == len(copies)


@given(LABELS, st.integers(1, 6), st.integers(0, 99))
def test_without_duplicates_groups_change_nothing(labels: NDArray[np.int64], images_per_bag: int, seed: int) -> None:
    alone = draw_bags(labels, images_per_bag, np.random.default_rng(seed), groups=np.full(len(labels), -1))
    assert np.array_equal(alone.rows, drawn(labels, images_per_bag, seed).rows)
    across = np.where(np.arange(len(labels)) == 0, 0, -1)  # the other of the group is a test image
    leaking = draw_bags(labels, images_per_bag, np.random.default_rng(seed), groups=across)
    assert np.array_equal(leaking.rows, alone.rows)


def test_bags_are_padded_only_where_a_class_has_nothing_but_copies() -> None:
    labels, groups = np.zeros(7, np.int64), np.array([0, 0, 0, 0, 0, -1, -1])
    bags = draw_bags(labels, 3, np.random.default_rng(0), groups=groups)
    assert len(bags.label) == 5  # a bag for each copy
    assert bags.present.all()  # each with both of the others
    copies = draw_bags(labels, 3, np.random.default_rng(0), groups=np.zeros(7, np.int64))
    assert copies.present.sum(axis=1).tolist() == [1] * 7


def test_each_image_once_keeps_the_order() -> None:
    bags = each_image_once(np.array([2, 0, 2]))
    assert bags.rows.tolist() == [[0], [1], [2]]
    assert bags.label.tolist() == [2, 0, 2]
    assert bags.present.all()


# --- what a bag holds


def test_box_0_is_the_image() -> None:
    boxes, mask = Boxes(found([2]))(0)
    assert boxes.shape == (4, 4)
    assert boxes[0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert mask.tolist() == [True, True, True, False]
    assert boxes[1].tolist() == pytest.approx([0.1, 0.2, 0.7, 0.9])


def test_an_image_without_boxes_is_its_own_box() -> None:
    assert Boxes(found([0]))(0)[1].tolist() == [True, False, False, False]


def test_a_batch_has_the_shapes_of_the_legend() -> None:
    present = np.array([[True, True], [True, False], [True, True]])
    bags = BagList(np.array([[0, 1], [2, 2], [3, 1]]), np.array([0, 1, 0]), present)
    boxes = Boxes(found([3, 1, 2, 0]))
    batches = BagBatches(bags, 2, NumberedInputs(boxes), None, seed=None)
    assert len(batches) == 2
    first = batches[0]
    assert first.rows.tolist() == [[0, 1], [2, 2]]
    assert first.label.tolist() == [0, 1]
    assert first.boxes.shape == (2, 2, 4, 4)
    assert first.images is not None
    assert first.images[:, 0, 0, 0].tolist() == [0, 1, 2, 2]
    assert first.mask.sum(dim=2).tolist() == [[4, 2], [3, 0]]  # the padded image has no ROI
    assert batches[1].boxes.shape == (1, 2, 4, 4)


def test_a_method_with_features_gets_boxes_alone() -> None:
    boxes = Boxes(found([3, 1]))
    bags = each_image_once(np.array([0, 1]))
    with_images = BagBatches(bags, 2, NumberedInputs(boxes), None, seed=1)[0]
    without = BagBatches(bags, 2, NumberedInputs(boxes), boxes, seed=1)[0]
    assert without.images.numel() == 0
    assert torch.equal(without.boxes, with_images.boxes)
    assert torch.equal(without.mask, with_images.mask)


def test_each_image_of_an_epoch_is_augmented_in_its_own_way() -> None:
    bags = each_image_once(np.zeros(12, np.int64))
    batches = BagBatches(bags, 4, NumberedInputs(Boxes(found([1] * 12))), None, seed=3)
    images = [batch.images for batch in load(batches, workers=0)]
    seeds = torch.cat([part[:, 1, 0, 0] for part in images if part is not None]).tolist()
    assert len(set(seeds)) == 12
    assert -1 not in seeds


def test_without_a_seed_nothing_is_augmented() -> None:
    batches = BagBatches(each_image_once(np.zeros(2, np.int64)), 2, NumberedInputs(Boxes(found([1, 1]))), None, None)
    images = batches[0].images
    assert images is not None
    assert images[:, 1, 0, 0].tolist() == [-1, -1]


def pixel_batches(folder: Path, seed: int | None) -> BagBatches:
    rng = np.random.default_rng(0)
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(folder / f"{i}.png")
    index = make_index(folder, ["a", "b"], ({"file_name": f"{i}.png".encode(), "label": i % 2} for i in range(6)))
    keys = pa.array([content_key(io.BytesIO((folder / f"{i}.png").read_bytes())) for i in range(6)])
    boxes = Boxes(replace(found([1, 2, 3, 0, 1, 2]), keys=keys))
    bags = drawn(index.labels(), 2)
    return BagBatches(bags, 2, PixelInputs(index, boxes, SIDE), None, seed)


@pytest.mark.parametrize("seed", [None, 4])
def test_workers_do_not_change_the_bags(tmp_path: Path, seed: int | None) -> None:
    batches = pixel_batches(tmp_path, seed)
    alone, helped = list(load(batches, workers=0)), list(load(batches, workers=2))
    assert len(alone) == len(helped) == 2
    assert all(equal(a, b) for a, b in zip(alone, helped, strict=True))


def test_pixels_are_squares_of_the_asked_side(tmp_path: Path) -> None:
    images = pixel_batches(tmp_path, None)[0].images
    assert images is not None
    assert images.shape == (4, 3, SIDE, SIDE)
    assert images.dtype == torch.uint8


def test_augmented_bags_differ_and_keep_box_0(tmp_path: Path) -> None:
    first, second, again = (pixel_batches(tmp_path, seed)[0] for seed in (1, 2, 1))
    assert equal(first, again)
    assert not equal(first, second)
    assert (first.boxes[..., 0, :] == torch.tensor([0.0, 0.0, 1.0, 1.0])).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_start_in_the_middle_gives_the_rest(tmp_path: Path, workers: int) -> None:
    batches = pixel_batches(tmp_path, 4)
    (rest,) = load(batches, workers, skip=1)
    assert equal(rest, batches[1])
    assert list(load(batches, workers, skip=2)) == []


def test_a_picture_that_was_replaced_is_named_and_not_used(tmp_path: Path) -> None:
    batches = pixel_batches(tmp_path, None)
    (tmp_path / "3.png").write_bytes((tmp_path / "3.png").read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=r"3\.png could be read before but not now: its content has changed"):
        list(load(batches, 0))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_vanished_is_named(tmp_path: Path, workers: int) -> None:
    batches = pixel_batches(tmp_path, None)
    os.unlink(tmp_path / "3.png")
    with pytest.raises(DataError, match=r"3\.png could be read before"):
        list(load(batches, workers))


def test_cached_maps_are_looked_up_by_content() -> None:
    scan = found([1, 2])
    store = MapStore("trunk", (1, 1, 1))
    store.add(scan.keys.to_pylist(), torch.tensor([5.0, 7.0]).view(2, 1, 1, 1))
    inputs = CachedInputs(store, scan.keys, Boxes(scan), whole_images(2))
    assert [float(inputs(row, None)[0]) for row in (0, 1)] == [5.0, 7.0]
    assert inputs(1, 3)[2].tolist() == [True, True, True, False]


@dataclass(frozen=True)
class TouchingInputs:
    """Looks up all that is known of an image, and opens nothing."""

    index: Index
    boxes: Boxes

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        self.index.location(row)
        assert self.boxes.scan.keys[row].as_py()
        return torch.zeros(1, 1, 1), *self.boxes(row)


def own_megabytes(pid: int) -> float:
    """Memory that a process shares with no other."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)) / 1e3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has for itself")
def test_a_worker_has_no_copy_of_the_data_set() -> None:
    count = 300_000
    rng = np.random.default_rng(0)
    keys = pa.array([row.to_bytes(16, "little") for row in range(count)])
    boxes, none = rng.random((count, 4, 4), np.float32), pa.nulls(count)
    quality = np.ones((count, 5), np.float32)
    scan = Scan(keys, np.full((count, 2), 40, np.int32), boxes, np.full(count, 4), none, none, quality)
    names = pa.array([b"train/a class/%09d.jpg" % row for row in range(count)])
    index = index_from_columns(Path("web"), ["a class"], {"file_name": names, "label": pa.array([0] * count)})
    bags = drawn(index.labels(), 2)  # at random places, so that nearly every page would be written to
    batches = BagBatches(bags, 250, TouchingInputs(index, Boxes(scan)), None, seed=None)
    others = {child.pid for child in multiprocessing.active_children()}  # that earlier tests have left
    own = []
    for number, _ in enumerate(load(batches, workers=1)):
        if number in (2, 30):
            workers = {child.pid for child in multiprocessing.active_children()} - others
            own += [own_megabytes(pid) for pid in workers if pid]
        if number == 30:
            break
    first, last = own
    assert last < 50
    assert last - first < 6  # as Python objects, the keys alone would be 15


def test_bags_move_as_a_whole() -> None:
    bag = BagBatches(each_image_once(np.zeros(2, np.int64)), 2, NumberedInputs(Boxes(found([1, 1]))), None, None)[0]
    moved = bag.to("meta")
    assert {part.device.type for part in (moved.boxes, moved.images, moved.label, moved.mask)} == {"meta"}
    assert moved.rows is bag.rows  # which tables of main memory are looked up by
    assert moved.in_memory is moved.to("meta").in_memory is bag.in_memory is bag


def test_several_views_of_an_image_stand_together() -> None:
    def view(number: int) -> Inputs:
        return lambda row, seed: (torch.full((1, 1, 1), 10.0 * row + number), torch.zeros(3, 4), torch.ones(3).bool())

    boxes = Boxes(found([2, 2]))
    regions = RegionInputs([view(0), view(1)], boxes)
    batch = BagBatches(each_image_once(np.zeros(2, np.int64)), 2, regions, None, None)[0]
    assert batch.images.flatten().tolist() == [0, 1, 10, 11]
    assert batch.images.shape == (4, 1, 1, 1)
    assert batch.boxes.shape == (2, 1, 2, 4)
    assert torch.equal(batch.boxes[1, 0], boxes(1)[0][:2])


def test_an_epoch_has_as_many_bags_however_few_images_it_draws_from() -> None:
    labels = np.array([0] * 6 + [1] * 5)
    rows = np.array([1, 2, 7])
    drawn = draw_epoch(labels, 1, np.random.default_rng(0), rows)
    assert len(drawn.label) == 11
    assert np.bincount(drawn.rows[:, 0], minlength=11)[rows].min() >= 3
    assert set(drawn.rows[:, 0]) == set(rows)
    assert len(draw_epoch(labels, 2, np.random.default_rng(0), rows).label) == 6
    everything = np.arange(11)
    whole = draw_epoch(labels, 2, np.random.default_rng(3), everything)
    assert np.array_equal(whole.rows, draw_bags(labels, 2, np.random.default_rng(3)).rows)
