"""What the label of an image probably should be: witnesses weighed, and the share of wrong labels, by likelihood.

Evidence z_jic (J witnesses, n images, C classes; label_evidence.py) knows nothing of the image's own label y_i. Let

    p_ic = softmax_c( sum_j w_j z_jic )        what the image shows, if the witnesses are worth w_j >= 0,
    P(y_i | c) = 1 - e  if y_i = c,  else  e / (C - 1)        how labels go wrong.

Then the given labels have the likelihood prod_i ( (1 - e) p_i(y_i) + e / (C - 1) (1 - p_i(y_i)) ). Its maximum tells
what each witness is worth on these data, and how many labels are wrong: where witnesses are sure and mostly right,
labels that they contradict are called wrong; where they know nothing, no label is doubted. By Bayes' rule

    P(c | image, y_i)  =  p_ic P(y_i | c)  /  sum_k p_ik P(y_i | k).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

SMALL = 1e-4  # strength of the prior: without evidence, weights and the share of wrong labels are small
LEAST_WRONG = 0.005  # so that no label is beyond doubt
MOST_WRONG = 0.9  # of what pure chance would give, (C - 1) / C
TINY = 1e-12


@dataclass(frozen=True)
class Posterior:
    """What was estimated."""

    weights: NDArray[np.float64]  # (J,) of the witnesses
    wrong: float  # e, the share of labels that are another class's

    def shown(self, evidence: NDArray[np.float32]) -> NDArray[np.float64]:
        """p (n, C): what images show, by evidence (J, n, C)."""
        return _shown(self.weights, evidence)

    def probabilities(self, evidence: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(c | image, y) (n, C), given the labels (n,) too."""
        p = self.shown(evidence)
        others = self.wrong / max(p.shape[1] - 1, 1)
        rows = np.arange(len(labels))
        own = p[rows, labels] * (1 - self.wrong)
        p *= others
        p[rows, labels] = own
        given: NDArray[np.float64] = p / np.maximum(p.sum(axis=1, keepdims=True), TINY)
        return given


def fit_posterior(evidence: NDArray[np.float32], labels: NDArray[np.int64]) -> Posterior:
    """The weights of witnesses and the share of wrong labels with the highest likelihood of the given labels (n,)."""
    witnesses, _, classes = evidence.shape
    chance = (classes - 1) / classes
    result = minimize(
        _loss,
        np.append(np.full(witnesses, 1 / witnesses), 0.1 * chance),
        args=(evidence, labels),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * witnesses + [(LEAST_WRONG, MOST_WRONG * chance)],
    )
    return Posterior(result.x[:-1], float(result.x[-1]))


def _loss(
    x: NDArray[np.float64], evidence: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """Mean of -log of the likelihood, with its gradient in (w, e)."""
    weights, wrong = x[:-1], x[-1]
    p = _shown(weights, evidence)  # (n, C)
    rows, others = np.arange(len(labels)), max(p.shape[1] - 1, 1)
    own = p[rows, labels]  # (n,)
    likelihood = (1 - wrong) * own + wrong / others * (1 - own) + TINY
    by_own = (1 - wrong - wrong / others) / likelihood  # (n,)
    slopes = [((z[rows, labels] - (p * z).sum(axis=1)) * own * by_own).mean() for z in evidence]
    by_wrong = (((1 - own) / others - own) / likelihood).mean()
    loss = -np.log(likelihood).mean() + SMALL * ((weights**2).mean() + wrong)
    return float(loss), np.append(-np.array(slopes) + 2 * SMALL * weights / len(weights), SMALL - by_wrong)


def _shown(weights: NDArray[np.float64], evidence: NDArray[np.float32]) -> NDArray[np.float64]:
    logits = np.tensordot(weights, evidence, axes=1)  # (n, C)
    p: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)
    return p
