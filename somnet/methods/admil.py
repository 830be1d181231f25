"""Attention-based multiple instance learning: Ilse et al., "Attention-based Deep Multiple Instance Learning", 2018."""

from typing import Any

import torch
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.core.weighting import bag_feature
from somnet.methods.base import Inspection, Method, Step, of_label
from somnet.methods.plain import TRAIN
from somnet.methods.settings import Count, MethodSettings
from somnet.nn.backbones import Network


class AdmilSettings(MethodSettings):
    """Gated attention over the ROIs of a bag."""

    images_per_bag: Count = 2  # whose ROIs share the attention
    width: Count = 128  # of the attention


class GatedAttention(nn.Module):
    """a_k = softmax over k of w.(tanh(V h_k) * sigmoid(U h_k)); V, U and w with biases, as the public code has them."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(features, width)  # V
        self.gate = nn.Linear(features, width)  # U
        self.score = nn.Linear(width, 1)  # w

    def forward(self, rois: Tensor, mask: Tensor) -> Tensor:
        """Weights (B, N) of ROI features (B, N, F), 0 where the mask (B, N) is False."""
        hidden = self.value(rois).tanh() * self.gate(rois).sigmoid()  # (B, N, width)
        score: Tensor = self.score(hidden).squeeze(2)  # (B, N)
        return score.masked_fill(~mask, -torch.inf).softmax(dim=1)


class Admil(Method):
    """The instances of a bag are the ROIs of its images, as in SOMNet, but weighted by trained gated attention.

    Deviations from the paper: C classes instead of two; trained by the SGD and the budget of all methods instead of
    Adam. A test image is a bag of one instance, itself, whose weight is 1: the network alone. No state per sample.
    """

    weighted = frozenset({"cls"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(AdmilSettings)
        self.attention = GatedAttention(network.width, self.settings.width)

    def plan(self) -> tuple[Phase, ...]:
        """One phase, network and attention together."""
        train = self.config.train
        lr = {"network": train.lr, "attention": train.lr}
        return (Phase(TRAIN, train.epochs, lr, anneal=(0.0, 1.0), images_per_bag=self.settings.images_per_bag),)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of the bags."""
        rois, weights = self._weigh(batch)
        logits = self.network.classifier(bag_feature(weights, rois))  # (B, C)
        return Step({"cls": classification_loss(logits, batch.label, batch.bag_weight())})

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN and the attention."""
        return [*super().param_groups(), {"name": "attention", "params": [*self.attention.parameters()]}]

    def inspect(self, batch: BagBatch) -> Inspection:
        """An image is the bag of its own ROIs: the best one has the most weight, label_score is the bag's."""
        rois, weights = self._weigh(batch)  # (I, P, F), (I, P)
        of_bag = self.network.classifier(bag_feature(weights, rois)).softmax(dim=1)  # (I, C)
        largest, best = weights.max(dim=1)  # (I,)
        return Inspection(
            probabilities=self.network.classifier(rois[:, 0]).softmax(dim=1),
            label_score=of_label(of_bag, batch.label),
            background_score=weights[:, 0] / largest,
            weights=weights,
            best=best,
        )

    def _weigh(self, batch: BagBatch) -> tuple[Tensor, Tensor]:
        """ROI features (B, N, F) and their weights (B, N)."""
        rois = self.network.roi_features(batch.images, batch.boxes.flatten(0, 1))  # (I, P, F)
        rois = rois.reshape(len(batch.label), -1, rois.shape[-1])  # (B, N, F)
        return rois, self.attention(rois, batch.mask.flatten(1))
