"""Which images form which bag, and the bags themselves."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from somnet.data.decode import read_picture
from somnet.data.index import Index
from somnet.data.maps import MapStore
from somnet.data.proposals import Scan
from somnet.data.transforms import Augment, crop_shares, enough_for, to_square
from somnet.errors import DataError, UnreadableImage
from somnet.files import display_name
from somnet.types import Bag


@dataclass(frozen=True)
class BagList:
    """The bags of a batch as numbers: images, label, and which images are real (not padding of a tiny class)."""

    index: NDArray[np.int64]  # (B, G)
    label: NDArray[np.int64]  # (B,)
    present: NDArray[np.bool_]  # (B, G)


def draw_bags(
    labels: NDArray[np.int64],
    images_per_bag: int,
    rng: np.random.Generator,
    rows: NDArray[np.int64] | None = None,
) -> BagList:
    """Bags of one epoch, shuffled: every image in at least one bag, different images of one class in each.

    The last bag of a class is filled up with other images of the class; a class with fewer images than a bag holds
    has one bag, padded, and padding never gets weight.
    """
    rows = np.arange(len(labels)) if rows is None else rows  # the images to draw from
    bags, present, bag_labels = [], [], []
    for label in np.unique(labels[rows]):
        members = rng.permutation(rows[labels[rows] == label])
        real = np.ones((-(-len(members) // images_per_bag), images_per_bag), bool)
        missing = real.size - len(members)
        if len(members) >= images_per_bag:
            members = np.concatenate([members, members[:missing]])  # from other bags, as the order is random
        else:
            real[0, len(members) :] = False
            members = np.concatenate([members, np.repeat(members[:1], missing)])
        bags.append(members.reshape(-1, images_per_bag))
        present.append(real)
        bag_labels.append(np.full(len(bags[-1]), label))
    order = rng.permutation(sum(len(part) for part in bags))
    return BagList(np.concatenate(bags)[order], np.concatenate(bag_labels)[order], np.concatenate(present)[order])


def each_image_once(labels: NDArray[np.int64]) -> BagList:
    """Every image as a bag of its own, in order."""
    rows = np.arange(len(labels))
    return BagList(rows[:, None], labels, np.ones((len(rows), 1), bool))


class Inputs(Protocol):
    """Gives an image by number: what the network takes, its boxes (P, 4) and their mask (P,)."""

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """With a seed: augmented, where the inputs allow it."""
        ...


@dataclass(frozen=True)
class Boxes:
    """Boxes of all images, with the image itself as box 0."""

    scan: Scan

    def __call__(self, row: int) -> tuple[Tensor, Tensor]:
        """Boxes (P, 4) and mask (P,) of an image."""
        found = torch.from_numpy(self.scan.boxes[row])
        boxes = torch.cat([torch.tensor([[0.0, 0.0, 1.0, 1.0]]), found])
        return boxes, torch.arange(len(boxes)) <= int(self.scan.counts[row])


@dataclass(frozen=True)
class PixelInputs:
    """Decodes images; augments them when given a seed."""

    index: Index
    boxes: Boxes
    side: int
    views: NDArray[np.float32] | None = None  # (n, 4) the part of each image to look at, in shares; None: all of it

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        view = None if self.views is None else self.views[row]
        at_least = self.side if view is None else enough_for(view, self.side)
        try:
            image = read_picture(self.index.location(row), at_least=at_least).image
        except UnreadableImage as error:
            name = display_name(self.index.table["file_name"][row].as_py())
            raise DataError(f"{name} could be read before but not now: {error}: restore it and go on") from None
        if view is not None:
            image = crop_shares(image, view)
        boxes, mask = self.boxes(row)
        if seed is None:
            return to_square(image, self.side), boxes, mask
        return Augment(self.side)(image, boxes, mask, seed)


@dataclass(frozen=True)
class CachedInputs:
    """Looks up maps of the frozen trunk; there is nothing to augment."""

    store: MapStore
    boxes: Boxes

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        key = self.boxes.scan.keys[row]
        assert key is not None
        return self.store[key], *self.boxes(row)


@dataclass(frozen=True)
class DrawnInputs:
    """Different inputs for the same images: each time an image is due, one of them is drawn by the seed."""

    choices: Sequence[Inputs]

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.choices[(seed or 0) % len(self.choices)](row, seed)


class BagBatches(Dataset[Bag]):
    """Batches of a list of bags; with a seed, images are augmented by (seed, bag, image) alone."""

    def __init__(self, bags: BagList, batch_bags: int, inputs: Inputs, boxes: Boxes | None, seed: int | None) -> None:
        self.bags, self.batch_bags, self.inputs, self.boxes, self.seed = bags, batch_bags, inputs, boxes, seed

    def __len__(self) -> int:
        return -(-len(self.bags.label) // self.batch_bags)

    def __getitem__(self, batch: int) -> Bag:
        part = slice(batch * self.batch_bags, (batch + 1) * self.batch_bags)
        index, present = self.bags.index[part], self.bags.present[part]
        label = torch.from_numpy(self.bags.label[part])
        if self.boxes is not None:  # the method has its features already and asks for no images
            boxes, mask = zip(*(self.boxes(int(row)) for row in index.flat), strict=True)
            images = None
        else:
            fetched = (self.inputs(int(row), self._seed(batch, i)) for i, row in enumerate(index.flat))
            pixels, boxes, mask = zip(*fetched, strict=True)
            images = torch.stack(pixels)
        return Bag(
            index=torch.from_numpy(index),
            label=label,
            boxes=torch.stack(boxes).view(*index.shape, -1, 4),
            mask=torch.stack(mask).view(*index.shape, -1) & torch.from_numpy(present)[..., None],
            images=images,
        )

    def _seed(self, batch: int, position: int) -> int | None:
        if self.seed is None:
            return None
        return int(np.random.SeedSequence((self.seed, batch, position)).generate_state(1, np.uint64)[0] >> 1)


def load(batches: BagBatches, workers: int, skip: int = 0) -> Iterator[Bag]:
    """The batches in order, from `skip` on, fetched by worker processes where there are any."""
    order = range(skip, len(batches))
    if workers == 0 or len(order) == 0:
        yield from (batches[number] for number in order)
        return
    loader = DataLoader(batches, batch_size=None, sampler=order, num_workers=workers, worker_init_fn=_start_worker)
    try:
        yield from loader
    except DataError as error:  # comes with the worker's traceback in its message
        raise DataError(str(error).strip().rsplit("DataError: ", 1)[-1]) from None
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(f"a data worker died ({error}): run the same command again, or with --workers 0") from None


def _start_worker(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
