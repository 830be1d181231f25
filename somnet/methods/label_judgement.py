"""What the other images say about every label of a training set, in bounded memory; see label_evidence.py."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from somnet.data.bags import pictures_of
from somnet.methods.label_confusion import learn_confusion
from somnet.methods.label_evidence import BELIEF, BEST_REGION, LEAST, WITNESSES, RegionFeatures, ask, join_regions
from somnet.methods.label_posterior import CLEARLY, HeardLabels, fit_posterior
from somnet.methods.review import find_axes

log = logging.getLogger("somnet")

MOST = 20_000  # images that are asked, so that time and memory stay bounded

Regions = Callable[[], Iterator[tuple[NDArray[np.int64], RegionFeatures]]]
"""Goes over all images in order: numbers (b,) and region features of some at a time."""


@dataclass(frozen=True)
class Judged:
    """What was heard about some images."""

    rows: NDArray[np.int64]  # (b,)
    probable: NDArray[np.float64]  # (b, C) what the label should be, if it is one of the classes
    lift: NDArray[np.float64]  # (b, C) how expected each label is over its frequency: above 1 by typical images, too
    similarity: NDArray[np.float32]  # (b, C) how typical it is of each class
    description: NDArray[np.float16]  # (b, D) unit vectors, near each other for images that are alike
    seen: NDArray[np.float32]  # (b, P) how likely each region shows what the image probably shows
    real: NDArray[np.bool_]  # (b, P) false: the image once more, where it has fewer regions
    wrong: float  # share of all labels that are drawn at random, some of them rightly
    clutter: float  # how probable it is that the best region of an image tells what it shows, and not all of them


@dataclass(frozen=True)
class GivenLabels:
    """The labels of n images."""

    label: NDArray[np.int64]  # (n,) -1: a person has said that it is wrong, so it is not asked
    classes: int
    groups: NDArray[np.int64] | None = None  # (n,) of duplicates, -1: alone; copies must not vouch for each other
    verified: NDArray[np.bool_] | None = None  # (n,) whether a person has confirmed the label
    before: NDArray[np.int64] | None = None  # (n,) the labels that are judged, where a person has given others

    @property
    def judged(self) -> NDArray[np.int64]:
        """The labels (n,) that are judged."""
        return self.label if self.before is None else self.before

    def asked(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The images (m,) that are asked, one of each picture; and where an image (n,) or its copy is among them."""
        pictures = pictures_of(np.arange(len(self.label)), self.groups)
        _, first, number = np.unique(pictures, return_index=True, return_inverse=True)
        labelled = first[self.label[first] >= 0]
        asked = np.sort(np.random.default_rng((seed, *b"ask")).permutation(labelled)[:MOST])
        place = np.full(len(pictures), -1)
        place[asked] = np.arange(len(asked))
        return asked, place[first[number]]


def judge_labels(regions: Regions, given: GivenLabels, seed: int, heard: Sequence[int] = WITNESSES) -> Iterator[Judged]:
    """Hear the witnesses `heard` about the given labels, and weigh them."""
    labels = given.label
    asked, place = given.asked(seed)
    among = np.isin(np.arange(len(labels)), asked)
    known = join_regions([some.take(among[rows]) for rows, some in regions()])
    verified = None if given.verified is None else given.verified[asked]
    witnesses = ask(known, labels[asked], given.classes, seed, verified)
    axes = find_axes(witnesses.unit, seed)
    evidence = witnesses.hear(known, np.arange(len(asked)))
    said = evidence[list(heard)]
    posterior = fit_posterior(said, labels[asked], verified)
    doubtful = np.ones(len(asked), bool) if verified is None else ~verified
    posterior = learn_confusion(posterior, HeardLabels(said, labels[asked], doubtful), seed)
    weights = ", ".join(f"{weight:.2f}" for weight in posterior.weights[:-1])
    how = "drawn at random" if posterior.confusion is None else "those of classes that are taken for each other"
    wrong = 100 * float(posterior.frequency @ (1 - np.diag(posterior.labelled())))
    log.debug("about %.0f %% of the labels are wrong, %s; witnesses weigh %s", wrong, how, weights)
    clutter = things_among_clutter(evidence, labels[asked], heard, verified)

    def judged(rows: NDArray[np.int64], some: RegionFeatures, evidence: NDArray[np.float32]) -> Judged:
        heard_of, similarity = evidence[list(heard)], witnesses.similarity(some, place[rows], evidence)
        probable = posterior.probabilities(heard_of, given.judged[rows])
        frequency = np.maximum(posterior.frequency, LEAST)
        by_all, by_typical = posterior.shown(heard_of) / frequency, witnesses.expected(some, place[rows]) / frequency
        lift = np.minimum(by_all, np.maximum(by_typical, 1.0))
        seen = witnesses.seen_in_regions(some, place[rows], probable)
        described = axes.describe(some.directions())
        return Judged(rows, probable, lift, similarity, described, seen, some.real, posterior.wrong, clutter)

    if len(asked) == len(labels):
        yield judged(asked, known, evidence)
        return
    for rows, some in regions():
        yield judged(rows, some, witnesses.hear(some, place[rows]))


def things_among_clutter(
    evidence: NDArray[np.float32],
    labels: NDArray[np.int64],
    heard: Sequence[int],
    verified: NDArray[np.bool_] | None = None,
) -> float:
    """How probable it is that labels (m,) go by the best region of an image, and not by all of them.

    Where things fill their images all regions tell, and where they are small among clutter the best one does. Each of
    the two witnesses alone gives the labels a likelihood, by its `evidence` (J, m, C); their ratio is the odds, of
    which the best region has to win as much as is asked for wherever something is called clear.
    """
    if BEST_REGION not in heard:
        return 0.0
    best, every = (fit_posterior(evidence[[witness]], labels, verified) for witness in (BEST_REGION, BELIEF))
    return float(expit(best.log_likelihood - every.log_likelihood - CLEARLY))
