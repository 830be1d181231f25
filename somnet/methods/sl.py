"""Symmetric cross entropy (SL): Wang et al., "Symmetric Cross Entropy for Robust Learning with Noisy Labels", 2019."""

import math

from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss, weighted_mean
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Step, of_label
from somnet.methods.plain import Plain
from somnet.methods.settings import MethodSettings, Strength
from somnet.nn.backbones import Network

CERTAIN = 1e-4  # stands for the zeros of a one-hot label, whose logarithm is not finite


class SlSettings(MethodSettings):
    """Symmetric cross entropy."""

    alpha: Strength = 0.1  # of the cross entropy
    beta: Strength = 1.0  # of the reverse one


def reverse_cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """-sum_c p_c log y_c, with 1e-4 for the zeros of y: a multiple of 1 - p_y, so a wrong label pulls no harder.

    The target is labels (I,), or distributions t (I, C) over them: then it is the mean over y drawn from t, 1 - <p, t>.
    """
    p = logits.softmax(dim=1)  # (I, C)
    believed = of_label(p, target) if target.dim() == 1 else (p * target).sum(dim=1)  # (I,)
    return -math.log(CERTAIN) * weighted_mean(1 - believed, weight)


class SymmetricCrossEntropy(Plain):
    """L = alpha CE + beta RCE, on whole images.

    Deviations from the paper: none. No state per sample.
    """

    weighted = frozenset({"cls", "reverse"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(SlSettings)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Both directions of the cross entropy."""
        logits, weight = self.predict(batch.images), batch.bag_weight()
        return Step(
            {
                "cls": self.settings.alpha * classification_loss(logits, batch.label, weight),
                "reverse": self.settings.beta * reverse_cross_entropy(logits, batch.label, weight),
            }
        )
