"""How likely an image is foreign to its class: it is less similar to it than the images of a class are.

Let s_i be the similarity of an image to its class. Images that belong have similarities around a mode m, and what lies
above m is of them alone: nothing foreign is more typical than a typical image. So the upper side, half a normal
distribution, tells their spread. Below the mode some differ much from the others though they belong: there they follow
a Student distribution, whose tail is long, SKEW times as wide. What lies further below than that can explain is
foreign: a share q of images, normal around a place well below m.

The label tells too. If p_i(y) is how likely the other images find the given label y, and f(y) its frequency, then

    P(y | it belongs)   = p_i(y)
    P(y | it is foreign) = LEARNT p_i(y) + (1 - LEARNT) f(y):

the label of a foreign picture has nothing to do with what it shows, unless there are more of its kind under that label,
from which it can be learnt. So an odd picture whose label can be told from others is rather odd than foreign. But
pictures of one kind tell each other's label, whatever they show: birds that of the kiwis among which they lie. So the
typical images of the classes must expect it, too: p_i(y) / f(y) is the smaller of what all others say and what these
do, if that is more than 1. They take excuses away, and blame nothing.
Expectation and maximisation give q and, for each image, the probability to be foreign. Below its place it can only rise
as the similarity falls, and above the mode it is 0. Where one group with a longer lower tail, as long as it needs to
be, is about as likely as two, nothing proves that there are foreign pictures: then q is LEAST, so that they are found
only where they are very far away.

And a few lie anywhere: their odds are e^-SELDOM at the mode, and e times as large with each spread below it, up to a
probability of FEW. That flags hardly any, but of images that are not far away the less typical come first.

The similarity to the given class is taken, not that to the most similar one: with many classes there is always one that
a foreign picture is a little similar to.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, t

from somnet.methods.label_posterior import FEWEST

SKEW = 1.2  # how much further images of a class may lie below the mode than above it
FREEDOM = 4.0  # degrees of freedom of the lower tail: the fewer, the longer
APART = 2.0  # spreads below the mode at which the foreign ones begin
LEARNT = 0.05  # share of foreign pictures whose label can be told from others of their kind
ROUNDS = 200
SELDOM = 8.0  # minus the logarithm of the odds to be foreign, of an image that is as typical as most
FEW = 0.1  # probability that they have at most
LEAST = 0.01  # share of foreign pictures where nothing proves that there are any
CLEARLY = 1.0  # gain in log-likelihood that proves it
MODES = np.linspace(0.4, 0.98, 30)  # quantiles at which the mode of a group may lie, where its shape is free
TINY = 1e-12

HEIGHT = float(norm.pdf(0) / t.pdf(0, FREEDOM))  # brings the tail to the height of the upper side at the mode
BELOW = SKEW * HEIGHT / (1 + SKEW * HEIGHT)  # share of the images of a class that lie below the mode


@dataclass(frozen=True)
class Typicality:
    """How similar images are to their class, and how far below that the foreign ones lie."""

    mode: float
    spread: float  # above the mode
    place: float  # of the foreign ones
    width: float
    share: float  # q

    def foreign(self, similarity: NDArray[np.float64], lift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability (n,) to be foreign; `lift` (n,) is how likely others find the label, over its frequency."""
        own = (1 - self.share) * self._own(similarity)
        unlikely = LEARNT + (1 - LEARNT) / np.maximum(lift, TINY)
        other = self.share * norm.pdf(np.maximum(similarity, self.place), self.place, self.width) * unlikely
        probability: NDArray[np.float64] = np.where(similarity < self.mode, other / (own + other + TINY), 0.0)
        return probability

    def belongs(self, similarity: NDArray[np.float64], lift: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability (n,) to be neither far away nor one of the few that lie anywhere."""
        odds = (self.mode - similarity) / self.spread - SELDOM  # their logarithm
        anywhere = np.minimum(expit(odds), FEW) if self.share > 0 else 0.0
        probability: NDArray[np.float64] = (1 - self.foreign(similarity, lift)) * (1 - anywhere)
        return probability

    def _own(self, similarity: NDArray[np.float64]) -> NDArray[np.float64]:
        """Density (n,) of images that belong."""
        away = (similarity - self.mode) / self.spread
        density: NDArray[np.float64] = np.where(away < 0, HEIGHT * t.pdf(away / SKEW, FREEDOM), norm.pdf(away))
        return 2 * (1 - BELOW) * density / self.spread

    def updated(self, similarity: NDArray[np.float64], lift: NDArray[np.float64]) -> "Typicality":
        """One round; `similarity` (n,) is sorted."""
        foreign = self.foreign(similarity, lift)
        own = 1 - foreign
        shares = np.cumsum(own) / own.sum()
        mode = float(similarity[np.searchsorted(shares, BELOW).clip(max=len(similarity) - 1)])
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


def fit_typicality(similarity: NDArray[np.floating], lift: NDArray[np.floating]) -> Typicality:
    """What images of the classes look like, by the similarity (n,) of each to its class and the lift (n,) of labels."""
    values = np.asarray(similarity, np.float64)
    if len(values) < FEWEST or np.ptp(values) < TINY:
        return NOTHING_FOREIGN
    order = np.argsort(values, kind="stable")
    ordered, lifts = values[order], np.asarray(lift, np.float64)[order]
    mode, high = np.quantile(ordered, (0.6, 0.95))
    spread = max(float(high - mode) / 1.645, TINY)
    typicality = Typicality(float(mode), spread, float(mode) - 5 * spread, 2 * spread, 0.02)
    for _ in range(ROUNDS):
        typicality = typicality.updated(ordered, lifts)
    if _gain(typicality, ordered, lifts) > CLEARLY:
        return typicality
    return replace(typicality, share=LEAST, width=max(typicality.width, 2 * typicality.spread))


def _gain(typicality: Typicality, ordered: NDArray[np.float64], lift: NDArray[np.float64]) -> float:
    """By how much two groups are more likely than one, in the log-likelihood of similarities (n,) in order."""
    one = _free_density(ordered, np.ones(len(ordered)))
    own = _free_density(ordered, 1 - typicality.foreign(ordered, lift))
    other = norm.pdf(ordered, typicality.place, typicality.width)
    two = (1 - typicality.share) * own + typicality.share * other
    return float(np.log((two + TINY) / (one + TINY)).sum())


def _free_density(ordered: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density (n,) of the likeliest group for weighted values: half normal above, half normal or exponential below."""
    best, density = -np.inf, np.ones(len(ordered))
    shares = np.cumsum(weight) / weight.sum()
    for mode in ordered[np.searchsorted(shares, MODES).clip(max=len(ordered) - 1)]:
        below = ordered < mode
        if weight[below].sum() < TINY or weight[~below].sum() < TINY:
            continue
        away, share = np.abs(ordered - mode), weight[below].sum() / weight.sum()
        upper, lower = (np.sqrt(np.average(away[one] ** 2, weights=weight[one])) + TINY for one in (~below, below))
        longest = np.average(away[below], weights=weight[below])
        above = 2 * (1 - share) * norm.pdf(away, 0, upper)
        for tail in (2 * share * norm.pdf(away, 0, lower), share / longest * np.exp(-away / longest)):
            found = np.where(below, tail, above)
            if (likelihood := float((weight * np.log(found + TINY)).sum())) > best:
                best, density = likelihood, found
    return density
