"""How likely the given label of each training image is right, and what speaks against it; the same for every method.

label_score = P(the image shows one of the classes) x P(it shows the given one, if so).

The second factor is what the other images say, weighed by likelihood (methods/label_posterior.py); the first one, how
similar the image is to the most similar class (methods/typicality.py). Where labels are flipped the second tells, where
pictures show no class at all the first. Both are of the network before it was trained, which no label has touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from somnet.config import Config
from somnet.data.bags import BagBatches, each_image_once, load
from somnet.data.dataset import FORWARD_IMAGES, Part, region_inputs
from somnet.methods.base import Method
from somnet.methods.features import region_features
from somnet.methods.label_evidence import RegionFeatures
from somnet.methods.label_judgement import GivenLabels, judge_labels
from somnet.methods.typicality import foreign_probability
from somnet.nn.backbones import Network
from somnet.system.compute import Compute
from somnet.system.progress import track
from somnet.system.ranks import ALONE

PROMISED = 0.8  # share of the flagged images whose label is wrong, by the scores themselves
HALF = 0.5  # nothing is flagged that is more likely right than wrong
OUTLIER = 0.5  # outlier_score below which a flagged image is called none of the classes
SURE = 0.8  # probability from which on another label is suggested


@dataclass(frozen=True)
class LabelScores:
    """What is known of the labels of n images."""

    right: NDArray[np.float32]  # (n,) label_score
    known: NDArray[np.float32]  # (n,) outlier_score: probability to show one of the classes
    suggested: NDArray[np.int64]  # (n,) a class that the image shows for sure instead of the given one; -1: none


def score_labels(method: Method, part: Part, config: Config, compute: Compute) -> LabelScores:
    """Judge the label of each training image; several ranks need not, one is enough."""
    network, compute = method.network, replace(compute, ranks=ALONE)
    if config.model.pretrained:
        with torch.random.fork_rng(devices=[]):
            network = Network(config.model, len(part.index.classes)).to(compute.device)
    network.eval()
    inputs = region_inputs(part, network, config, compute)
    workers = compute.loaders_of(cached=network.frozen_trunk)

    def regions() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        batches = BagBatches(each_image_once(part.labels), FORWARD_IMAGES, inputs, None, seed=None)
        with torch.no_grad(), track("judging labels", len(part)) as advance:
            shown = (batch.to(compute.device) for batch in load(batches, workers))
            for rows, some in region_features(network, lambda _: shown):
                yield rows, some
                advance(len(rows))

    n = len(part)
    own, best, similarity = np.zeros(n), np.zeros(n), np.zeros(n)
    shown = np.zeros(n, np.int64)
    for judged in judge_labels(regions, GivenLabels(part.labels, len(part.index.classes), part.groups), config.seed):
        rows, probable = judged.rows, judged.probable
        own[rows] = probable[np.arange(len(rows)), part.labels[rows]]
        shown[rows], best[rows], similarity[rows] = probable.argmax(axis=1), probable.max(axis=1), judged.similarity
    known = 1 - _foreign(similarity, part.labels)
    sure = (shown != part.labels) & (best * known >= SURE)
    return LabelScores((own * known).astype(np.float32), known.astype(np.float32), np.where(sure, shown, -1))


def _foreign(similarity: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probability (n,) to show no class; a class most of which would be foreign is just more varied than the others."""
    foreign = foreign_probability(similarity)
    count = np.bincount(labels)
    varied = np.bincount(labels, weights=foreign) > count / 2  # (C,)
    return np.where(varied[labels], 0.0, foreign)


def choose_threshold(label_score: NDArray[np.floating]) -> float:
    """Below which label_score images are flagged, in hundredths: of those below it the promised share is wrong.

    By the scores (n,) themselves, that is, which are probabilities.
    """
    ordered = np.sort(np.asarray(label_score, np.float64))
    steps = np.arange(round(100 * HALF) + 1) / 100
    count = np.searchsorted(ordered, steps, side="left")  # of images below each step
    wrong = np.append(0.0, np.cumsum(1 - ordered))[count]  # expected among them
    return float(steps[wrong >= PROMISED * count].max())


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
    }
    first = images.schema.get_field_index("belief")
    for offset, (name, column) in enumerate(new.items()):
        images = images.add_column(first + offset, name, column)
    place = images.schema.get_field_index("is_background_issue")
    cluttered = pc.and_(images["is_background_issue"], pa.array(~flagged))
    return images.set_column(place, "is_background_issue", cluttered)


def flagged_sentence(images: pa.Table) -> str:
    """How many images of a run are flagged, and what that is worth: what every place says that counts them."""
    score = images["label_score"].drop_null().to_numpy()
    flagged = score[score < choose_threshold(score)]
    if len(flagged) == 0:
        return "no label is doubted"
    return f"{len(flagged):,} labels are doubted, of which about {(1 - flagged).sum():,.0f} are wrong"
