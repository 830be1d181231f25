"""How likely the given label of each training image is right, and what speaks against it; the same for every method.

Let a be the probability that it is the given class, if the image shows any, by what the other images say, weighed by
likelihood (methods/label_posterior.py); and q(c) that the image is foreign to a class, by how typical it is of it and
how likely others find that label (methods/typicality.py). For the given class y and o, the most probable other one,
whose probability is b, if the image shows any,

    r = d + (1 - d) a (1 - q(y))     it shows the given class: label_score;
    t = (1 - d) b (1 - q(o))         it shows the other one, which is suggested where that is sure;
    1 - r - t                        else it shows none of the classes: outlier_score is 1 minus this.

Some images are odd in every way that can be measured, and right all the same: a share d of whatever is condemned. What
else is known of r, below, leaves t as the same share of 1 - r.

An image that is typical of the other class is no outlier, however little others believe that: there outlier_score is
1 - (1 - r) q(o).

Where labels are flipped a tells, where pictures show no class at all q(y), which is 0 in a class most of whose images
it would call foreign: it is just more varied. Both are of the network before its training, which no label has touched.
Where a person has judged some labels, the others' scores are corrected by that (methods/review.py). Where there is a
clean validation split, r is what its images then make of it (methods/right_examples.py).
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy.special import expit

from somnet.config import Config
from somnet.core.types import BagBatch
from somnet.data.bags import BagBatches, each_image_once
from somnet.data.dataset import FORWARD_IMAGES, Part, region_inputs
from somnet.data.loading import load
from somnet.methods.base import Method
from somnet.methods.features import region_features
from somnet.methods.label_evidence import RegionFeatures
from somnet.methods.label_judgement import GivenLabels, Regions, judge_labels
from somnet.methods.review import WIDTH, Judgements, learn, most_telling, scored_labels
from somnet.methods.right_examples import probability_right
from somnet.methods.typicality import fit_typicality
from somnet.runs.doubt import OUTLIER, SURE, choose_threshold
from somnet.runs.embedding import untouched_network
from somnet.system.compute import Compute
from somnet.system.progress import track
from somnet.system.ranks import ALONE

log = logging.getLogger("somnet")

ODD_BUT_RIGHT = 0.06  # d, so that what is flagged keeps its promise on judged crawls (docs/results.md)
USUAL = 0.25  # share of the images of a class that are less typical of it than one for which it is suggested
TINY = 1e-12


@dataclass(frozen=True)
class LabelScores:
    """What is known of the labels of n images."""

    right: NDArray[np.float32]  # (n,) label_score
    known: NDArray[np.float32]  # (n,) outlier_score: probability to show one of the classes
    suggested: NDArray[np.int64]  # (n,) a class that the image shows for sure instead of the given one; -1: none
    telling: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(m,) images whose judgement by a person would tell most, the best first."""


@dataclass(frozen=True)
class Beside:
    """Images beside the training images whose labels are judged, too, for what that tells."""

    dropped: Part | None = None  # by a person: their labels are wrong
    right: Part | None = None  # whose labels are right

    def parts(self) -> list[Part]:
        """Those that there are."""
        return [part for part in (self.dropped, self.right) if part is not None]

    def labels(self) -> NDArray[np.int64]:
        """Their labels (k,), the dropped ones first."""
        return np.concatenate([np.zeros(0, np.int64), *(part.labels for part in self.parts())])

    def is_dropped(self) -> NDArray[np.bool_]:
        """Which of them (k,) a person has dropped."""
        return np.arange(len(self.labels())) < (0 if self.dropped is None else len(self.dropped))


def score_labels(
    method: Method, part: Part, config: Config, compute: Compute, beside: Beside | None = None
) -> LabelScores:
    """Judge the label of each training image; several ranks need not, one is enough."""
    compute, beside = replace(compute, ranks=ALONE), beside or Beside()
    network = untouched_network(method, config, compute)
    parts = [part, *beside.parts()]
    inputs = [region_inputs(each, network, config, compute) for each in parts]
    workers = compute.loaders_of(cached=network.frozen_trunk)

    def regions() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        with torch.no_grad(), track("judging labels", sum(map(len, parts))) as advance:
            starts = np.cumsum([0, *map(len, parts[:-1])])
            for first, each, shown in zip(starts, parts, inputs, strict=True):
                batches = BagBatches(each_image_once(each.labels), FORWARD_IMAGES, shown, None, seed=None)
                loaded = load(batches, workers, device=compute.device)
                for rows, some in region_features(network, partial(_once, loaded)):
                    yield first + rows, some
                    advance(len(rows))

    return judge(regions, part, beside, config.seed)


def _once(batches: Iterator[BagBatch], _: int) -> Iterator[BagBatch]:
    return batches


@dataclass(frozen=True)
class Heard:
    """What was heard about N labels, and about the most probable other class of each image."""

    own: NDArray[np.float64]  # (N,) a, the probability of the given class, if it shows any
    similarity: NDArray[np.float64]  # (N,) to the given class
    lift: NDArray[np.float64]  # (N,) of the given label
    other: NDArray[np.int64]  # (N,) o; its own one, if there are no two
    probable: NDArray[np.float64]  # (N,) b, the probability of the other class
    similarity_to_other: NDArray[np.float64]  # (N,)
    lift_of_other: NDArray[np.float64]  # (N,)
    nearest: NDArray[np.int64]  # (N,) the class that it is most similar to
    description: NDArray[np.float16]  # (N, D) near each other for images that are alike

    def typical_of_other(self, labels: NDArray[np.int64], classes: int) -> NDArray[np.bool_]:
        """Whether each image (N,) is most similar to the other class, and more so than a quarter of that one's own."""
        of_class = (self.similarity[labels == one] for one in range(classes))
        least = np.array([np.quantile(some, USUAL) if len(some) else np.inf for some in of_class])  # (C,)
        nearest = (self.other != labels) & (self.other == self.nearest)
        typical: NDArray[np.bool_] = nearest & (self.similarity_to_other >= least[self.other])
        return typical


def _hear(regions: Regions, given: GivenLabels, seed: int) -> Heard:
    labels = given.judged  # (N,)
    numbers = np.zeros((6, len(labels)))
    own, similarity, lift, probable, similarity_to_other, lift_of_other = numbers
    other, nearest = np.zeros((2, len(labels)), np.int64)
    description = np.zeros((len(labels), WIDTH), np.float16)
    for some in judge_labels(regions, given, seed):
        rows, place = some.rows, np.arange(len(some.rows))
        own[rows], lift[rows] = some.probable[place, labels[rows]], some.lift[place, labels[rows]]
        similarity[rows], nearest[rows] = some.similarity[place, labels[rows]], some.similarity.argmax(axis=1)
        others = some.probable.copy()
        others[place, labels[rows]] = -1.0  # so that the other class is never its own, if there are two
        best = others.argmax(axis=1)
        other[rows], probable[rows] = best, np.maximum(others[place, best], 0)
        similarity_to_other[rows], lift_of_other[rows] = some.similarity[place, best], some.lift[place, best]
        description[rows, : some.description.shape[1]] = some.description
    return Heard(own, similarity, lift, other, probable, similarity_to_other, lift_of_other, nearest, description)


def judge(regions: Regions, part: Part, beside: Beside, seed: int) -> LabelScores:
    """The same from what the regions of all images look like, the training images first."""
    n, given = len(part), _before_review(part, beside)
    labels, dropped = given.judged, beside.is_dropped()  # (N,), (N - n,)
    heard = _hear(regions, given, seed)
    typicality = fit_typicality(heard.similarity, heard.lift)
    belongs = spare_varied_classes(typicality.belongs(heard.similarity, heard.lift), labels)
    there = typicality.belongs(heard.similarity_to_other, heard.lift_of_other)  # to the other class
    shown = heard.own * belongs
    instead = heard.probable * there / np.maximum(1 - shown, TINY)  # the other class, if the label is wrong
    instead = np.minimum(instead, there)  # which it is but for rounding
    right = ODD_BUT_RIGHT + (1 - ODD_BUT_RIGHT) * shown
    reviewed = np.append(part.judged_labels >= 0, dropped)
    found = Judgements(np.flatnonzero(reviewed), (given.label == labels)[reviewed]).some(seed)
    learnt = learn(scored_labels(right, heard.own, heard.similarity, labels, heard.description), found)
    asked = np.append(~part.verified, np.zeros(len(dropped), bool))
    right = expit(learnt.odds)  # what was learnt from a person holds for all that is said of an image
    unknown = np.append(np.ones(n, bool), dropped)  # (N,)
    right[unknown] = probability_right(right[unknown], right[~unknown])
    if beside.right is not None:
        log.info("label_score is calibrated by the %d images of val", len(beside.right))
    typical = heard.typical_of_other(labels, given.classes)
    known = right + (1 - right) * np.where(typical, there, instead)
    suggested = suggestions(heard.other, (1 - right) * instead, typical)
    return LabelScores(
        np.where(part.verified, 1.0, right[:n]).astype(np.float32),
        np.where(part.verified, 1.0, known[:n]).astype(np.float32),
        np.where(part.verified, -1, suggested[:n]),
        most_telling(learnt, found.rows, asked),
    )


def _before_review(part: Part, beside: Beside) -> GivenLabels:
    """All images: the labels that they came with are judged, by what a person made of the training images."""
    others = beside.labels()
    no = np.full(len(others), -1)
    return GivenLabels(
        np.append(part.labels, no),
        len(part.index.classes),
        np.append(part.groups, no),
        np.append(part.verified, no > 0),
        np.append(np.where(part.judged_labels < 0, part.labels, part.judged_labels), others),
    )


def suggestions(other: NDArray[np.int64], sure: NDArray[np.float64], typical: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The other class (n,) of each image, where it is to be suggested, else -1: on two conditions.

    That must be `sure` (n,), as a probability, and the image `typical` (n,) of that very class: more similar to it than
    to all others, and more than a quarter of the images that are labelled so are.
    """
    return np.where((sure >= SURE) & typical, other, -1)


def spare_varied_classes(belongs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probabilities (n,) to belong, but 1 in a class most of which would not: it is just more varied."""
    varied = np.bincount(labels, weights=belongs) < np.bincount(labels) / 2  # (C,)
    return np.where(varied[labels], 1.0, belongs)


def with_label_scores(images: pa.Table, scores: LabelScores, classes: tuple[str, ...]) -> pa.Table:
    """The table of readable images with these scores before the method's own belief; what is flagged is no clutter."""
    flagged = scores.right < choose_threshold(scores.right)
    outlier = flagged & (scores.known < OUTLIER)
    names = np.array([*classes, None], dtype=object)
    new = {
        "is_label_issue": pa.array(flagged & ~outlier),
        "label_score": pa.array(scores.right),
        "is_outlier_issue": pa.array(outlier),
        "outlier_score": pa.array(scores.known),
        "suggested_label": pa.array(names[scores.suggested], pa.string()),
        "review_order": _order(scores.telling, len(scores.right)),
    }
    first = images.schema.get_field_index("belief")
    for offset, (name, column) in enumerate(new.items()):
        images = images.add_column(first + offset, name, column)
    place = images.schema.get_field_index("is_background_issue")
    cluttered = pc.and_(images["is_background_issue"], pa.array(~flagged))
    return images.set_column(place, "is_background_issue", cluttered)


def _order(rows: NDArray[np.int64], count: int) -> pa.Array:
    """The places of some rows, from 1 on; empty for the others."""
    order = np.zeros(count, np.int32)
    order[rows] = np.arange(1, len(rows) + 1)
    return pa.array(order, mask=order == 0)
