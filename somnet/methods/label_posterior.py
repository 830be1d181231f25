"""What the label of an image probably should be: witnesses weighed, and the share of wrong labels, by likelihood.

Evidence z_jic (J witnesses, n images, C classes; label_evidence.py) knows nothing of the image's own label y_i. Let

    p_ic = softmax_c( sum_j w_j z_jic + v log f(c) )  what the image shows, if the witnesses are worth w_j >= 0,
    P(y_i | c) = (1 - e) [y_i = c] + e f(y_i)         how labels go wrong: a share e is drawn by their frequencies f.

Then the given labels have the likelihood prod_i ( (1 - e) p_i(y_i) + e f(y_i) ), where e = 0 for a label that a person
has verified. Its maximum tells what each witness is
worth on these data, and how many labels are wrong: where witnesses are sure and mostly right, labels that they
contradict are called wrong. More than a few are called so only if that makes the labels clearly more likely. By Bayes'
rule

    P(c | image, y_i)  =  p_ic P(y_i | c)  /  sum_k p_ik P(y_i | k).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from scipy.special import softmax

SMALL = 1e-4  # strength of the prior: witnesses that know nothing have little weight
LEAST_WRONG = 0.005  # so that no label is beyond doubt
MOST_WRONG = 0.9
CLEARLY = 4.0  # gain in log-likelihood from which on more labels are believed to be wrong; random ones gain up to 3
FEWEST = 30  # images that tell anything
TINY = 1e-12


@dataclass(frozen=True)
class HeardLabels:
    """The labels of n images, and what was heard about them."""

    evidence: NDArray[np.float32]  # (J, n, C)
    label: NDArray[np.int64]  # (n,)
    doubtful: NDArray[np.bool_]  # (n,) false: a person has verified it

    def take(self, some: NDArray[np.bool_] | NDArray[np.int64]) -> "HeardLabels":
        """Those of some images."""
        return HeardLabels(self.evidence[:, some], self.label[some], self.doubtful[some])


@dataclass(frozen=True)
class Posterior:
    """What was estimated."""

    weights: NDArray[np.float64]  # (J + 1,) of the witnesses, and v of the frequencies
    wrong: float  # e, the share of labels that are drawn at random
    frequency: NDArray[np.float64]  # (C,) f, of the given labels
    log_likelihood: float = 0.0  # of the given labels, by the above
    confusion: NDArray[np.float64] | None = None  # (C, C) P(y | c), where classes differ in that: label_confusion.py

    def shown(self, evidence: NDArray[np.float32]) -> NDArray[np.float64]:
        """p (n, C): what images show, by evidence (J, n, C)."""
        return shown(self.weights, evidence, self.frequency)

    def labelled(self) -> NDArray[np.float64]:
        """P(y | c) (C, C): how the images of each class are labelled."""
        return drawn_by_frequency(self.wrong, self.frequency) if self.confusion is None else self.confusion

    def probabilities(self, evidence: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(c | image, y) (n, C), given the labels (n,) too."""
        p = self.shown(evidence) * self.labelled().T[labels]
        given: NDArray[np.float64] = p / np.maximum(p.sum(axis=1, keepdims=True), TINY)
        return given


def drawn_by_frequency(wrong: float, frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(y | c) (C, C), where a share of all labels is drawn by their frequencies (C,)."""
    return (1 - wrong) * np.eye(len(frequency)) + wrong * frequency


def fit_posterior(
    evidence: NDArray[np.float32], labels: NDArray[np.int64], verified: NDArray[np.bool_] | None = None
) -> Posterior:
    """The weights of witnesses and the share of wrong labels with the highest likelihood of the given labels (n,).

    Those that are `verified` (n,) are beyond doubt.
    """
    doubtful = np.ones(len(labels)) if verified is None else (~verified).astype(np.float64)  # (n,)
    frequency = np.bincount(labels, minlength=evidence.shape[2]) / len(labels)  # (C,)
    if len(labels) < FEWEST:
        return Posterior(np.zeros(len(evidence) + 1), LEAST_WRONG, frequency)
    few, many = (_maximum(evidence, labels, (frequency, doubtful), most) for most in (LEAST_WRONG, MOST_WRONG))
    gain = len(labels) * (few.fun - many.fun)  # in the log-likelihood
    best = many if gain > CLEARLY else few
    return Posterior(best.x[:-1], float(best.x[-1]), frequency, -len(labels) * float(best.fun))


def _maximum(
    evidence: NDArray[np.float32],
    labels: NDArray[np.int64],
    about: tuple[NDArray[np.float64], NDArray[np.float64]],
    most_wrong: float,
) -> OptimizeResult:
    witnesses = len(evidence)
    return minimize(
        _loss,
        np.append(np.full(witnesses + 1, 1 / witnesses), min(0.1, most_wrong)),
        args=(evidence, labels, *about),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * witnesses + [(0, 1), (LEAST_WRONG, most_wrong)],
    )


def _loss(
    x: NDArray[np.float64],
    evidence: NDArray[np.float32],
    labels: NDArray[np.int64],
    frequency: NDArray[np.float64],
    doubtful: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """Mean of -log of the likelihood, with its gradient in (w, v, e)."""
    weights, wrong = x[:-1], x[-1] * doubtful  # wrong: (n,)
    p, rows = shown(weights, evidence, frequency), np.arange(len(labels))
    own, of_label = p[rows, labels], frequency[labels]  # (n,)
    likelihood = (1 - wrong) * own + wrong * of_label + TINY
    by_own = (1 - wrong) / likelihood  # (n,)
    prior = np.broadcast_to(np.log(frequency + TINY), p.shape)  # (n, C)
    slopes = [((z[rows, labels] - (p * z).sum(axis=1)) * own * by_own).mean() for z in (*evidence, prior)]
    by_wrong = (doubtful * (of_label - own) / likelihood).mean()
    loss = -np.log(likelihood).mean() + SMALL * (weights**2).mean()
    return float(loss), np.append(-np.array(slopes) + 2 * SMALL * weights / len(weights), -by_wrong)


def shown(
    weights: NDArray[np.float64], evidence: NDArray[np.float32], frequency: NDArray[np.float64]
) -> NDArray[np.float64]:
    """p (n, C), if the witnesses are worth weights (J + 1,)."""
    logits = np.tensordot(weights[:-1], evidence, axes=1) + weights[-1] * np.log(frequency + TINY)  # (n, C)
    p: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)
    return p
