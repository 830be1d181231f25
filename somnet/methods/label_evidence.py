"""What the other images say about the label of an image, from features alone.

Four witnesses, each with a number per class, of the size of a logarithm of odds:

1. belief: logistic regression on regions (the image, its proposals), fitted to the labels of other folds; the mean over
   the regions of log p.
2. best region: the largest of these, for a thing that is small among clutter.
3. prototypes: the cosine to the mean feature of each class, in which an image counts as far as 1 and 2 believe it to be
   of the class, or fully if a person has verified it, and the image itself not at all.
4. neighbours: the logarithm of the share of each class among the most similar other images.

How typical an image is of a class is the mean of two cosines: of its regions to the class's prototype above, and of the
whole image to the mean of the typical ones of the class. Typical are the three quarters of all images that are most
similar to that mean, in turns: where a class holds many pictures of another kind, they must not stand for it.

An image's own label is no part of what is said about it, but for what it does to others. What they are worth differs
with the data, and is estimated: see label_posterior.py. Some images are asked, and can be
heard about any image.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from somnet.methods.label_posterior import fit_posterior
from somnet.methods.logistic import Linear, choose_strength, deal_folds, fit, side_by_side

WITNESSES = BELIEF, BEST_REGION, PROTOTYPES, NEIGHBOURS = range(4)  # places in the evidence
FOLDS = 5
NEAREST = 30  # images that vote as neighbours
SHARPNESS = 20.0  # of cosines, so that they are about as large as logarithms of odds
BLOCK = 2**24  # numbers at a time
LEAST = 1e-6  # probability
ALONE = 1e-3  # squared length of a prototype that nothing is left of
TYPICAL = 0.75  # share of all images that stand for their classes
UNTYPICAL = 0.05  # how far the others do, for a class that has no typical ones
TURNS = 4


@dataclass(frozen=True)
class RegionFeatures:
    """Features of the regions of m images; those that an image has not got are not real."""

    features: NDArray[np.float16]  # (m, P, F)
    real: NDArray[np.bool_]  # (m, P); the first, the image itself, always

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "RegionFeatures":
        """Some of the images."""
        return RegionFeatures(self.features[rows], self.real[rows])

    def averages(self) -> NDArray[np.float16]:
        """The mean (m, F) of each image's regions."""
        total = np.einsum("mpf,mp->mf", self.features.astype(np.float32), self.real.astype(np.float32))
        mean: NDArray[np.float16] = (total / self.real.sum(axis=1, keepdims=True)).astype(np.float16)
        return mean

    def directions(self) -> NDArray[np.float32]:
        """Unit vectors (m, F): the mean direction of each image's regions."""
        return _unit(np.einsum("mpf,mp->mf", _unit(self.features.astype(np.float32)), self.real.astype(np.float32)))


def join_regions(some: Sequence[RegionFeatures]) -> RegionFeatures:
    """Those of several batches, in their order."""
    features, real = zip(*((each.features, each.real) for each in some), strict=True)
    return RegionFeatures(np.concatenate(features), np.concatenate(real))


@dataclass(frozen=True)
class Witnesses:
    """Images that were asked, and what is needed to hear them about any image."""

    labels: NDArray[np.int64]  # (m,) of those asked
    fold: NDArray[np.int64]  # (m,)
    models: tuple[Linear, ...]  # one per fold, which has not seen it
    unit: NDArray[np.float32]  # (m, F) mean directions
    share: NDArray[np.float32]  # (m, C) how far each counts for the prototype of a class
    prototypes: NDArray[np.float32]  # (C, F) sums
    typical: NDArray[np.float32]  # (m, C) how far each counts for the mean of the typical ones
    means: NDArray[np.float32]  # (C, F) sums of whole images

    def hear(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        """Evidence (J, b, C) about images; `place` (b,) is an image's own among those asked, -1: it is not."""
        size = max(1, BLOCK // max(len(self.labels), regions.features[0].size))
        heard = [self._hear(regions.take(block), place[block]) for block in _blocks(len(regions), size)]
        return np.concatenate(heard, axis=1)

    def _hear(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        own = place >= 0
        belief = _belief(self._log_beliefs(regions, place), regions.real)  # (2, b, C)
        unit = regions.directions()  # (b, F)
        cosines = _cosines_of_others(unit, self.prototypes, np.where(own[:, None], self.share[place], 0.0))
        return np.stack([*belief, SHARPNESS * cosines, self._neighbours(unit, place)]).astype(np.float32)

    def seen_in_regions(
        self, regions: RegionFeatures, place: NDArray[np.int64], probable: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """How likely each region (b, P) shows what its image probably shows (b, C); one that is not real: as the image.

        By a model that has not seen the label of the image.
        """
        seen = [
            np.einsum("bpc,bc->bp", np.exp(self._log_beliefs(regions.take(block), place[block])), probable[block])
            for block in _blocks(len(regions), max(1, BLOCK // (regions.features.shape[1] * len(self.prototypes))))
        ]
        shown = np.concatenate(seen).astype(np.float32)  # (b, P)
        return np.where(regions.real, shown, shown[:, :1])

    def _log_beliefs(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        """log p (b, P, C) of each region, by a model that has not seen the image.

        Of an image that was not asked none has: one of them is enough, as all of them together would know more than
        is known of the others, and its scores would not compare with theirs.
        """
        return _log_beliefs(self.models, regions, np.where(place >= 0, self.fold[place], 0))

    def similarity(
        self, regions: RegionFeatures, place: NDArray[np.int64], evidence: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """How typical images are of each class (b, C), given the evidence (J, b, C) about them."""
        share = np.where((place >= 0)[:, None], self.typical[place], 0.0)
        whole = _cosines_of_others(_unit(regions.features[:, 0].astype(np.float32)), self.means, share)
        similarity: NDArray[np.float32] = (whole + evidence[PROTOTYPES] / SHARPNESS) / 2
        return similarity

    def _neighbours(self, unit: NDArray[np.float32], place: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logarithms (b, C) of the classes' shares among the nearest, each class with half a vote to begin with."""
        cosines = unit @ self.unit.T  # (b, m)
        own = np.flatnonzero(place >= 0)
        cosines[own, place[own]] = -np.inf
        count, classes = min(NEAREST, len(self.labels) - 1), self.share.shape[1]
        votes = np.full((len(unit), classes), 0.5, np.float32)
        if count > 0:
            nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]  # (b, count)
            np.add.at(votes, (np.arange(len(unit))[:, None], self.labels[nearest]), 1.0)
        shares: NDArray[np.float32] = np.log(votes / votes.sum(axis=1, keepdims=True))
        return shares


def ask(
    regions: RegionFeatures,
    labels: NDArray[np.int64],
    classes: int,
    seed: int,
    verified: NDArray[np.bool_] | None = None,
) -> Witnesses:
    """Fit what the witnesses need, to m images and their given labels (m,), of which some are `verified` (m,)."""
    fold = deal_folds(labels, FOLDS, seed)
    strength = choose_strength(regions.averages(), labels, fold)

    def fit_others(held: int) -> Linear:
        return _fit_regions(regions.take(fold != held), labels[fold != held], classes, strength)

    models = tuple(side_by_side(fit_others, range(FOLDS)))
    unit = regions.directions()
    size = max(1, BLOCK // (regions.features.shape[1] * classes))
    beliefs = [
        _belief(_log_beliefs(models, regions.take(block), fold[block]), regions.real[block])
        for block in _blocks(len(labels), size)
    ]
    belief = np.concatenate(beliefs, axis=1)
    share = fit_posterior(belief, labels, verified).probabilities(belief, labels).astype(np.float32)
    if verified is not None:
        share[verified] = np.eye(classes, dtype=np.float32)[labels[verified]]
    whole = _unit(regions.features[:, 0].astype(np.float32))
    typical = _typical(whole, np.eye(classes, dtype=np.float32)[labels])
    return Witnesses(labels, fold, models, unit, share, share.T @ unit, typical, typical.T @ whole)


def _typical(unit: NDArray[np.float32], member: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far images (m, F) count for the means of their classes, which they are a `member` (m, C) of."""
    share = member
    for _ in range(TURNS):
        similar = (_cosines_of_others(unit, share.T @ unit, share) * member).sum(axis=1)  # (m,)
        typical = similar > np.quantile(similar, 1 - TYPICAL)
        share = member * np.where(typical, 1.0, UNTYPICAL).astype(np.float32)[:, None]
    return share


def _cosines_of_others(
    unit: NDArray[np.float32], sums: NDArray[np.float32], share: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Cosines (b, C) of unit vectors (b, F) to sums (C, F), without the share (b, C) that each has in them itself."""
    dots = unit @ sums.T  # (b, C)
    squares = (sums**2).sum(axis=1) - 2 * share * dots + share**2  # |sum without the image|^2
    alone = squares < ALONE  # nothing is left without the image
    cosines = np.where(alone, -1.0, (dots - share) / np.sqrt(np.where(alone, 1.0, squares)))
    return np.where(alone, cosines.max(axis=1, keepdims=True), cosines).astype(np.float32)


def _fit_regions(regions: RegionFeatures, labels: NDArray[np.int64], classes: int, strength: float) -> Linear:
    """Logistic regression on all regions, each as an example of the image's label, an image counting once in all."""
    if len(labels) == 0:
        return fit(regions.features[:, 0], labels, classes, strength)
    image, _ = np.nonzero(regions.real)
    return fit(regions.features[regions.real], labels[image], classes, strength * len(labels) / len(image))


def _log_beliefs(models: tuple[Linear, ...], regions: RegionFeatures, fold: NDArray[np.int64]) -> NDArray[np.float32]:
    """log p (b, P, C) of each region, by the model of its image's fold (b,)."""
    b, most, width = regions.features.shape
    classes = len(models[0].bias)
    logs = np.zeros((b, most, classes), np.float32)
    for number, model in enumerate(models):
        rows = np.flatnonzero(fold == number)
        p = model.probabilities(regions.features[rows].reshape(len(rows) * most, width))
        known = np.log(np.where(model.known, p, 1 / classes) + LEAST)  # of a class it does not know nothing is said
        logs[rows] = known.reshape(len(rows), most, classes)
    return logs


def _belief(logs: NDArray[np.float32], real: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Mean and largest (2, b, C) of log p (b, P, C) over the regions that are real (b, P)."""
    mask = real[..., None]
    mean = (logs * mask).sum(axis=1) / mask.sum(axis=1)
    return np.stack([mean, np.where(mask, logs, -np.inf).max(axis=1)])


def _blocks(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]


def _unit(x: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), LEAST)
    return unit
