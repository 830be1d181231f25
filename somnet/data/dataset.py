"""A data set made ready for a network: listed, scanned, checked, and its inputs at hand."""

import csv
import hashlib
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from somnet.config import Config, ProposalConfig
from somnet.data.bags import Boxes, CachedInputs, Inputs, PixelInputs, RegionInputs, VectorInputs
from somnet.data.decisions import DROPPED, read_rounds, with_decisions
from somnet.data.duplicates import group_duplicates, nearest_copies
from somnet.data.embeddings import read_embeddings
from somnet.data.index import ROWS_AT_ONCE, Index
from somnet.data.map_filling import Cutter, fill_maps
from somnet.data.maps import MapStore
from somnet.data.proposals import Scan, scan
from somnet.data.sources import open_source
from somnet.data.views import View, draw_views, whole_images
from somnet.errors import DataError
from somnet.nn.backbones import Network
from somnet.nn.engine import open_trunk
from somnet.system.compute import Compute
from somnet.system.files import atomic_path, csv_cell, display_name, some

log = logging.getLogger("somnet")

FORWARD_IMAGES = 32  # images at once where nothing is learnt
VAL = "val"
SPLITS = ("train", VAL, "test")


@dataclass(frozen=True)
class Part:
    """The readable images of one split."""

    index: Index
    scan: Scan
    groups: NDArray[np.int64]  # (n,) of duplicates, over all splits; -1: alone
    vectors: NDArray[np.float32] | None = None  # (n, F) what another model has made of the images

    def __len__(self) -> int:
        return len(self.index)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Given labels (n,)."""
        return self.index.labels()

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """How much each image counts in training (n,); None: all the same."""
        weights = self.index.weights()
        return None if (weights == 1).all() else weights

    @property
    def verified(self) -> NDArray[np.bool_]:
        """Whether a person has confirmed the label (n,)."""
        return self.index.verified()

    @property
    def judged_labels(self) -> NDArray[np.int64]:
        """The labels (n,) that a person has judged, before that; -1: nobody has."""
        return np.asarray(self.index.table["judged_label"].fill_null(-1).to_numpy(), np.int64)

    def identities(self) -> Iterator[bytes]:
        """Name, label and content key of each image, in one."""
        table = pa.table([self.index.table["file_name"], self.labels, self.scan.keys], ["name", "label", "key"])
        for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
            for name, label, key in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield b"%s\0%d\0%s" % (name, label, key)


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be used, and why."""

    file_name: str
    label: str | None
    split: str
    reason: str


@dataclass(frozen=True)
class DataSet:
    """Training images, held-out images if there are any, and what had to be left out."""

    path: Path
    classes: tuple[str, ...]
    train: Part
    test: Part | None
    unreadable: tuple[Unreadable, ...]
    dropped: Part | None = None  # training images that a person has dropped: the label is wrong, or the picture useless
    right: Part | None = None  # validation images whose labels are right; they may be the held-out ones

    def fingerprint(self) -> str:
        """Of the training images' names, labels, content and weights: a resume must find the same."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for identity in self.train.identities():
            digest.update(identity)
        if self.train.weights is not None:
            digest.update(self.train.weights.tobytes())
        if self.train.verified.any():
            digest.update(self.train.verified.tobytes())
            digest.update(self.train.judged_labels.tobytes())
        if self.train.vectors is not None:
            digest.update(self.train.vectors.tobytes())
        if self.dropped is not None:
            digest.update(b"\0".join(self.dropped.index.column("file_name")))
        return digest.hexdigest()[:16]

    def test_fingerprint(self) -> str:
        """Of the held-out images' names, labels and content: accuracies on other ones do not compare."""
        digest = hashlib.sha256()
        for identity in self.test.identities() if self.test is not None else ():
            digest.update(identity)
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Duplicate:
    """An image that shows the same as others of its group."""

    group: int
    file_name: str
    split: str
    label: str
    exact: bool  # whether a file of the group has the same content


def duplicates(data: DataSet) -> list[Duplicate]:
    """The images of a data set that occur more than once, group after group; training images first."""
    members = []
    for part in (data.train, data.test) if data.test else (data.train,):
        labels, splits = part.labels, part.index.column("split")
        names, keys = part.index.column("file_name"), part.scan.keys.to_pylist()
        for row in np.flatnonzero(part.groups >= 0):
            label = data.classes[labels[row]]
            members.append((part.groups[row], display_name(names[row]), splits[row], label, keys[row]))
    times = Counter(key for *_, key in members)
    rows = [Duplicate(int(group), name, split, label, times[key] > 1) for group, name, split, label, key in members]
    return sorted(rows, key=lambda row: row.group)


@dataclass(frozen=True)
class Copies:
    """For each of n training images the most similar other one; see duplicates.py."""

    difference: NDArray[np.float32]  # (n,) 0: the same content; 1: none shows the same
    file_names: pa.Array  # (n,) of that image; null where there is none


def copies_in_training(data: DataSet) -> Copies:
    """The same picture among the other training images."""
    return _copies(data, held_out=False)


def copies_held_out(data: DataSet) -> Copies:
    """The same picture among the held-out images: who trains on it, tests on what was learnt by heart."""
    return _copies(data, held_out=True)


def _copies(data: DataSet, *, held_out: bool) -> Copies:
    parts = [data.train, data.test] if data.test else [data.train]
    groups = np.concatenate([part.groups for part in parts])
    keys, hashes = (
        pa.chunked_array([getattr(part.scan, name) for part in parts]).combine_chunks() for name in ("keys", "hashes")
    )
    names = pa.chunked_array([part.index.table["file_name"].combine_chunks() for part in parts])
    count = len(data.train)
    difference, nearest = nearest_copies(groups, keys, hashes, (np.arange(len(groups)) >= count) == held_out)
    found = nearest[:count] >= 0
    copied = pa.array([display_name(name) for name in names.take(nearest[:count][found]).to_pylist()], pa.string())
    return Copies(difference[:count], pc.replace_with_mask(pa.nulls(count, pa.string()), pa.array(found), copied))


def write_duplicates(file: Path, data: DataSet) -> None:
    """A CSV file with a row per duplicate. No cell starts a formula."""
    with atomic_path(file) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(("group", "file_name", "split", "label", "exact"))
        for row in duplicates(data):
            exact = "true" if row.exact else "false"
            table.writerow((row.group, csv_cell(row.file_name), row.split, csv_cell(row.label), exact))


def held_out_split(index: Index) -> str | None:
    """The split to test on: `test`, else `val`."""
    return next((name for name in ("test", VAL) if name in index.splits()), None)


def need_training(index: Index, data: Path) -> None:
    """Refuse data without training images."""
    if "train" not in index.splits():
        raise DataError(f"{data} has no training images: put them under train/, or set split=train in the manifest")


def warn_of_splits(index: Index) -> None:
    """Name splits that are not used."""
    if unknown := sorted(index.splits().difference(SPLITS, (DROPPED,))):
        count = len(index.of_split(*unknown))
        log.warning("left out: %d images whose split is not one of %s: %s", count, ", ".join(SPLITS), some(unknown))


def warn_of_folders(index: Index) -> None:
    """Name folders with images that are not read."""
    if index.passed_over:
        log.warning("left out: %s", some(list(index.passed_over)))


def scan_together(index: Index, config: ProposalConfig, compute: Compute) -> Scan:
    """Each rank scans its share of the images; what it finds reaches the others through the cache."""
    workers, ranks = compute.workers, compute.ranks
    if ranks.world > 1:
        scan(index.take(np.array(ranks.share(len(index)), np.int64)), config, workers, share=f"rank{ranks.rank}")
        ranks.barrier()
    scanned = scan(index, config, workers) if ranks.first else None  # puts the shares together
    ranks.barrier()
    return scan(index, config, workers) if scanned is None else scanned


def open_dataset(data: Path, config: Config, compute: Compute) -> DataSet:
    """List a data set, try every file, find the boxes, and check that one can train on what is left.

    What a person decided about training images is done first.
    """
    index = with_decisions(open_source(data, follow_links=config.follow_links), read_rounds(config.decisions))
    given = read_embeddings(Path(config.model.embeddings), index) if config.model.embeddings else None

    def part(rows: NDArray[np.int64], groups: NDArray[np.int64]) -> Part:
        own = used.take(rows)
        return Part(own, scanned.take(rows), groups, None if given is None else given.of(own))

    need_training(index, data)
    warn_of_splits(index)
    held_out, right = held_out_split(index), VAL if config.clean_val else None
    if right and right not in index.splits():
        raise DataError(f"{data} has no validation images: put rightly labelled ones under val/, or drop clean_val")
    used = index.of_split(*{name for name in ("train", held_out, right, DROPPED) if name})
    scanned = scan_together(used, config.proposals, compute)
    readable, labels = scanned.readable(), used.labels()
    split = used.table["split"].take(pa.array(readable))

    def of_split(name: str | None) -> NDArray[np.int64]:
        return readable[pc.equal(split, name).to_numpy()] if name else readable[:0]

    train_rows, test_rows, right_rows, dropped_rows = map(of_split, ("train", held_out, right, DROPPED))
    unreadable = unreadable_files(used, scanned)
    present = np.unique(labels[train_rows])
    if len(present) < 2:
        which = f"only the class '{used.classes[present[0]]}'" if len(present) else "no readable image at all"
        raise DataError(
            f"{data} has {which} to train on{first_reasons(unreadable)}: a classifier needs images of at least 2 "
            "classes, each in a folder of its own"
        )
    rows = np.concatenate([train_rows, test_rows])  # training images first: of a leak, the test image is the copy
    groups = group_duplicates(*(column.take(pa.array(rows)) for column in (scanned.keys, scanned.hashes)))
    train_groups, test_groups = np.split(groups, [len(train_rows)])
    test = part(test_rows, test_groups) if len(test_rows) else None
    readable_right = len(right_rows)
    right_rows = right_rows[np.isin(labels[right_rows], present)]  # of another class nothing is known
    right_rows = right_rows[~copies_of(right_rows, train_rows, scanned)]  # which would vouch for themselves
    if config.clean_val and len(right_rows) < max(readable_right, 1):
        used_ones = f"{len(right_rows)} of {readable_right} readable images of val calibrate label_score"
        log.warning("%s: the others are copies of training images, or of classes without any", used_ones)
    dropped, clean = (part(rows, np.full(len(rows), -1)) if len(rows) else None for rows in (dropped_rows, right_rows))
    return DataSet(data, used.classes, part(train_rows, train_groups), test, unreadable, dropped, clean)


def copies_of(some: NDArray[np.int64], others: NDArray[np.int64], scanned: Scan) -> NDArray[np.bool_]:
    """Whether each of some images (m,) shows the same as one of the others, all by their rows in a scan."""
    rows = pa.array(np.concatenate([others, some]))
    theirs, own = np.split(group_duplicates(scanned.keys.take(rows), scanned.hashes.take(rows)), [len(others)])
    return (own >= 0) & np.isin(own, theirs)


def unreadable_files(index: Index, scanned: Scan) -> tuple[Unreadable, ...]:
    """What a scan could not read, and why."""
    rows = np.setdiff1d(np.arange(len(index)), scanned.readable())
    bad, reasons = index.take(rows), scanned.reasons.take(pa.array(rows)).to_pylist()
    columns = zip(bad.column("file_name"), bad.labels(), bad.column("split"), reasons, strict=True)
    return tuple(
        Unreadable(display_name(name), index.classes[label] if label >= 0 else None, split, reason)
        for name, label, split, reason in columns
    )


def unreadable_count(count: int) -> str:
    """So many unreadable files, in words."""
    return f"{count} unreadable file" + "s" * (count != 1)


def first_reasons(unreadable: tuple[Unreadable, ...]) -> str:
    """The first of them in brackets, for a message; nothing where there are none."""
    if not unreadable:
        return ""
    return " (" + some([f"{bad.file_name}: {bad.reason}" for bad in unreadable], "; ") + ")"


def make_inputs(part: Part, network: Network, side: int, compute: Compute) -> Inputs:
    """What the network takes for each image: pixels of this side, or a frozen trunk's maps, computed if not cached."""
    return make_views(part, network, side, compute, [whole_images(len(part))])[0]


def make_views(
    part: Part, network: Network, side: int, compute: Compute, views: Sequence[View]
) -> list[PixelInputs] | list[CachedInputs] | list[VectorInputs]:
    """The same for views of the images.

    Each rank computes its share of the maps, and those that the cache does not bring from the others.
    """
    boxes = Boxes(part.scan)
    if part.vectors is not None:
        return [VectorInputs(part.vectors, boxes)] * len(views)
    if not network.frozen_trunk:
        return [PixelInputs(part.index, boxes, side, view) for view in views]
    keys = [view.keys(part.scan) for view in views]
    trunk = open_trunk(network)
    store = MapStore(trunk.fingerprint, network.input_shape)

    cutter = Cutter(part.index, part.scan, views, side)
    ranks = compute.ranks
    if ranks.world > 1:
        missing = uncached(keys, store)
        ranks.barrier()  # all have listed the same
        fill_maps(store, cutter, keys, missing[ranks.share(len(missing))], trunk, compute)
        ranks.barrier()
        store = MapStore(trunk.fingerprint, network.input_shape)
    fill_maps(store, cutter, keys, uncached(keys, store), trunk, compute)
    return [CachedInputs(store, own, boxes, view) for own, view in zip(keys, views, strict=True)]


def training_views(part: Part, network: Network, config: Config, compute: Compute) -> Sequence[Inputs]:
    """What a training step may see of each image, by the config; the same for every method."""
    views = draw_views(part.scan, config.views, config.seed, augmented=not network.frozen_trunk)
    return make_views(part, network, config.model.imgsz, compute, views)


def region_inputs(part: Part, network: Network, config: Config, compute: Compute) -> Inputs:
    """The image and its first proposals, each at full size."""
    regions = config.views.model_copy(update={"mirror": False, "crops": 0})
    views = draw_views(part.scan, regions, config.seed, augmented=False)
    return RegionInputs(make_views(part, network, config.model.imgsz, compute, views), Boxes(part.scan))


def uncached(keys: Sequence[pa.Array], store: MapStore) -> NDArray[np.int64]:
    """Row and number of the views (m, 2) whose maps are not in the store; of equal ones only the first.

    `keys` has those of all images, view by view. All views of an image stand together.
    """
    dropped = -1
    while dropped < len(store.dropped):  # a damaged file takes along maps that were found in it a moment ago
        dropped = len(store.dropped)
        first: dict[bytes, tuple[int, int]] = {}
        for number, of_view in enumerate(keys):
            for row, key in enumerate(of_view.to_pylist()):
                if key is not None and key not in store:
                    first.setdefault(key, (row, number))
    return np.array(sorted(first.values()), np.int64).reshape(-1, 2)
