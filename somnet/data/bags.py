"""Which images form which bag, and the bags themselves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from somnet.core.types import BagBatch
from somnet.data.decode import Picture, read_sizes
from somnet.data.index import Index
from somnet.data.maps import MapStore
from somnet.data.proposals import Scan
from somnet.data.transforms import Augment, enough_for, to_square
from somnet.data.views import View
from somnet.errors import DataError, UnreadableImage
from somnet.system.files import display_name
from somnet.system.parallel import share_of

IMAGE = np.array([[0.0, 0.0, 1.0, 1.0]], np.float32)  # the box that is the image itself


@dataclass(frozen=True)
class BagList:
    """The bags of a batch as numbers: images, label, and which images are real (not padding of a tiny class)."""

    rows: NDArray[np.int64]  # (B, G) of the images
    label: NDArray[np.int64]  # (B,)
    present: NDArray[np.bool_]  # (B, G)
    weight: NDArray[np.float32] | None = None  # (B, G) how much each image counts; None: all the same

    def weighted(self, weights: NDArray[np.float32] | None) -> "BagList":
        """The same bags with the weights (n,) of all images."""
        return self if weights is None else replace(self, weight=weights[self.rows])


def draw_bags(
    labels: NDArray[np.int64],
    images_per_bag: int,
    rng: np.random.Generator,
    rows: NDArray[np.int64] | None = None,
    groups: NDArray[np.int64] | None = None,
) -> BagList:
    """Bags of one epoch, shuffled: every image in at least one bag, different images of one class in each.

    The last bag of a class is filled up with other images of the class; a class with fewer images than a bag holds
    has one bag, padded, and padding never gets weight. With `groups` (n,) of duplicates, -1 for none, no bag holds two
    of a group; where a class has too few others, bags are padded.
    """
    rows = np.arange(len(labels)) if rows is None else rows  # the images to draw from
    bags, present, bag_labels = [], [], []
    for label, in_order in _by_class(labels, rows):
        members = rng.permutation(in_order)
        pictures = pictures_of(members, groups)
        if images_per_bag > 1 and len(np.unique(pictures)) < len(members):
            dealt, real = _deal(members, pictures, images_per_bag)
        else:
            dealt, real = _cut(members, images_per_bag)
        bags.append(dealt)
        present.append(real)
        bag_labels.append(np.full(len(dealt), label))
    order = rng.permutation(sum(len(of_class) for of_class in bags))
    return BagList(np.concatenate(bags)[order], np.concatenate(bag_labels)[order], np.concatenate(present)[order])


def draw_epoch(
    labels: NDArray[np.int64],
    images_per_bag: int,
    rng: np.random.Generator,
    rows: NDArray[np.int64],
    groups: NDArray[np.int64] | None = None,
) -> BagList:
    """Bags of one epoch, drawn from some of the images, as often as needed to be as many as all images would give."""
    wanted = count_bags(labels, images_per_bag, np.arange(len(labels)), groups)
    rounds = [draw_bags(labels, images_per_bag, rng, rows, groups)]
    while sum(len(drawn.label) for drawn in rounds) < wanted:
        rounds.append(draw_bags(labels, images_per_bag, rng, rows, groups))
    parts = ([getattr(drawn, name) for drawn in rounds] for name in ("rows", "label", "present"))
    return BagList(*(np.concatenate(part)[:wanted] for part in parts))


def count_bags(
    labels: NDArray[np.int64], images_per_bag: int, rows: NDArray[np.int64], groups: NDArray[np.int64] | None = None
) -> int:
    """How many bags an epoch has."""
    members = (members for _, members in _by_class(labels, rows))
    return sum(_bags_of_class(pictures_of(rows_of_class, groups), images_per_bag) for rows_of_class in members)


def _by_class(labels: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each class that has images, and its rows in their order."""
    rows = rows[np.argsort(labels[rows], kind="stable")]
    present, first = np.unique(labels[rows], return_index=True)
    yield from zip(present.tolist(), np.split(rows, first[1:]), strict=True)


def pictures_of(members: NDArray[np.int64], groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Which picture each member shows (m,): members of a group show the same, all others one of their own."""
    if groups is None:
        return members
    return np.where(groups[members] < 0, members, -1 - groups[members])


def _bags_of_class(pictures: NDArray[np.int64], images_per_bag: int) -> int:
    copies = np.unique(pictures, return_counts=True)[1].max() if images_per_bag > 1 else 1
    return max(-(-len(pictures) // images_per_bag), int(copies))


def _cut(members: NDArray[np.int64], images_per_bag: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Bags (b, G) of one class, and which of their images are real (b, G)."""
    real = np.ones((-(-len(members) // images_per_bag), images_per_bag), bool)
    missing = real.size - len(members)
    if len(members) >= images_per_bag:
        members = np.concatenate([members, members[:missing]])  # from other bags, as the order is random
    else:
        real[0, len(members) :] = False
        members = np.concatenate([members, np.repeat(members[:1], missing)])
    return members.reshape(-1, images_per_bag), real


def _deal(
    members: NDArray[np.int64], pictures: NDArray[np.int64], images_per_bag: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Bags of a class that has duplicates: dealt like cards, equal ones one after the other to different bags."""
    count = _bags_of_class(pictures, images_per_bag)
    order = np.argsort(pictures, kind="stable")
    spares = np.sort(np.unique(pictures, return_index=True)[1]).tolist()  # to fill up with: one of each picture
    spare = 0
    dealt = np.full(count * images_per_bag, -1)
    dealt[: len(order)] = order
    places = dealt.reshape(images_per_bag, count).T  # (b, G) among the members; -1 where a bag is not full
    real = places >= 0
    for number in np.flatnonzero(~real.all(axis=1)):
        bag = places[number, real[number]].tolist()
        shown = {pictures[place] for place in bag}
        while len(bag) < min(images_per_bag, len(spares)):
            place, spare = spares[spare], (spare + 1) % len(spares)
            if pictures[place] not in shown:
                bag.append(place)
                shown.add(pictures[place])
        real[number, : len(bag)] = True
        places[number] = bag + bag[:1] * (images_per_bag - len(bag))
    return members[places], real


def each_image_once(labels: NDArray[np.int64], some: range | NDArray[np.int64] | None = None) -> BagList:
    """Every image, or only some, as a bag of its own, in order."""
    rows = np.arange(len(labels)) if some is None else np.asarray(some, np.int64)
    return BagList(rows[:, None], labels[rows], np.ones((len(rows), 1), bool))


class Inputs(Protocol):
    """Gives an image by number: what the network takes, once or for several views; its boxes (P, 4), mask (P,)."""

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """With a seed: augmented, where the inputs allow it."""
        ...


@dataclass(frozen=True)
class Boxes:
    """Boxes of all images, with the image itself as box 0."""

    scan: Scan

    def __call__(self, row: int) -> tuple[Tensor, Tensor]:
        """Boxes (P, 4) and mask (P,) of an image."""
        boxes = np.concatenate([IMAGE, self.scan.boxes[row]])  # (P, 4)
        return torch.from_numpy(boxes), torch.from_numpy(np.arange(len(boxes)) <= self.scan.counts[row])


def read_again(index: Index, scan: Scan, row: int, sizes: Sequence[int]) -> list[Picture]:
    """A scanned image, its shorter side at least as large as each of some sizes; refused if it is another one since."""
    try:
        return read_sizes(index.location(row), sizes, scan.keys[row].as_py())
    except UnreadableImage as error:
        name = display_name(index.table["file_name"][row].as_py())
        raise DataError(f"{name} could be read before but not now: {error}: restore it and continue") from None


@dataclass(frozen=True)
class PixelInputs:
    """Decodes images; augments them when given a seed."""

    index: Index
    boxes: Boxes
    side: int
    view: View | None = None  # of each image; None: all of it

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        at_least = self.side if self.view is None else enough_for(self.view.boxes[row], self.side)
        image = read_again(self.index, self.boxes.scan, row, [at_least])[0].image
        boxes, mask = self.boxes(row)
        if self.view is not None:
            image = self.view.picture(image, row)
            boxes, mask = self.view.regions(boxes, mask, row)
        if seed is None:
            return to_square(image, self.side), boxes, mask
        return Augment(self.side)(image, boxes, mask, seed)


@dataclass(frozen=True)
class CachedInputs:
    """Looks up maps of the frozen trunk; there is nothing to augment."""

    store: MapStore
    keys: pa.Array  # (n,) of the view of each image
    boxes: Boxes
    view: View

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.store[self.keys[row].as_py()], *self.view.regions(*self.boxes(row), row)


@dataclass(frozen=True)
class VectorInputs:
    """Vectors that another model has made of the images, as maps (F, 1, 1) of one cell."""

    vectors: NDArray[np.float32]  # (n, F)
    boxes: Boxes

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return torch.from_numpy(self.vectors[row])[:, None, None], *self.boxes(row)


class SeveralViews:
    """Inputs that show several views of an image: (V, ...) for each."""


@dataclass(frozen=True)
class DrawnInputs(SeveralViews):
    """Different inputs for the same images: whenever an image is used, `views` of them are drawn by the seed.

    Drawn ones differ as long as there are enough; boxes and mask are those of the first.
    """

    choices: Sequence[Inputs]
    views: int = 1
    shares: NDArray[np.float32] | None = None  # (n, V) how often each is drawn of an image, above 0; None: all alike

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        rng = np.random.default_rng(seed)
        order = self._drawn(row, rng)
        if len(order) != self.views:
            order = np.resize(order, self.views)  # again from the start where there are few
        seeds = [None] * self.views if seed is None else [seed + number for number in range(self.views)]
        drawn = [self.choices[number](row, each) for number, each in zip(order.tolist(), seeds, strict=True)]
        return torch.stack([pixels for pixels, _, _ in drawn]), *drawn[0][1:]

    def _drawn(self, row: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """All choices in the order in which they are drawn, or the first alone if it is the only one that counts."""
        if self.shares is None:
            return rng.permutation(len(self.choices))
        share = self.shares[row].astype(np.float64)
        share /= share.sum()
        if self.views == 1:
            return np.array([nearly_even_draw(share, rng)])
        return rng.choice(len(share), len(share), replace=False, p=share)


def nearly_even_draw(share: NDArray[np.float64], rng: np.random.Generator) -> int:
    """A number drawn by shares (V,) that sum to 1, which is the one of an even draw as often as shares allow.

    So two methods that draw views by the same seed see the same ones but where their shares differ, and what they have
    learnt differs by what they do and not by luck. (A maximal coupling: where the even draw falls on too small a share,
    another may be drawn instead, from what others have too much.)
    """
    even = 1 / len(share)
    first = int(rng.permutation(len(share))[0])
    if rng.random() * even < share[first]:
        return first
    surplus = (share - even).clip(min=0).cumsum()
    return int(np.searchsorted(surplus / surplus[-1], rng.random(), side="right"))


@dataclass(frozen=True)
class RegionInputs(SeveralViews):
    """An image and its first proposals, each at full size: inputs (P, ...) for its first P boxes."""

    choices: Sequence[Inputs]  # the image, then its proposals
    boxes: Boxes

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        seen = [choice(row, seed)[0] for choice in self.choices]
        boxes, mask = self.boxes(row)
        return torch.stack(seen), boxes[: len(seen)], mask[: len(seen)]


class BagBatches(Dataset[BagBatch]):
    """Batches of a list of bags; with a seed, images are augmented by (seed, bag, image) alone.

    Of several ranks, each gets its share of a batch; one that goes empty gets the batch's first bag, to be left out.
    """

    def __init__(
        self,
        bags: BagList,
        batch_bags: int,
        inputs: Inputs,
        boxes: Boxes | None,
        seed: int | None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.bags, self.batch_bags, self.inputs, self.boxes, self.seed = bags, batch_bags, inputs, boxes, seed
        self.rank, self.ranks = rank, ranks

    def __len__(self) -> int:
        return -(-len(self.bags.label) // self.batch_bags)

    def share(self, batch: int) -> range:
        """Which bags of a batch are this rank's, by their place in it."""
        return share_of(self._size(batch), self.rank, self.ranks)

    def _size(self, batch: int) -> int:
        return min(self.batch_bags, len(self.bags.label) - batch * self.batch_bags)

    def __getitem__(self, batch: int) -> BagBatch:
        return put_together(self.order(batch), self.inputs, self.boxes)

    def order(self, batch: int) -> "BatchOrder":
        """All that tells this rank's share of a batch from others."""
        share = self.share(batch) or range(1)
        mine = slice(batch * self.batch_bags + share.start, batch * self.batch_bags + share.stop)
        bags = self.bags
        weight = None if bags.weight is None else bags.weight[mine]
        own = BagList(bags.rows[mine], bags.label[mine], bags.present[mine], weight)
        first = None if self.seed is None else (self.seed, batch, share.start * bags.rows.shape[1])
        return BatchOrder(own, self._size(batch), first)


@dataclass(frozen=True)
class BatchOrder:
    """Bags that are to be put together: small enough to be sent to another process."""

    bags: BagList
    whole: int  # how many the ranks have together, which share a batch
    first: tuple[int, int, int] | None  # seed, batch, and place of the first image in it; None: not augmented


def put_together(order: BatchOrder, inputs: Inputs, boxes_alone: Boxes | None) -> BagBatch:
    """The bags of an order; with their boxes alone where a method has its features already and asks for no images."""
    bags = order.bags
    if boxes_alone is not None:
        boxes, mask = zip(*(boxes_alone(int(row)) for row in bags.rows.flat), strict=True)
        images = torch.zeros(0)
    else:
        fetched = (inputs(int(row), _seed(order.first, place)) for place, row in enumerate(bags.rows.flat))
        pixels, boxes, mask = zip(*fetched, strict=True)
        join = torch.cat if isinstance(inputs, SeveralViews) else torch.stack
        images = join(pixels)  # one row per image, or per view of an image
    return BagBatch(
        rows=torch.from_numpy(bags.rows),
        label=torch.from_numpy(bags.label),
        boxes=torch.stack(boxes).view(*bags.rows.shape, -1, 4),
        mask=torch.stack(mask).view(*bags.rows.shape, -1) & torch.from_numpy(bags.present)[..., None],
        images=images,
        weight=None if bags.weight is None else torch.from_numpy(bags.weight),
        whole=order.whole,
    )


def _seed(first: tuple[int, int, int] | None, place: int) -> int | None:
    if first is None:
        return None
    seed, batch, start = first
    return int(np.random.SeedSequence((seed, batch, start + place)).generate_state(1, np.uint64)[0]) >> 1
