"""How likely labels are right, when there are some that are known to be: a clean validation split.

A score s orders the labels, low is bad. Let m labels be known to be right, and n be unknown, of which a share w is
wrong. Of right labels the score has the same distribution f in both, so for an unknown one

    P(right | s)  =  (1 - w) f(s) / g(s),

where g is the distribution of the unknown ones. Put all in one heap: an image at s is one of the known ones with
probability m f / (m f + n g), so f / g is n / m times the odds of that. The higher the score, the more likely it is
right, so these probabilities are found by isotonic regression; between the middles of its steps they are interpolated,
so that the order within a step is kept.

The scores are probabilities themselves. By them w is the mean of 1 - s, and of all right labels image i is the share
s_i / sum(s): that is what f is thought to be before any label is known, and it counts as much as TRUSTED known labels,
which lie where the unknown ones are. Without a known label this gives P(right | s) = s. The more there are, the less
the scores' own word counts, of w too, which known labels alone do not tell: then labels are rather called right, as if
w were 0. In the end only the order of the scores is left.

Whether f is the same in both is for the user to know: the known images must have been collected like the others.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

TRUSTED = 100.0  # known labels that the scores' own word is worth
NEVER_SURE = 1 - 1e-6  # so that odds are finite


def probability_right(score: NDArray[np.float64], of_right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each score (n,), itself a probability, by the scores (m,) of labels that are right."""
    n, m = len(score), len(of_right)
    if m == 0 or score.sum() == 0:
        return score
    thought = TRUSTED * score / score.sum()  # (n,) known labels that are thought to lie at each
    heap, known = np.append(score, of_right), np.append(thought / (1 + thought), np.ones(m))  # (n + m,)
    # clip: scores that are equal but for a rounding are one to it, and the largest of them lies beyond its last
    regression = IsotonicRegression(y_min=0.0, y_max=NEVER_SURE, out_of_bounds="clip")
    share = regression.fit(heap, known, np.append(1 + thought, np.ones(m)))
    steps, step = np.unique(share.predict(heap), return_inverse=True)
    middle = np.bincount(step, weights=heap) / np.bincount(step)  # of each step
    odds = np.interp(score, middle, steps / (1 - steps))
    of_right_labels = (m + TRUSTED * score.mean()) / (m + TRUSTED)  # 1 - w
    right: NDArray[np.float64] = odds * n / (m + TRUSTED) * of_right_labels
    return np.minimum(right, 1 - 1 / (m + 2))  # none is beyond doubt
