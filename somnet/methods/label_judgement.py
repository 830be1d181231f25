"""What the other images say about every label of a training set, in bounded memory; see label_evidence.py."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from somnet.methods.label_evidence import PROTOTYPES, SHARPNESS, WITNESSES, RegionFeatures, ask
from somnet.methods.label_posterior import fit_posterior

log = logging.getLogger("somnet")

MOST = 20_000  # images that are asked, so that time and memory stay bounded

Regions = Callable[[], Iterator[tuple[NDArray[np.int64], RegionFeatures]]]
"""Goes over all images in order: numbers (b,) and region features of some at a time."""


@dataclass(frozen=True)
class Judged:
    """What was heard about some images."""

    rows: NDArray[np.int64]  # (b,)
    probable: NDArray[np.float64]  # (b, C) what the label should be, if it is one of the classes
    similarity: NDArray[np.float32]  # (b,) cosine to the most similar prototype of a class


def judge_labels(
    regions: Regions, labels: NDArray[np.int64], classes: int, seed: int, heard: Sequence[int] = WITNESSES
) -> Iterator[Judged]:
    """Hear the witnesses `heard` about the given labels (n,), and weigh them."""
    asked = np.sort(np.random.default_rng((seed, *b"ask")).permutation(len(labels))[:MOST])
    place = np.full(len(labels), -1)
    place[asked] = np.arange(len(asked))
    kept = [some.take(place[rows] >= 0) for rows, some in regions()]
    known = RegionFeatures(
        np.concatenate([some.features for some in kept]), np.concatenate([some.real for some in kept])
    )
    witnesses = ask(known, labels[asked], classes, seed)
    evidence = witnesses.hear(known, np.arange(len(asked)))
    posterior = fit_posterior(evidence[list(heard)], labels[asked])
    weights = ", ".join(f"{weight:.2f}" for weight in posterior.weights)
    log.info("labels: about %.0f %% are another class's; witnesses weigh %s", 100 * posterior.wrong, weights)

    def judged(rows: NDArray[np.int64], evidence: NDArray[np.float32]) -> Judged:
        similarity = evidence[PROTOTYPES].max(axis=1) / SHARPNESS
        return Judged(rows, posterior.probabilities(evidence[list(heard)], labels[rows]), similarity)

    if len(asked) == len(labels):
        yield judged(asked, evidence)
        return
    for rows, some in regions():
        yield judged(rows, witnesses.hear(some, place[rows]))
