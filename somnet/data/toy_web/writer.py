"""The toy web as a data set on disk, with its label noise.

The train pictures have the two faults of images found on the web: label noise (a share of them shows another
category, or none at all) and background noise (the object is small, among clutter). The test pictures are
clean. Every picture is drawn from its own seed, so the files do not depend on the number of workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from somnet.data.sources.manifest import write_manifest
from somnet.data.toy_web.categories import CATEGORIES, RELATED
from somnet.data.toy_web.pictures import draw_test, draw_train
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

NOISE_SHARE = 0.4
_SPLITS = ("train", "test")


def write_demo(
    root: Path,
    *,
    seed: int = 0,
    train_per_class: int = 90,
    test_per_class: int = 84,
    workers: int | None = None,
) -> None:
    """Write the toy web to ``root/train/<label>`` and ``root/test/<label>``, then ``root/metadata.csv``.

    The folder is the label a picture was found under; the metadata tell what it truly shows and where.
    ``metadata.csv`` is written last: where it is present, the set is complete. The same seed gives the same
    bytes, with any number of workers.
    """
    items = list(_plan(seed, train_per_class, test_per_class))
    for split in _SPLITS:
        for label in CATEGORIES:
            (root / split / label).mkdir(parents=True, exist_ok=True)
    rows = []
    with track("drawing the toy web", len(items)) as advance:
        for chunk in on_all_cores(partial(_write, root, seed), items, workers):
            rows.extend(chunk)
            advance(len(chunk))
    write_manifest(root, rows)


@dataclass(frozen=True)
class _Item:
    """A picture to be drawn: where it is saved, the label it is found under, and what it truly shows."""

    split: str
    number: int
    file_name: str
    label: str
    truth: str | None


def _plan(seed: int, train_per_class: int, test_per_class: int) -> Iterator[_Item]:
    """List every picture; the noise is exact in each class and its place in the class is shuffled."""
    noisy = round(NOISE_SHARE * train_per_class)
    swapped = noisy // 2
    for k, label in enumerate(CATEGORIES):
        rng = np.random.default_rng((seed, len(_SPLITS), k))
        truths: list[str | None] = [RELATED[label]] * swapped
        truths += [None] * (noisy - swapped) + [label] * (train_per_class - noisy)
        for n, at in enumerate(rng.permutation(train_per_class)):
            yield _Item("train", k * train_per_class + n, f"train/{label}/{n:04d}.jpg", label, truths[at])
        for n in range(test_per_class):
            yield _Item("test", k * test_per_class + n, f"test/{label}/{n:04d}.jpg", label, label)


def _write(root: Path, seed: int, item: _Item) -> tuple[str, str, str, str, str]:
    """Draw a picture and save it; return its row of the metadata."""
    rng = np.random.default_rng((seed, _SPLITS.index(item.split), item.number))
    if item.split == "test":
        image, box = draw_test(item.label, rng)
    else:
        image, box = draw_train(item.truth, rng)
    image.save(root / item.file_name, quality=90)
    corners = "" if box is None else " ".join(map(str, box))
    return item.file_name, item.label, item.split, item.truth or "none", corners
