"""Logistic regression on features that were computed once: scikit-learn's, in main memory."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from somnet.system.cores import own_cores
from somnet.system.parallel import in_threads

T = TypeVar("T")
R = TypeVar("R")

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # of scikit-learn's C, to choose from; features are standardised
FINE_STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # the same in smaller steps
HELD_OUT = (0, 1)  # folds that a strength is chosen by
ITERATIONS = 300
ABSENT = -1e4  # logit of a class without images
TINY = 1e-12  # keeps a logarithm finite


@dataclass(frozen=True)
class Linear:
    """A linear classifier for features as they are: the standardisation in which it was fitted is undone."""

    weight: NDArray[np.float64]  # (C, F)
    bias: NDArray[np.float64]  # (C,)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which classes (C,) it was fitted to."""
        return self.bias > ABSENT / 2

    def probabilities(self, features: NDArray[np.float16]) -> NDArray[np.float64]:
        """Of each class (n, C), for features (n, F)."""
        logits = features.astype(np.float32) @ self.weight.T.astype(np.float32) + self.bias
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: NDArray[np.float64] = odds / odds.sum(axis=1, keepdims=True)
        return shares


def fit(features: NDArray[np.float16], labels: NDArray[np.int64], classes: int, strength: float) -> Linear:
    """Logistic regression on features (n, F), standardised first; `strength` is scikit-learn's C."""
    weight, bias = np.zeros((classes, features.shape[1])), np.full(classes, ABSENT)
    present = np.unique(labels)
    bias[present] = 0.0
    if len(present) < 2:
        return Linear(weight, bias)
    x = features.astype(np.float32)
    mean, spread = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    spread[spread == 0] = 1.0
    x -= mean.astype(np.float32)
    x /= spread.astype(np.float32)
    model = LogisticRegression(C=strength, max_iter=ITERATIONS).fit(x, labels)
    slope, offset = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    if len(present) == 2:  # one row, for the second class against the first
        slope, offset = np.concatenate([-slope / 2, slope / 2]), np.concatenate([-offset / 2, offset / 2])
    weight[present] = slope / spread
    bias[present] = offset - weight[present] @ mean
    return Linear(weight, bias)


def side_by_side(work: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
    """Results of work that fits classifiers, one task per core at a time, each in a single thread.

    Their matrices are too small to be shared: threads that share them wait for each other some thousand times a second,
    which beside other work takes ten times as long. And so a fit does not depend on the number of cores.
    """
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough
        return list(in_threads(work, tasks, ahead=own_cores()))


def log_loss(found: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Mean of -log of the labels' (n,) probabilities, among those of all classes (n, C)."""
    return float(-np.log(found[np.arange(len(labels)), labels] + TINY).mean())


def deal_folds(labels: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold (n,) in which each image is held out; each class is dealt out evenly."""
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[by_class] = np.arange(len(labels)) % folds
    return fold


def out_of_fold(
    features: NDArray[np.float16],
    labels: NDArray[np.int64],
    classes: int,
    fold: NDArray[np.int64],
    strength: float,
) -> NDArray[np.float64]:
    """Probabilities (n, C) of each image by a classifier that has not seen its fold."""
    found = np.full((len(labels), classes), 1 / classes)

    def predict(held_out: NDArray[np.bool_]) -> NDArray[np.float64]:
        model = fit(features[~held_out], labels[~held_out], classes, strength)
        return model.probabilities(features[held_out])

    parts = [held_out for number in np.unique(fold) if not (held_out := fold == number).all()]
    for held_out, predicted in zip(parts, side_by_side(predict, parts), strict=True):
        found[held_out] = predicted
    return found


def best_out_of_fold(
    features: NDArray[np.float16], labels: NDArray[np.int64], classes: int, fold: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """The strength whose out-of-fold probabilities have the lowest log loss on the given labels, and these (n, C)."""
    lowest, best = np.inf, (STRENGTHS[0], np.empty((0, classes)))
    for strength in STRENGTHS:
        found = out_of_fold(features, labels, classes, fold, strength)
        loss = log_loss(found, labels)
        if loss < lowest:
            lowest, best = loss, (strength, found)
    return best


def choose_strength(features: NDArray[np.float16], labels: NDArray[np.int64], fold: NDArray[np.int64]) -> float:
    """The strength that predicts labels held out best, wrong ones among them; two of the folds tell enough.

    The more labels are wrong, the smaller it is. From the smallest one on the loss falls and then rises.
    """
    present, numbers = np.unique(labels, return_inverse=True)

    def mean_loss(strength: float) -> float:
        def loss(held: int) -> float:
            return _held_out_loss(features, numbers, len(present), fold == held, strength)

        return float(np.mean(side_by_side(loss, HELD_OUT)))

    lowest, best = np.inf, FINE_STRENGTHS[0]
    for strength in FINE_STRENGTHS:
        if (found := mean_loss(strength)) >= lowest:
            break
        lowest, best = found, strength
    return best


def _held_out_loss(
    features: NDArray[np.float16], labels: NDArray[np.int64], classes: int, held: NDArray[np.bool_], strength: float
) -> float:
    if held.all() or not held.any():
        return 0.0
    model = fit(features[~held], labels[~held], classes, strength)
    return log_loss(model.probabilities(features[held]), labels[held])
