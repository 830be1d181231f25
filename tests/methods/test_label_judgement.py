"""Labels of a whole training set are judged, in bounded memory, and copies do not vouch for each other."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from somnet.methods import label_judgement
from somnet.methods.label_evidence import RegionFeatures
from somnet.methods.label_judgement import GivenLabels, Judged, judge_labels, things_among_clutter

CLASSES = 3


def pictures(images: int = 120) -> tuple[RegionFeatures, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    true = np.arange(images) % CLASSES
    features = rng.normal(size=(images, 2, 8)) + 3 * np.eye(CLASSES, 8)[true][:, None]
    return RegionFeatures(features.astype(np.float16), np.ones((images, 2), bool)), true


def judged(regions: RegionFeatures, given: GivenLabels) -> Judged:
    """Of all images at once, shown some at a time."""

    def show() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        for start in range(0, len(regions), 32):
            rows = np.arange(start, min(start + 32, len(regions)))
            yield rows, regions.take(rows)

    parts = list(judge_labels(show, given, seed=0))
    names = ("rows", "probable", "lift", "similarity", "description", "seen")
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **columns)


@pytest.mark.parametrize("most", [20_000, 120])
def test_every_image_is_judged_however_few_are_asked(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_judgement, "MOST", most)
    regions, true = pictures(240)
    given = true.copy()
    given[:12] = (true[:12] + 1 + np.arange(12) // 3 % 2) % CLASSES
    found = judged(regions, GivenLabels(given, CLASSES))
    assert found.rows.tolist() == list(range(240))
    assert (found.probable.argmax(axis=1) == true).mean() > 0.9
    assert found.probable.sum(axis=1) == pytest.approx(1)
    assert (found.similarity.argmax(axis=1) == true).mean() > 0.9


def test_pictures_of_another_kind_do_not_excuse_each_other() -> None:
    """Twelve of a class show the same foreign thing, so they predict their label, which excuses none."""
    rng = np.random.default_rng(0)
    labels = np.arange(240) % CLASSES
    shown = np.where((np.arange(240) < 36) & (labels == 0), CLASSES, labels)
    features = rng.normal(size=(240, 1, 16)) / 2 + 4 * np.eye(CLASSES + 1, 16)[shown][:, None]
    found = judged(RegionFeatures(features.astype(np.float16), np.ones((240, 1), bool)), GivenLabels(labels, CLASSES))
    foreign, own = shown == CLASSES, found.lift[np.arange(240), labels]
    assert found.probable[foreign, 0].min() > 0.9  # of the classes it can only be this one
    assert (own[foreign] < 1.7).all()
    assert (own[~foreign] > 2).mean() > 0.95


def test_of_copies_one_is_asked_and_none_vouches_for_another() -> None:
    given = GivenLabels(np.zeros(6, np.int64), 2, np.array([-1, 4, 4, -1, 4, 7]))
    asked, place = given.asked(seed=0)
    assert asked.tolist() == [0, 1, 3, 5]
    assert place.tolist() == [0, 1, 1, 2, 1, 3]


def test_copies_with_the_same_wrong_label_are_found() -> None:
    """Ten copies of one picture, all with the wrong label: without their group each would confirm the others."""
    regions, true = pictures()
    copies = np.arange(120) < 10
    features = regions.features.copy()
    features[copies] = features[0]
    given = np.where(copies, 1, true)
    groups = np.where(copies, 0, -1)
    found = judged(RegionFeatures(features, regions.real), GivenLabels(given, CLASSES, groups))
    trusting = judged(RegionFeatures(features, regions.real), GivenLabels(given, CLASSES))
    assert (found.probable[copies, 1] < 0.5).all()
    assert (trusting.probable[copies, 1] > found.probable[copies, 1]).all()


def logs(sure: float, images: int = 60, classes: int = 2) -> NDArray[np.float32]:
    """log p (n, C) of a witness that is as sure of the label of each image, by numbers in turn."""
    p = np.full((images, classes), (1 - sure) / (classes - 1))
    p[np.arange(images), np.arange(images) % classes] = sure
    logs: NDArray[np.float32] = np.log(p).astype(np.float32)
    return logs


@pytest.mark.parametrize(
    ("every", "best", "heard", "among_clutter"),
    [
        (logs(0.5), logs(0.9), (0, 1, 2, 3), True),
        (logs(0.9), logs(0.5), (0, 1, 2, 3), False),
        (logs(0.9), logs(0.9), (0, 1, 2, 3), False),  # no clearer than all regions
        (logs(0.5), logs(0.9), (0, 2, 3), False),  # the best region was not heard
        (logs(0.5, images=20), logs(0.9, images=20), (0, 1, 2, 3), False),  # too few to tell
    ],
)
def test_labels_go_by_the_best_region_only_if_that_makes_them_clearly_more_likely(
    every: NDArray[np.float32], best: NDArray[np.float32], heard: tuple[int, ...], among_clutter: bool
) -> None:
    labels, silent = np.arange(len(every)) % 2, np.zeros_like(every)
    found = things_among_clutter(np.stack([every, best, silent, silent]), labels, heard)
    assert found > 0.99 if among_clutter else found < 0.02


def test_things_among_clutter_are_told_from_things_that_fill_their_images() -> None:
    """Twelve classes, ten regions: all show the thing, or one of them and the others something common to all."""
    rng = np.random.default_rng(0)
    labels = np.arange(480) % 12
    found = []
    for shown in (10, 1):
        features = rng.normal(size=(480, 10, 16))
        features[:, :shown] += 4 * np.eye(12, 16)[labels][:, None]
        features[:, shown:, 15] += 4
        found.append(
            judged(RegionFeatures(features.astype(np.float16), np.ones((480, 10), bool)), GivenLabels(labels, 12))
        )
    filled, cluttered = found
    assert cluttered.clutter > 0.99
    assert filled.clutter < 0.01
    assert (cluttered.seen.argmax(axis=1) == 0).mean() > 0.9
