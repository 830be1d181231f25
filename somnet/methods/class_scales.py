"""Some classes are harder to tell than others: what predicts labels as well as mistakes would, without any.

The rival of label_confusion.py. With z_ic the logarithm of p_ic (label_posterior.py), less its mean over the classes,
each class has a scale and a bias of its own,

    p'_ic = softmax_c( s_c z_ic + b_c ),

and a share e of the labels is drawn by their frequencies f, as before. They are whatever makes the labels likeliest,
prod_i ( (1 - e) p'_i(y_i) + e f(y_i) ), where s is normal around 1 and b around 0, with variance 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from somnet.methods.label_posterior import LEAST_WRONG, MOST_WRONG, TINY, HeardLabels, Posterior


@dataclass(frozen=True)
class ClassScales:
    """What was estimated, on top of a posterior."""

    posterior: Posterior
    scale: NDArray[np.float64]  # (C,) s
    bias: NDArray[np.float64]  # (C,) b
    wrong: float  # e

    def log_likelihoods(self, heard: HeardLabels) -> NDArray[np.float64]:
        """Of each label (n,)."""
        p = softmax(centred_log(self.posterior, heard.evidence) * self.scale + self.bias, axis=1)
        label, wrong = heard.label, self.wrong * heard.doubtful
        likelihood = (1 - wrong) * p[np.arange(len(label)), label] + wrong * self.posterior.frequency[label]
        logarithms: NDArray[np.float64] = np.log(likelihood + TINY)
        return logarithms


def fit_scales(posterior: Posterior, heard: HeardLabels) -> ClassScales:
    """The ones that make the labels likeliest."""
    classes = len(posterior.frequency)
    found = minimize(
        scales_loss,
        np.hstack([np.ones(classes), np.zeros(classes), posterior.wrong]),
        args=(centred_log(posterior, heard.evidence), heard.label, posterior.frequency, heard.doubtful),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * classes + [(None, None)] * classes + [(LEAST_WRONG, MOST_WRONG)],
    )
    return ClassScales(posterior, found.x[:classes], found.x[classes:-1], float(found.x[-1]))


def centred_log(posterior: Posterior, evidence: NDArray[np.float32]) -> NDArray[np.float64]:
    """z (n, C): the logarithm of p, less its mean over the classes."""
    log_p = np.log(posterior.shown(evidence) + TINY)
    centred: NDArray[np.float64] = log_p - log_p.mean(axis=1, keepdims=True)
    return centred


def scales_loss(
    x: NDArray[np.float64],
    z: NDArray[np.float64],
    labels: NDArray[np.int64],
    frequency: NDArray[np.float64],
    doubtful: NDArray[np.bool_],
) -> tuple[float, NDArray[np.float64]]:
    """Minus the logarithm of likelihood and prior, with its gradient in x = (s, b, e)."""
    scale, bias, wrong = x[: len(frequency)], x[len(frequency) : -1], x[-1] * doubtful  # wrong: (n,)
    rows, of_label = np.arange(len(labels)), frequency[labels]
    p = softmax(z * scale + bias, axis=1)  # (n, C)
    own = p[rows, labels]
    likelihood = (1 - wrong) * own + wrong * of_label + TINY
    share = (1 - wrong) * own / likelihood  # (n,)
    pull = -p * share[:, None]  # (n, C)
    pull[rows, labels] += share
    away = np.append(scale - 1, bias)
    slopes = [*(pull * z).sum(axis=0), *pull.sum(axis=0), (doubtful * (of_label - own) / likelihood).sum()]
    return float(away @ away / 2 - np.log(likelihood).sum()), np.append(away, 0.0) - np.array(slopes)
