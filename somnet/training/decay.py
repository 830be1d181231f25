"""How strongly the classifier is held back, chosen from the noisy labels themselves; the same for every method.

A classifier on a pretrained network is what memorises wrong labels first: with 1,280 features it can take any labels of
1,000 images as they are. The right weight decay depends on how much noise there is, which nobody knows. But logistic
regression on the network's features before training is the same question, answered in seconds: it minimises

    sum of losses + |w|^2 / (2 C) = n (mean loss + decay / 2 |w|^2)  with  decay = 1 / (C n),

for features of variance 1; times their mean variance, that is near enough for features as they are. Of two classes
scikit-learn has one vector where a network has two, so the decay is twice that. C is the one whose predictions of
labels held out, wrong ones among them, have the lowest log loss. The more labels are wrong, the smaller it is.
"""

import logging

import numpy as np
from numpy.typing import NDArray

from somnet.data.bags import pictures_of
from somnet.methods.logistic import choose_strength, deal_folds

log = logging.getLogger("somnet")

FOLDS = 5
LARGEST = 0.3  # where labels cannot be predicted from whole images, parts of them may still tell
MOST_CLASSES, MOST_IMAGES = 50, 5_000  # that are looked at, so that it takes seconds whatever the data


def sample_rows(labels: NDArray[np.int64], seed: int, groups: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The images (m,) that are looked at, in order: some of the classes, some of their images, one of each picture.

    `groups` (n,) are of duplicates, -1 for none: a copy would tell the label of one that is held out.
    """
    rng = np.random.default_rng((seed, *b"decay"))
    classes = rng.permutation(np.unique(labels))[:MOST_CLASSES]
    rows = np.unique(pictures_of(np.arange(len(labels)), groups), return_index=True)[1]
    rows = rows[np.isin(labels[rows], classes)]
    return np.sort(rng.permutation(rows)[:MOST_IMAGES])


def choose_decay(features: NDArray[np.float16], labels: NDArray[np.int64], images: int, seed: int) -> float:
    """The weight decay for a training on so many images, from features (m, F) of some and their labels (m,)."""
    best = choose_strength(features, labels, deal_folds(labels, FOLDS, seed))
    variance = float(features.astype(np.float32).var(axis=0).mean())
    log.info("logistic regression predicts labels held out best at C = %g", best)
    return min((2 if len(np.unique(labels)) == 2 else 1) * variance / (best * images), LARGEST)
