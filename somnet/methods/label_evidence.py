"""What the other images say about the label of an image, from features alone.

Four witnesses, each with a number per class, of the size of a logarithm of odds:

1. belief: logistic regression on regions (the image, its proposals), fitted to the labels of other folds; the mean over
   the regions of log p.
2. best region: the largest of these, for a thing that is small among clutter.
3. prototypes: the cosine to the mean direction of the typical images of each class, in a view of the features in which
   all directions count alike (class_prototypes.py).
4. neighbours: the logarithm of the share of each class among the most similar other images.

How typical an image is of a class is the sum of two similarities, each as a multiple of its spread: 3, which knows
other kinds of the same thing; and the mean of two cosines without that view, which knows what is far from everything:
of the whole image to the mean of the typical ones of the class, and of its regions to a mean in which an image counts
as far as 1 and 2 believe it to be of the class.

How likely typical images alone find a label is asked of one more regression, on the regions' average: pictures of
another kind under the same label are no part of it.

An image's own label is no part of what is said about it, but for what it does to others. What they are worth differs
with the data, and is estimated: see label_posterior.py. Some images are asked, and can be
heard about any image.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from somnet.methods.class_prototypes import (
    Prototypes,
    Whitening,
    prototypes_of,
    typical_shares,
    unit_vectors,
    whitening_of,
)
from somnet.methods.label_posterior import fit_posterior
from somnet.methods.logistic import Linear, choose_strength, deal_folds, fit, side_by_side

WITNESSES = BELIEF, BEST_REGION, PROTOTYPES, NEIGHBOURS = range(4)  # places in the evidence
FOLDS = 5
NEAREST = 30  # images that vote as neighbours
SHARPNESS = 20.0  # of cosines, so that they are about as large as logarithms of odds
BLOCK = 2**24  # numbers at a time
LEAST = 1e-6  # probability
NARROWEST = 0.01  # spread of cosines: images that are all alike tell nothing by rounding


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
        directions = unit_vectors(self.features.astype(np.float32))  # (m, P, F)
        return unit_vectors(np.einsum("mpf,mp->mf", directions, self.real.astype(np.float32)))

    def whole(self) -> NDArray[np.float32]:
        """Unit vectors (m, F) of whole images."""
        return unit_vectors(self.features[:, 0].astype(np.float32))


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
    by_typical: tuple[Linear, ...]  # the same, of the averages of typical images' regions alone
    unit: NDArray[np.float32]  # (m, F) mean directions
    whitening: Whitening
    apart: Prototypes  # of typical images, as the whitening sees them
    typical: Prototypes  # of typical images, whole
    believed: Prototypes  # of images as far as they are believed to be of a class
    spreads: tuple[float, float] = (
        1.0,
        1.0,
    )  # of how similar images are to their classes, with the whitening and without

    @property
    def classes(self) -> int:
        """How many there are."""
        return len(self.apart.sums)

    def hear(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        """Evidence (J, b, C) about images; `place` (b,) is an image's own among those asked, -1: it is not."""
        size = max(1, BLOCK // max(len(self.labels), regions.features[0].size))
        heard = [self._hear(regions.take(block), place[block]) for block in _blocks(len(regions), size)]
        return np.concatenate(heard, axis=1)

    def _hear(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        belief = _belief(self._log_beliefs(regions, place), regions.real)  # (2, b, C)
        unit = regions.directions()  # (b, F)
        cosines = self.apart.cosines(self.whitening(unit), place)
        return np.stack([*belief, SHARPNESS * cosines, self._neighbours(unit, place)]).astype(np.float32)

    def seen_in_regions(
        self, regions: RegionFeatures, place: NDArray[np.int64], probable: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """How likely each region (b, P) shows what its image probably shows (b, C); one that is not real: as the image.

        By a model that has not seen the label of the image.
        """
        seen = [
            np.einsum("bpc,bc->bp", np.exp(self._log_beliefs(regions.take(block), place[block])), probable[block])
            for block in _blocks(len(regions), max(1, BLOCK // (regions.features.shape[1] * self.classes)))
        ]
        shown = np.concatenate(seen).astype(np.float32)  # (b, P)
        return np.where(regions.real, shown, shown[:, :1])

    def _log_beliefs(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float32]:
        """log p (b, P, C) of each region, by a model that has not seen the image."""
        return _log_beliefs(self.models, regions, self._fold(place))

    def expected(self, regions: RegionFeatures, place: NDArray[np.int64]) -> NDArray[np.float64]:
        """How likely typical images alone find each label (b, C) of images, by a model that has not seen the image.

        Of a class that has no typical images nothing is said: there it is 1.
        """
        fold, averages = self._fold(place), regions.averages()
        found = np.empty((len(fold), self.classes))
        for number, model in enumerate(self.by_typical):
            rows = fold == number
            found[rows] = np.where(model.known, model.probabilities(averages[rows]), 1.0)
        return found

    def _fold(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whose model (b,) has not seen an image.

        Of an image that was not asked none has: one of them is enough, as all of them together would know more than
        is known of the others, and its scores would not compare with theirs.
        """
        return np.where(place >= 0, self.fold[place], 0)

    def similarity(
        self, regions: RegionFeatures, place: NDArray[np.int64], evidence: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """How typical images are of each class (b, C), given the evidence (J, b, C) about them."""
        cosines = (
            self.typical.cosines(regions.whole(), place) + self.believed.cosines(regions.directions(), place)
        ) / 2
        with_whitening, without = self.spreads
        similarity: NDArray[np.float32] = evidence[PROTOTYPES] / SHARPNESS / with_whitening + cosines / without
        return similarity

    def _neighbours(self, unit: NDArray[np.float32], place: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logarithms (b, C) of the classes' shares among the nearest, each class with half a vote to begin with."""
        cosines = unit @ self.unit.T  # (b, m)
        own = np.flatnonzero(place >= 0)
        cosines[own, place[own]] = -np.inf
        count = min(NEAREST, len(self.labels) - 1)
        votes = np.full((len(unit), self.classes), 0.5, np.float32)
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
    averages = regions.averages()
    strength = choose_strength(averages, labels, fold)

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
    member = np.eye(classes, dtype=np.float32)[labels]  # (m, C)
    beyond_doubt = np.zeros((len(labels), 1), bool) if verified is None else verified[:, None]
    share = fit_posterior(belief, labels, verified).probabilities(belief, labels).astype(np.float32)
    believed = prototypes_of(unit, np.where(beyond_doubt, member, share))
    whole, whitening = regions.whole(), whitening_of(unit)
    white, common = whitening(unit), np.where(beyond_doubt, member, typical_shares(whole, member))
    apart = prototypes_of(white, np.where(beyond_doubt, member, np.minimum(common, typical_shares(white, member))))
    typical = prototypes_of(whole, common)
    everybody, own = np.arange(len(labels)), member > 0
    stands = common[own] == 1  # (m,) fully for its class

    def fit_typical(held: int) -> Linear:
        rows = stands & (fold != held)
        return fit(averages[rows], labels[rows], classes, strength)

    by_typical = tuple(side_by_side(fit_typical, range(FOLDS)))
    cosines = (typical.cosines(whole, everybody) + believed.cosines(unit, everybody)) / 2
    spreads = _spread(apart.cosines(white, everybody)[own]), _spread(cosines[own])
    return Witnesses(labels, fold, models, by_typical, unit, whitening, apart, typical, believed, spreads)


def _spread(similarity: NDArray[np.floating]) -> float:
    """Of similarities to the own class (m,), on the side where nothing foreign is."""
    middle, high = np.quantile(similarity, (0.5, 0.9))
    return max(float(high - middle), NARROWEST)


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
