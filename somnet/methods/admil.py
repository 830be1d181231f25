"""Attention-based multiple instance learning: Ilse et al., "Attention-based Deep Multiple Instance Learning", 2018."""

from typing import Any

import torch
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import Bag, Inspection, Losses, Phase
from somnet.core.weighting import bag_feature
from somnet.methods.base import Method
from somnet.nn.backbones import Network


class GatedAttention(nn.Module):
    """a_k = softmax over k of w.(tanh(V h_k) * sigmoid(U h_k))."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(features, width, bias=False)  # V
        self.gate = nn.Linear(features, width, bias=False)  # U
        self.score = nn.Linear(width, 1, bias=False)  # w

    def forward(self, rois: Tensor, mask: Tensor) -> Tensor:
        """Weights (B, N) of ROI features (B, N, F), 0 where the mask (B, N) is False."""
        hidden = self.value(rois).tanh() * self.gate(rois).sigmoid()  # (B, N, width)
        score: Tensor = self.score(hidden).squeeze(2)  # (B, N)
        return score.masked_fill(~mask, -torch.inf).softmax(dim=1)


class Admil(Method):
    """The instances of a bag are the ROIs of its images, as in SOMNet, but weighted by trained gated attention.

    Deviations from the paper: C classes instead of two; trained by the SGD and the budget of all methods instead of
    Adam. A test image is a bag of one instance, itself, whose weight is 1: the network alone. Needs no state a sample.
    """

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.attention = GatedAttention(network.width, config.admil.width)

    def plan(self) -> tuple[Phase, ...]:
        """One phase, network and attention together."""
        train = self.config.train
        lr = {"network": train.lr, "attention": train.lr}
        return (Phase("train", train.epochs, lr, anneal=(0.0, 1.0), images_per_bag=self.config.admil.images_per_bag),)

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Cross entropy of the bags."""
        rois, weights = self._weigh(bag)
        return {"cls": classification_loss(self.network.classifier(bag_feature(weights, rois)), bag.label)}

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN and the attention."""
        return [*super().param_groups(), {"name": "attention", "params": [*self.attention.parameters()]}]

    def inspect(self, bag: Bag) -> Inspection:
        """An image is the bag of its own ROIs: the best one has the most weight, label_score is the bag's belief."""
        rois, weights = self._weigh(bag)  # (I, P, F), (I, P)
        probabilities = self.network.classifier(bag_feature(weights, rois)).softmax(dim=1)  # (I, C)
        largest, best = weights.max(dim=1)  # (I,)
        return Inspection(
            probabilities=probabilities,
            label_score=probabilities.gather(1, bag.label[:, None]).squeeze(1),
            background_score=weights[:, 0] / largest,
            weights=weights,
            best=best,
        )

    def _weigh(self, bag: Bag) -> tuple[Tensor, Tensor]:
        """ROI features (B, N, F) and their weights (B, N)."""
        assert bag.images is not None
        rois = self.network.roi_features(bag.images, bag.boxes.flatten(0, 1))  # (I, P, F)
        rois = rois.reshape(len(bag.label), -1, rois.shape[-1])  # (B, N, F)
        return rois, self.attention(rois, bag.mask.flatten(1))
