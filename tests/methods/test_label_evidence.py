"""What other images say about a label: nothing of it may come from the image's own label."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from somnet.methods import label_evidence
from somnet.methods.class_prototypes import UNTYPICAL, Prototypes, Whitening
from somnet.methods.label_evidence import SHARPNESS, RegionFeatures, Witnesses, ask
from somnet.methods.label_posterior import fit_posterior
from somnet.methods.logistic import Linear

CLASSES = 3


def pictures(images: int = 90, seed: int = 0) -> tuple[RegionFeatures, NDArray[np.int64]]:
    """Three classes that can be told apart; of each image, region 1 shows it best, and region 2 is missing in some."""
    rng = np.random.default_rng(seed)
    true = np.arange(images) % CLASSES
    features = rng.normal(size=(images, 3, 8)) + np.array([1, 3, 0])[:, None] * np.eye(CLASSES, 8)[true][:, None]
    real = np.ones((images, 3), bool)
    real[::4, 2] = False
    return RegionFeatures(features.astype(np.float16), real), true


def test_every_witness_tells_the_class() -> None:
    regions, labels = pictures()
    evidence = ask(regions, labels, CLASSES, seed=0).hear(regions, np.arange(90))
    assert evidence.shape == (4, 90, CLASSES)
    for witness in evidence:
        assert (witness.argmax(axis=1) == labels).mean() > 0.8


def test_an_image_has_no_say_about_itself() -> None:
    """With its label changed, what is said about it stays the same, but for what its label tells about others."""
    regions, labels = pictures()
    witnesses, place = ask(regions, labels, CLASSES, seed=0), np.arange(90)
    changed = labels.copy()
    changed[7] = (labels[7] + 1) % CLASSES
    others = replace(witnesses, labels=changed)
    assert np.array_equal(others.hear(regions, place)[:, 7], witnesses.hear(regions, place)[:, 7])


def test_flipped_labels_are_found() -> None:
    regions, true = pictures(300)
    given = true.copy()
    given[:60] = (true[:60] + 1 + np.arange(60) // 3 % 2) % CLASSES
    evidence = ask(regions, given, CLASSES, seed=0).hear(regions, np.arange(300))
    posterior = fit_posterior(evidence, given)
    assert posterior.wrong == pytest.approx(0.3, abs=0.1)  # a third of what is drawn at random is right
    assert (posterior.probabilities(evidence, given).argmax(axis=1) == true).mean() > 0.9


def test_how_typical_an_image_is_by_hand() -> None:
    """Cosines of 0.6 with the whitening; without it 1 for the image and 0 for its region; spreads of 0.2 and 0.5."""
    regions = RegionFeatures(np.array([[[1.0, 0.0]]], np.float16), np.array([[True]]))
    as_it_is = Whitening(np.zeros(2, np.float32), np.eye(2, dtype=np.float32))
    apart, typical, believed = (
        Prototypes(np.zeros((1, 1), np.float32), np.array([towards], np.float32))
        for towards in ([0.6, 0.8], [5.0, 0.0], [0.0, 2.0])
    )
    flat = Linear(np.zeros((1, 2)), np.zeros(1))
    unit = np.ones((1, 2), np.float32)
    zero = np.array([0])
    witnesses = Witnesses(zero, zero, (flat,), (flat,), unit, as_it_is, apart, typical, believed, spreads=(0.2, 0.5))
    evidence = witnesses.hear(regions, np.array([-1]))
    assert evidence[2, 0, 0] == pytest.approx(SHARPNESS * 0.6, rel=1e-5)
    assert witnesses.similarity(regions, np.array([-1]), evidence)[0, 0] == pytest.approx(
        0.6 / 0.2 + 0.5 / 0.5, rel=1e-5
    )


def test_pictures_of_another_kind_do_not_stand_for_their_class() -> None:
    """A fifth of the first class is alike, and of no class: the others are still its typical ones."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    centre = np.eye(20)[np.where(np.arange(200) < 20, 2, labels)]
    regions = RegionFeatures(
        (centre + rng.normal(0, 0.15, (200, 20)))[:, None].astype(np.float16), np.ones((200, 1), bool)
    )
    witnesses = ask(regions, labels, 2, seed=0)
    assert witnesses.typical.share[:20, 0].max() == np.float32(UNTYPICAL)
    assert (witnesses.typical.share[20:100, 0] == 1).mean() > 0.7
    assert witnesses.apart.share[:20, 0].max() <= np.float32(UNTYPICAL)
    similar = witnesses.similarity(regions, np.arange(200), witnesses.hear(regions, np.arange(200)))[:, 0]
    assert similar[:20].max() < similar[20:100].min()


def test_typical_images_do_not_expect_what_pictures_of_another_kind_do() -> None:
    """A fifth of the first class is alike, and of no class: and these expect each other's label."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    centre = 3 * np.eye(20)[np.where(np.arange(200) < 20, 2, labels)]
    features = (centre[:, None] + rng.normal(0, 0.7, (200, 1, 20))).astype(np.float16)
    regions = RegionFeatures(features, np.ones((200, 1), bool))
    everybody = np.arange(200)
    witnesses = ask(regions, labels, 2, seed=0)
    by_typical = witnesses.expected(regions, everybody)  # (n, C)
    by_all = np.exp(witnesses.hear(regions, everybody)[0])
    assert by_typical.sum(axis=1) == pytest.approx(1)
    assert (by_all[:20, 0] > by_typical[:20, 0] + 0.05).mean() > 0.9
    assert (by_typical[everybody, labels][20:] > 0.5).mean() > 0.95
    strangers = witnesses.expected(regions, np.full(200, -1))  # as if they had not been asked
    assert (strangers.argmax(axis=1) == labels)[20:].mean() > 0.95


def test_of_a_class_without_typical_images_nothing_is_said() -> None:
    regions, labels = pictures(91)
    labels[-1] = labels.max() + 1  # the only one of its class, so a model that has not seen it does not know the class
    expected = ask(regions, labels, int(labels[-1]) + 1, seed=0).expected(regions, np.arange(91))
    assert expected[-1, -1] == 1
    assert (expected[:-1, :-1].sum(axis=1) > 0.9).all()


def test_regions_that_an_image_has_not_got_say_nothing() -> None:
    regions, labels = pictures()
    witnesses = ask(regions, labels, CLASSES, seed=0)
    spoilt = regions.features.copy()
    spoilt[~regions.real] = 100
    assert np.array_equal(
        witnesses.hear(RegionFeatures(spoilt, regions.real), np.arange(90)), witnesses.hear(regions, np.arange(90))
    )


def test_images_that_were_not_asked_are_heard_about_as_well() -> None:
    (regions, labels), (new, expected) = pictures(), pictures(30, seed=1)
    evidence = ask(regions, labels, CLASSES, seed=0).hear(new, np.full(30, -1))
    assert (evidence.sum(axis=0).argmax(axis=1) == expected).mean() > 0.9


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    regions, labels = pictures()
    witnesses, place = ask(regions, labels, CLASSES, seed=0), np.arange(90)
    whole = witnesses.hear(regions, place)
    monkeypatch.setattr(label_evidence, "BLOCK", 90 * 7)
    assert witnesses.hear(regions, place) == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (9, 1), (1, 0)])
def test_tiny_classes(counts: tuple[int, int]) -> None:
    labels = np.repeat([0, 1], counts)
    rng = np.random.default_rng(0)
    regions = RegionFeatures(rng.normal(size=(len(labels), 2, 4)).astype(np.float16), np.ones((len(labels), 2), bool))
    evidence = ask(regions, labels, 2, seed=0).hear(regions, np.arange(len(labels)))
    assert np.isfinite(evidence).all()
    assert np.isfinite(fit_posterior(evidence, labels).probabilities(evidence, labels)).all()


def test_the_region_that_shows_the_thing_is_believed_most() -> None:
    """Region 1 shows it best, region 2 not at all; one that an image has not got counts as the image."""
    regions, labels = pictures(300)
    witnesses = ask(regions, labels, CLASSES, seed=0)
    seen = witnesses.seen_in_regions(regions, np.arange(300), np.eye(CLASSES)[labels])
    assert seen.shape == (300, 3)
    there = regions.real.all(axis=1)
    image, best, none = seen[there].mean(axis=0)
    assert best > image > none
    assert np.array_equal(seen[~there, 2], seen[~there, 0])


def test_what_a_region_shows_by_hand() -> None:
    """Two classes: p = 0.8 and 0.2 in the image, even in its region; of a label that is 3/4 the first, 0.65 and 0.5."""
    odds = np.log(4.0)
    linear = Linear(np.array([[odds], [0.0]]), np.zeros(2))
    features = np.array([[[1.0], [0.0]]] * 2, np.float16)  # (2, 2, 1)
    prototypes = Prototypes(np.ones((2, 2), np.float32), np.ones((2, 1), np.float32))
    witnesses = Witnesses(
        np.array([0, 1]),
        np.array([0, 1]),
        (linear, linear),
        (linear, linear),
        np.ones((2, 1), np.float32),
        Whitening(np.zeros(1, np.float32), np.ones((1, 1), np.float32)),
        prototypes,
        prototypes,
        prototypes,
    )
    regions = RegionFeatures(features, np.ones((2, 2), bool))
    seen = witnesses.seen_in_regions(regions, np.arange(2), np.array([[0.75, 0.25], [0.0, 1.0]]))
    assert seen == pytest.approx(np.array([[0.65, 0.5], [0.2, 0.5]]), abs=1e-4)
