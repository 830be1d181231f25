"""How likely an image is foreign to its class: it is less similar to it than the images of a class are.

Let s_i be the cosine of an image to the prototype of its class. Images that belong have similarities around a mode m,
and what lies above m is of them alone: nothing foreign is more typical than a typical image. So the upper side tells
their spread, and below the mode they spread up to SKEW times as far (two halves of normal distributions). What lies
further below than that can explain is foreign: a share q of images, normal around a place well below m. Expectation and
maximisation give q and, for each image, the probability to be one of these. Below that place it can only rise, and
above the mode it is 0. Where no image is that far away, q is 0 and no image is called foreign; nor where one group with
a longer lower tail, as long as it needs to be, is clearly more likely than two.

The similarity to the given class is taken, not that to the most similar one: with many classes there is always one that
a foreign picture is a little similar to.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

SKEW = 2.0  # how much further images of a class may lie below the mode than above it
APART = 3.0  # spreads below the mode at which the foreign ones begin
ROUNDS = 200
FEWEST = 20  # images that tell anything
CLEARLY = 10.0  # difference in log-likelihood
MODES = np.linspace(0.4, 0.9, 26)  # quantiles at which the mode of a single group may lie
TINY = 1e-12


@dataclass(frozen=True)
class Typicality:
    """How similar images are to their class, and how far below that the foreign ones lie."""

    mode: float
    spread: float  # above the mode
    place: float  # of the foreign ones
    width: float
    share: float  # q

    def foreign(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability (n,) to be foreign."""
        own = self._own(similarity, SKEW * self.spread)
        other = self.share * self._foreign(np.maximum(similarity, self.place))
        probability: NDArray[np.float64] = np.where(similarity < self.mode, other / (own + other + TINY), 0.0)
        return probability

    def log_likelihood(self, similarity: NDArray[np.float64]) -> float:
        """Of all similarities (n,), with the lower spread that images of the classes really have."""
        below = similarity < self.mode
        squares = np.average((similarity[below] - self.mode) ** 2, weights=1 - self.foreign(similarity)[below] + TINY)
        own = self._own(similarity, min(float(np.sqrt(squares)), SKEW * self.spread) + TINY)
        return float(np.log(own + self.share * self._foreign(similarity) + TINY).sum())

    def _own(self, similarity: NDArray[np.float64], lower: float) -> NDArray[np.float64]:
        spread = np.where(similarity < self.mode, lower, self.spread)
        density: NDArray[np.float64] = norm.pdf(similarity, self.mode, spread) * 2 * spread / (self.spread + lower)
        return (1 - self.share) * density

    def _foreign(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        density: NDArray[np.float64] = norm.pdf(similarity, self.place, self.width)
        return density

    def updated(self, similarity: NDArray[np.float64]) -> "Typicality":
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


NOTHING_FOREIGN = Typicality(mode=0.0, spread=1.0, place=-1.0, width=1.0, share=0.0)


def fit_typicality(similarity: NDArray[np.floating]) -> Typicality:
    """What images of the classes look like, by the cosine (n,) of each to the prototype of its class."""
    values = np.asarray(similarity, np.float64)
    if len(values) < FEWEST or np.ptp(values) < TINY:
        return NOTHING_FOREIGN
    ordered = np.sort(values)
    mode, high = np.quantile(ordered, (0.6, 0.95))
    spread = max(float(high - mode) / 1.645, TINY)
    typicality = Typicality(float(mode), spread, float(mode) - 5 * spread, 2 * spread, 0.02)
    for _ in range(ROUNDS):
        typicality = typicality.updated(ordered)
    if typicality.log_likelihood(values) < _one_group(ordered) - CLEARLY:
        return NOTHING_FOREIGN
    return typicality


def _one_group(ordered: NDArray[np.float64]) -> float:
    """The highest log-likelihood of one group: half a normal distribution above, such or an exponential one below."""
    best = -np.inf
    for mode in np.quantile(ordered, MODES):
        below, above = mode - ordered[ordered < mode], ordered[ordered >= mode] - mode
        share, longest = len(below) / len(ordered), below.mean() if len(below) else 0.0
        if longest < TINY or not above.any():
            continue
        upper = norm.logpdf(above, 0, np.sqrt((above**2).mean())).sum() + len(above) * np.log(2 * (1 - share))
        normal = norm.logpdf(below, 0, np.sqrt((below**2).mean())).sum() + len(below) * np.log(2 * share)
        exponential = len(below) * np.log(share / longest) - below.sum() / longest
        best = max(best, float(upper + max(normal, exponential)))
    return best
