"""How likely an image shows none of the classes: it is less similar to every class than the images of a class are.

Let s_i be the cosine of an image to the most similar prototype. Images of the classes have similarities around a mode
m, and what lies above m is of them alone: nothing foreign is more typical than a typical image. So the upper side tells
their spread, and below the mode they spread up to SKEW times as far (two halves of normal distributions). What lies
further below than that can explain is none of the classes: a share q of images, normal around a place well below m.
Expectation and maximisation give q and, for each image, the probability to be one of these. Below that place it can
only rise, and above the mode it is 0. Where no image is that far away, q is 0 and no image is called foreign.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

SKEW = 2.0  # how much further images of a class may lie below the mode than above it
APART = 3.0  # spreads below the mode at which the foreign ones begin
ROUNDS = 200
FEWEST = 20  # images that tell anything
TINY = 1e-12


@dataclass(frozen=True)
class _Mixture:
    mode: float
    spread: float  # above the mode
    place: float  # of the foreign ones
    width: float
    share: float  # q

    def foreign(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability (n,) to be foreign."""
        below = similarity < self.mode
        spread = np.where(below, SKEW * self.spread, self.spread)
        own = (1 - self.share) * 2 * spread / (self.spread * (1 + SKEW)) * norm.pdf(similarity, self.mode, spread)
        other = self.share * norm.pdf(np.maximum(similarity, self.place), self.place, self.width)
        probability: NDArray[np.float64] = np.where(below, other / (own + other + TINY), 0.0)
        return probability

    def updated(self, similarity: NDArray[np.float64]) -> "_Mixture":
        """One round; `similarity` (n,) is sorted."""
        foreign = self.foreign(similarity)
        own = 1 - foreign
        shares = np.cumsum(own) / own.sum()
        mode = float(similarity[np.searchsorted(shares, SKEW / (1 + SKEW)).clip(max=len(similarity) - 1)])
        above = similarity > mode
        square = np.average((similarity[above] - mode) ** 2, weights=own[above]) if above.any() else self.spread**2
        spread = max(float(np.sqrt(square)), TINY)
        updated = replace(self, mode=mode, spread=spread, share=float(np.clip(foreign.mean(), TINY, 0.8)))
        if foreign.sum() < 0.5:
            return replace(updated, place=min(self.place, mode - APART * SKEW * spread))
        place = min(float(np.average(similarity, weights=foreign)), mode - APART * SKEW * spread)
        width = float(np.sqrt(np.average((similarity - place) ** 2, weights=foreign)))
        return replace(updated, place=place, width=float(np.clip(width, spread / 2, 3 * spread)))


def foreign_probability(similarity: NDArray[np.floating]) -> NDArray[np.float64]:
    """Probability (n,) that images show none of the classes, by the cosine (n,) of each to its nearest prototype."""
    values = np.asarray(similarity, np.float64)
    if len(values) < FEWEST or np.ptp(values) < TINY:
        return np.zeros(len(values))
    ordered = np.sort(values)
    mode, high = np.quantile(ordered, (0.6, 0.95))
    spread = max(float(high - mode) / 1.645, TINY)
    mixture = _Mixture(float(mode), spread, float(mode) - 5 * spread, 2 * spread, 0.02)
    for _ in range(ROUNDS):
        mixture = mixture.updated(ordered)
    return mixture.foreign(values)
