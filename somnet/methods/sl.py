"""Symmetric cross entropy (SL): Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", 2019."""

import math

from torch import Tensor

from somnet.core.losses import classification_loss
from somnet.core.types import Bag, Losses, Phase
from somnet.methods.plain import Plain

CERTAIN = 1e-4  # stands for the zeros of a one-hot label, whose logarithm is not finite


def reverse_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """-sum_c p_c log y_c, with 1e-4 for the zeros of y: a multiple of 1 - p_y, so a wrong label pulls no harder."""
    of_label = logits.softmax(dim=1).gather(1, label[:, None]).squeeze(1)  # (I,)
    return -math.log(CERTAIN) * (1 - of_label).mean()


class SymmetricCrossEntropy(Plain):
    """L = alpha CE + beta RCE, on whole images.

    Deviations from the paper: none. Needs no state a sample.
    """

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Both directions of the cross entropy."""
        assert bag.images is not None
        logits = self.predict(bag.images)
        settings = self.config.sl
        return {
            "cls": settings.alpha * classification_loss(logits, bag.label),
            "reverse": settings.beta * reverse_cross_entropy(logits, bag.label),
        }
