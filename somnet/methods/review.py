"""What a person's judgement of some labels tells about the others, and whose judgement would tell most.

Before anybody has looked, label i is right with log-odds l_i, those of label_score. How far they are off is unknown, so

    log-odds of label i  =  l_i + g_i,    g normal around 0 with covariance K,

    K_ij = LEVEL^2                                            all scores may be too high, or too low
           + BELIEF^2 b_i b_j                                 the given class may be worth more or less than thought:
                                                              b_i its log-odds among the classes, standardised
           + TYPICAL^2 t_i t_j                                and so may the similarity t_i to the classes, standardised
           + ALIKE^2 (1 + [y_i = y_j]) e^(STEEP (cos_ij - 1)) what is true of an image is true of others like it, above
                                                              all with the same label: who takes A for B does it often.

With judgements r_i = 1 (right) or 0 (wrong) of some images, which are right with probability sigma(l_i + g_i), the most
probable g is K a, where a_i = w_i (r_i - sigma(l_i + g_i)) for these images and 0 for all others. A person also drops
right pictures, a share OTHERWISE of them, because they are ugly, copies or of a class that nobody wants any longer;
that says nothing about labels. So w_i is the probability that a dropped image was dropped for its label, by what was
known of it, (1 - p_i) / (1 - p_i + OTHERWISE p_i) with p_i = sigma(l_i), and 1 for r_i = 1. Beforehand g = 0 is most
probable, so few judgements change little, and none changes nothing. This is a Gaussian process; what is left of it for
ALIKE = TYPICAL = 0 is Platt's calibration.

A judgement of image i tells about log(1 + v_i p_i (1 - p_i)) / 2 about g, where v_i is the variance of g_i, given what
was judged, and p_i the probability to be right, averaged over g_i. So images are chosen one after the other; each
lowers the v of those that it tells about, whatever the judgement will be: of several alike one is asked for.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.utils.extmath import randomized_svd

LEVEL, BELIEF, TYPICAL, ALIKE = 2.0, 1.0, 0.5, 2.0  # how far the log-odds may be off
OTHERWISE = 0.03  # share of right pictures that a person drops or relabels all the same
COUNT = 50  # images that are proposed
STEEP = 3.0  # how soon images are no longer alike
MOST_JUDGED = 1000  # that are learnt from, so that time and memory stay bounded; of more, some
MOST_PROPOSED = 5000  # that are chosen from: those that tell most alone
WIDTH = 64  # of a description
FEW = 0.01  # share of values at each end that may be far from the others
CERTAIN = 1e-12  # probability that is not told apart from 0
TINY = 1e-9


@dataclass(frozen=True)
class Axes:
    """The directions in which images differ most."""

    mean: NDArray[np.float32]  # (F,)
    across: NDArray[np.float32]  # (F, D)

    def describe(self, unit: NDArray[np.float32]) -> NDArray[np.float16]:
        """Descriptions (n, D) of unit length, whose products are large for images that are alike."""
        along = (unit - self.mean) @ self.across
        described: NDArray[np.float16] = along / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), TINY)
        return described.astype(np.float16)


def find_axes(unit: NDArray[np.float32], seed: int) -> Axes:
    """From features (m, F) of unit length."""
    mean = unit.mean(axis=0)
    width = min(WIDTH, *unit.shape)
    _, _, rows = randomized_svd(unit - mean, width, n_iter=2, random_state=seed)
    return Axes(mean, rows.T.astype(np.float32))


@dataclass(frozen=True)
class Scored:
    """What is known of n labels without a person."""

    odds: NDArray[np.float64]  # (n,) logarithms l, of the label's being right
    facts: NDArray[np.float64]  # (n, 2) b and t
    label: NDArray[np.int64]  # (n,) y
    description: NDArray[np.float16]  # (n, D)

    def __len__(self) -> int:
        return len(self.odds)

    def take(self, rows: NDArray[np.int64]) -> "Scored":
        """Some of them."""
        return Scored(self.odds[rows], self.facts[rows], self.label[rows], self.description[rows])

    def covariance(self, others: "Scored") -> NDArray[np.float64]:
        """K (n, m) with others."""
        cosine = self.description.astype(np.float64) @ others.description.astype(np.float64).T
        shared = 1 + (self.label[:, None] == others.label)
        k: NDArray[np.float64] = (
            LEVEL**2 + self.facts @ others.facts.T + ALIKE**2 * shared * np.exp(STEEP * (cosine - 1))
        )
        return k

    def variance(self) -> NDArray[np.float64]:
        """The diagonal (n,) of K with themselves."""
        v: NDArray[np.float64] = LEVEL**2 + (self.facts**2).sum(axis=1) + 2 * ALIKE**2
        return v


def scored_labels(
    label_score: NDArray[np.float64],
    own: NDArray[np.float64],
    similarity: NDArray[np.float64],
    label: NDArray[np.int64],
    description: NDArray[np.float16],
) -> Scored:
    """From label_score (n,), the probability `own` (n,) of the label among the classes, and similarity (n,) to them."""
    facts = np.stack([BELIEF * _standard(_log_odds(own)), TYPICAL * _standard(similarity)], axis=1)
    return Scored(_log_odds(label_score), facts, label, description)


@dataclass(frozen=True)
class Judgements:
    """What a person found."""

    rows: NDArray[np.int64]  # (m,) images
    right: NDArray[np.bool_]  # (m,) whether the label is right

    def some(self, seed: int) -> "Judgements":
        """Not more than can be learnt from."""
        chosen = np.sort(np.random.default_rng(seed).permutation(len(self.rows))[:MOST_JUDGED])
        return Judgements(self.rows[chosen], self.right[chosen])


def learn(scored: Scored, judged: Judgements) -> Scored:
    """The same with the logarithms of odds l + g, g being most probable by these judgements."""
    if len(judged.rows) == 0:
        return scored
    known = scored.take(judged.rows)
    k = known.covariance(known)
    root = np.linalg.cholesky(k + 1e-6 * np.eye(len(k)))  # g = root z, z standard normal
    sign, wrong = np.where(judged.right, 1.0, -1.0), expit(-known.odds)
    weight = np.where(judged.right, 1.0, wrong / (wrong + OTHERWISE * (1 - wrong)))  # (m,) w

    def loss(z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (known.odds + root @ z)
        slope = weight * sign * expit(-margin)
        return float(z @ z / 2 + weight @ np.logaddexp(0, -margin)), z - root.T @ slope

    z = minimize(loss, np.zeros(len(k)), jac=True, method="L-BFGS-B").x
    a = weight * (judged.right - expit(known.odds + root @ z))  # (m,)
    blocks = np.array_split(np.arange(len(scored)), 1 + len(scored) * len(a) // 2**24)
    g = np.concatenate([scored.take(block).covariance(known) @ a for block in blocks])
    return replace(scored, odds=scored.odds + g)


def most_telling(
    scored: Scored, judged: NDArray[np.int64], candidate: NDArray[np.bool_], count: int = COUNT
) -> NDArray[np.int64]:
    """Rows of the images whose judgement would tell most, the best first: of the candidates (n,), after `judged`."""
    likely = np.flatnonzero(candidate)
    first = _information(scored.odds[likely], scored.variance()[likely])
    likely = likely[np.argsort(-first, kind="stable")[:MOST_PROPOSED]]
    rows = np.concatenate([judged, likely])
    some = scored.take(rows)
    v, free = some.variance(), np.arange(len(rows)) >= len(judged)
    steps = len(judged) + min(count, len(likely))
    lowered = np.zeros((steps, len(rows)))  # by how much each judgement lowers the covariance: row x row
    chosen = list(range(len(judged)))
    for step in range(steps):
        if step >= len(judged):
            chosen.append(int(np.where(free, _information(some.odds, v), -1.0).argmax()))
        row = chosen[step]
        free[row] = False
        covariance = some.covariance(some.take(np.array([row])))[:, 0] - lowered[:step].T @ lowered[:step, row]
        lowered[step] = covariance / np.sqrt(v[row] + 1 / _doubt(some.odds[row], v[row]))
        v = np.maximum(v - lowered[step] ** 2, 0)
    return rows[chosen[len(judged) :]]


def _doubt(odds: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """p (1 - p), p being sigma(l + g) averaged over g with this variance, nearly (MacKay 1992)."""
    p = expit(odds / np.sqrt(1 + np.pi * variance / 8))
    doubt: NDArray[np.float64] = np.maximum(p * (1 - p), CERTAIN)
    return doubt


def _information(odds: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log1p(variance * _doubt(odds, variance)) / 2


def _log_odds(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    odds: NDArray[np.float64] = logit(np.clip(np.asarray(probability, np.float64), CERTAIN, 1 - CERTAIN))
    return odds


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """With mean 0 and spread 1, without the few that are far from the others."""
    cut = np.clip(values, *np.quantile(values, (FEW, 1 - FEW)))
    standard: NDArray[np.float64] = (cut - cut.mean()) / max(float(cut.std()), TINY)
    return standard
