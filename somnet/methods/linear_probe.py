"""Logistic regression on frozen features: what the pretrained network knows without any training."""

import logging
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from somnet.methods.frozen import FrozenFeatures
from somnet.methods.logistic import best_out_of_fold, deal_folds, fit, side_by_side
from somnet.methods.settings import MethodSettings

log = logging.getLogger("somnet")


class LinearProbeSettings(MethodSettings):
    """Logistic regression on frozen features."""

    folds: Annotated[int, Field(ge=2, le=100)] = 5  # of the cross validation that chooses the regularisation


class LinearProbe(FrozenFeatures):
    """The classifier is a logistic regression on features of whole images; the network stays as it was.

    It is the control for all others: what they gain beyond it comes from training. Every label is trusted; what keeps
    it from memorising wrong ones is its regularisation, chosen from four strengths by cross validation on the noisy
    labels themselves. label_score is the out-of-fold probability of the label. State: one number per image; while it
    fits, N x F half floats and N x C numbers in main memory.
    """

    def held_bytes(self) -> int:
        """Predictions too, as double floats, once and the best of them."""
        return super().held_bytes() + 16 * self.classes

    def fit(self, features: Tensor) -> Tensor:
        """Choose the regularisation, fit to all images, and write the result into the network's classifier."""
        x, labels = features.numpy(), self.labels.cpu().numpy()
        fold = deal_folds(labels, self.config.of(LinearProbeSettings).folds, self.config.seed)
        strength, held_out = best_out_of_fold(x, labels, self.classes, fold)
        log.info("linear probe: C = %g has the lowest loss out of fold", strength)
        (result,) = side_by_side(lambda chosen: fit(x, labels, self.classes, chosen), [strength])
        classifier = self.network.classifier
        classifier.weight.copy_(torch.from_numpy(result.weight))
        classifier.bias.copy_(torch.from_numpy(result.bias))
        return torch.from_numpy(held_out[np.arange(len(labels)), labels])
