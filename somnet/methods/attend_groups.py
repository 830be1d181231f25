"""Attention in groups: Zhuang et al., "Attend in Groups: A Weakly-Supervised Deep Learning Framework", 2017."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.core.weighting import bag_feature, initial_weights
from somnet.methods.base import Inspection, Method, Step, of_label
from somnet.methods.plain import TRAIN
from somnet.methods.settings import Count, MethodSettings, Rate
from somnet.nn.backbones import Network

START = 0.001  # standard deviation of the detector's weights: at first all places count the same


class AttendGroupsSettings(MethodSettings):
    """Attention over places, groups of images."""

    images_per_bag: Count = 2  # that are averaged
    floor: Rate = 0.1  # added to the softplus: no place is ignored


def place_weights(maps: Tensor, detector: Tensor, floor: float) -> Tensor:
    """a_ij = s_ij / sum of s, s_ij = softplus(w.x_ij) + floor, over the places of each map (I, HW)."""
    score = F.softplus(torch.einsum("if...,f->i...", maps, detector)).flatten(1) + floor  # (I, HW)
    return score / score.sum(dim=1, keepdim=True)


def attended(maps: Tensor, weights: Tensor) -> Tensor:
    """f = sum of a_ij x_ij: features (I, F) of maps (I, F, H, W) with weights (I, HW)."""
    return torch.einsum("ifp,ip->if", maps.flatten(2), weights)


class AttendGroups(Method):
    """An object detector without boxes weighs the places of an image; the images of a bag are averaged.

    Most images of a bag show its class, so the mean does although single images may not, and places that help no bag
    lose weight. Trained with attention, tested without: a test uses the network alone, as for all methods, so all
    places count the same there. That is a deviation from the paper, which attends to test images too, and may cost
    accuracy; the inspection does attend. Another one: the budget, optimiser and cosine of all methods instead of
    Nesterov's momentum and a step. No state per sample.
    """

    weighted = frozenset({"cls"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(AttendGroupsSettings)
        self.detector = nn.Parameter(START * torch.randn(network.width))  # (F,) the paper's w

    def plan(self) -> tuple[Phase, ...]:
        """One phase, network and detector together."""
        train = self.config.train
        lr = {"network": train.lr, "detector": train.lr}
        bags = self.settings.images_per_bag
        return (Phase(TRAIN, train.epochs, lr, anneal=(0.0, 1.0), images_per_bag=bags),)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of the bags; an image that only fills up a bag does not count."""
        images = self._attended(batch).view(*batch.rows.shape, -1)  # (B, G, F)
        x = bag_feature(initial_weights(batch.mask)[..., 0], images)  # (B, F)
        return Step({"cls": classification_loss(self.network.classifier(x), batch.label, batch.bag_weight())})

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN and the detector."""
        return [*super().param_groups(), {"name": "detector", "params": [self.detector]}]

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the probability of the label, of the attended places."""
        attended = self.network.classifier(self._attended(batch)).softmax(dim=1)  # (I, C)
        return replace(super().inspect(batch), label_score=of_label(attended, batch.label))

    def _attended(self, batch: BagBatch) -> Tensor:
        maps = self.network.maps(batch.images)  # (I, F, H, W)
        return attended(maps, place_weights(maps, self.detector, self.settings.floor))
