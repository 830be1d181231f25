"""Which labels are doubted, by their scores alone: one rule for the closing lines, the report and clean."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

PROMISED = 0.8  # share of the flagged images whose label is wrong, by the scores themselves
HALF = 0.5  # nothing is flagged that is more likely right than wrong
OUTLIER = 0.5  # outlier_score below which a flagged image is called none of the classes
BELIEVED = 0.5  # belief in the label from which on it is in a region rather than not
FEWEST = 30  # images that tell anything about each other, as label_posterior.py has it
SURE = 0.8  # probability from which on another label is suggested


def choose_threshold(label_score: NDArray[np.floating]) -> float:
    """Below which label_score images are flagged, in hundredths: of those below it the promised share is wrong.

    By the scores (n,) themselves, that is, which are probabilities.
    """
    ordered = np.sort(np.asarray(label_score, np.float64))
    steps = np.arange(round(100 * HALF) + 1) / 100
    count = np.searchsorted(ordered, steps, side="left")  # of images below each step
    wrong = np.append(0.0, np.cumsum(1 - ordered))[count]  # expected among them
    return float(steps[wrong >= PROMISED * count].max())


def flagged_sentence(images: pa.Table) -> str:
    """How many images of a run are flagged, and what that is worth: what every place says that counts them."""
    score = images["label_score"].drop_null().to_numpy()
    flagged = score[score < choose_threshold(score)]
    if len(flagged) == 0:
        return "no label is doubted" + (f", as fewer than {FEWEST} tell nothing" if len(score) < FEWEST else "")
    if len(flagged) == 1:
        return "1 label is doubted, and probably wrong"
    return f"{len(flagged):,} labels are doubted, of which about {(1 - flagged).sum():,.0f} are wrong"
