"""Which classes are taken for each other, where labels that were held out tell it.

label_posterior.py draws wrong labels by their frequencies f alone. But people take a cat for a dog rather than for a
ship. So let each class c have its own

    T_cy = P(y | c)    the share of the images of class c that are labelled y,

with a Dirichlet prior around what all classes have in common, (1 - e) [y = c] + e f(y), that is worth as many images of
the class as it is strong. With g_ic = p_ic T_c,y_i / sum_k p_ik T_k,y_i, what image i shows, given its label, turns are
taken:

    T_cy = ( sum_i g_ic [y_i = y]  +  strength ((1 - e) [y = c] + e f(y)) )  /  ( sum_i g_ic  +  strength ),
    e    so that as large a share of all labels is wrong as by T,
    w    by the likelihood of the labels, prod_i sum_c p_ic T_c,y_i.

Classes that look alike seem to be taken for each other where nobody has done it: the weaker the prior, the more so. So
the prior is as strong as predicts labels best that were held out, and only clear gains count: else all mistakes are
drawn by f, as before.

And some classes are harder to tell than others, for which T would make up, too. So a rival without any such mistakes,
in which each class has a scale and a bias of its own (class_scales.py), must predict the held out labels clearly worse.
Nor are leaves with similar spots taken for each other because nobody can tell them on a photo: there T gains on images
that are unclear. Mistakes are found on all; so the gain must be clear on those alone, too, of which p_i is sure.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from somnet.methods.class_scales import fit_scales
from somnet.methods.label_posterior import (
    CLEARLY,
    FEWEST,
    LEAST_WRONG,
    MOST_WRONG,
    SMALL,
    TINY,
    HeardLabels,
    Posterior,
    drawn_by_frequency,
    shown,
)
from somnet.methods.logistic import deal_folds

STRENGTHS = (300.0, 100.0, 30.0, 10.0)  # of the prior, in images of a class
SURE = 1.5  # standard errors of a gain from which on it is clear
TOLD = 0.8  # probability of a class from which on an image shows it clearly,
CLEAREST = 1 / 3  # and the share of the images that do so in any case: wrong labels make all look less clear
OF_A_CLASS = 10  # images of a class, on average, from which on its mistakes can be told
FOLDS = 5
TURNS = 40
STEPS = 15  # of the search for w, in each turn
NEAR = 1e-5  # gain in the mean log-likelihood below which no more turns are taken
MOST_NUMBERS = 2**19  # images times classes that are looked at, as a minute is enough; so at most some 200 classes

LogLikelihoods = Callable[[HeardLabels], NDArray[np.float64]]
"""Of each label (n,)."""


def learn_confusion(posterior: Posterior, heard: HeardLabels, seed: int) -> Posterior:
    """The same with which classes are taken for each other, if it is clear."""
    images, classes = heard.evidence.shape[1:]
    if heard.doubtful.sum() < FEWEST or min(images, MOST_NUMBERS // classes) < OF_A_CLASS * classes:
        return posterior
    strength = _choose_strength(posterior, heard, seed)
    return posterior if strength is None else _learn(posterior, heard, strength)


def _choose_strength(posterior: Posterior, heard: HeardLabels, seed: int) -> float | None:
    """The one that gains most in the log-likelihood of labels held out; None: no gain is clear."""
    rng = np.random.default_rng((seed, *b"confusion"))
    images, classes = heard.evidence.shape[1:]
    asked = heard.take(np.sort(rng.permutation(images)[: MOST_NUMBERS // classes]))
    fold = deal_folds(asked.label, FOLDS, seed)
    before = _log_likelihoods(posterior, asked)  # (n,)
    probable = posterior.shown(asked.evidence).max(axis=1)  # (n,)
    told = probable >= min(TOLD, float(np.quantile(probable, 1 - CLEAREST)))

    def gain(learn: Callable[[HeardLabels], LogLikelihoods]) -> NDArray[np.float64]:
        """Of each label (n,), by what is learnt from the others."""
        gained = -before
        for held in (fold == number for number in range(FOLDS)):
            gained[held] += learn(asked.take(~held))(asked.take(held))
        return gained

    def with_scales(seen: HeardLabels) -> LogLikelihoods:
        return fit_scales(posterior, seen).log_likelihoods

    highest, best = CLEARLY + max(float(gain(with_scales).sum()), 0.0), None
    for strength in STRENGTHS:

        def with_confusion(seen: HeardLabels, strength: float = strength) -> LogLikelihoods:
            return partial(_log_likelihoods, _learn(posterior, seen, strength))

        gained = gain(with_confusion)
        if gained.sum() > highest and _is_clear(gained) and _is_clear(gained[told]):
            highest, best = float(gained.sum()), strength
    return best


def _is_clear(gained: NDArray[np.float64]) -> bool:
    """Whether the sum of gains (n,) is above its standard error by far."""
    return bool(gained.sum() > SURE * gained.std() * len(gained) ** 0.5) if len(gained) else False


def _learn(posterior: Posterior, heard: HeardLabels, strength: float) -> Posterior:
    last, best = -np.inf, posterior
    for best in _turns(posterior, heard, strength):
        if best.log_likelihood - last < NEAR * len(heard.label):
            break
        last = best.log_likelihood
    return best


def _turns(posterior: Posterior, heard: HeardLabels, strength: float) -> Iterator[Posterior]:
    frequency, classes = posterior.frequency, len(posterior.frequency)
    wrong, most = max(posterior.wrong, 4 * LEAST_WRONG), 1 - (frequency**2).sum()  # of what is drawn is really wrong
    labelled = _labelled_as(drawn_by_frequency(wrong, frequency), heard)  # (n, C)
    for _ in range(TURNS):
        weights = _weigh(posterior.weights, heard.evidence, frequency, labelled)
        p = shown(weights, heard.evidence, frequency)  # (n, C)
        share = (p * labelled)[heard.doubtful]
        count = np.zeros((classes, classes))  # (y, c) of images of class c that are labelled y
        np.add.at(count, heard.label[heard.doubtful], share / (share.sum(axis=1, keepdims=True) + TINY))
        share_wrong = 1 - np.trace(count) / max(count.sum(), TINY)
        wrong = float(np.clip(share_wrong / max(most, TINY), LEAST_WRONG, MOST_WRONG))
        prior = strength * drawn_by_frequency(wrong, frequency)  # (c, y)
        confusion = (count.T + prior) / (count.sum(axis=0)[:, None] + strength)
        labelled = _labelled_as(confusion, heard)
        posterior = replace(
            posterior,
            weights=weights,
            wrong=wrong,
            log_likelihood=float(np.log((p * labelled).sum(axis=1) + TINY).sum()),
            confusion=confusion,
        )
        yield posterior


def _labelled_as(confusion: NDArray[np.float64], heard: HeardLabels) -> NDArray[np.float64]:
    """P(y_i | c) (n, C) of the given labels; those that a person has verified are beyond doubt."""
    labelled = confusion.T[heard.label]
    labelled[~heard.doubtful] = np.eye(len(confusion))[heard.label[~heard.doubtful]]
    return labelled


def _log_likelihoods(posterior: Posterior, heard: HeardLabels) -> NDArray[np.float64]:
    """Of each label (n,)."""
    labelled = _labelled_as(posterior.labelled(), heard)
    found: NDArray[np.float64] = np.log((posterior.shown(heard.evidence) * labelled).sum(axis=1) + TINY)
    return found


def _weigh(
    weights: NDArray[np.float64],
    evidence: NDArray[np.float32],
    frequency: NDArray[np.float64],
    labelled: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The worth w (J + 1,) of the witnesses that makes the labels likeliest, by P(y_i | c) (n, C) as it is."""
    found = minimize(
        _loss,
        weights,
        args=(evidence, frequency, labelled),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(evidence) + [(0, 1)],
        options={"maxiter": STEPS},
    )
    return np.asarray(found.x, np.float64)


def _loss(
    weights: NDArray[np.float64],
    evidence: NDArray[np.float32],
    frequency: NDArray[np.float64],
    labelled: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64]]:
    """Mean of -log of the likelihood, with its gradient in (w, v)."""
    p = shown(weights, evidence, frequency)
    joint = p * labelled  # (n, C)
    likelihood = joint.sum(axis=1) + TINY
    pull = joint / likelihood[:, None] - p  # (n, C)
    prior = np.log(frequency + TINY)  # (C,)
    slopes = [*((pull * witness).sum(axis=1).mean() for witness in evidence), (pull @ prior).mean()]
    loss = -np.log(likelihood).mean() + SMALL * (weights**2).mean()
    return float(loss), -np.array(slopes) + 2 * SMALL * weights / len(weights)
