"""Confident learning: Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels", 2021."""

import logging
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Inspection, of_label
from somnet.methods.features import training_features
from somnet.methods.logistic import best_out_of_fold, deal_folds
from somnet.methods.plain import Plain
from somnet.methods.settings import MethodSettings
from somnet.nn.backbones import Network
from somnet.system.transfer import send

log = logging.getLogger("somnet")

SLACK = 1e-6  # a probability this close below its threshold counts as confident
LEAST = 2  # images of a class that are never pruned, the most trusted ones


class ConfidentSettings(MethodSettings):
    """Confident learning: prune what out-of-fold predictions contradict."""

    folds: Annotated[int, Field(ge=2, le=100)] = 5  # of the out-of-fold predictions


def thresholds(probabilities: Tensor, label: Tensor) -> Tensor:
    """t_c: mean probability of c over the images labelled c (C,); 1 for a class without images."""
    total = probabilities.new_zeros(probabilities.shape[1]).index_add(
        0, label, probabilities[torch.arange(len(label)), label]
    )
    count = label.bincount(minlength=probabilities.shape[1])
    return torch.where(count > 0, total / count.clamp(min=1), 1.0)


def count_issues(probabilities: Tensor, label: Tensor) -> int:
    """How many images are confidently of another class than their label, and not predicted as their label."""
    confident = probabilities >= thresholds(probabilities, label) - SLACK  # (n, C)
    predicted = probabilities.argmax(dim=1)
    guess = torch.where(confident.sum(dim=1) > 1, predicted, confident.float().argmax(dim=1))
    contradicted = (
        confident.any(dim=1) & (guess != label) & (of_label(probabilities, label) < probabilities.amax(dim=1))
    )
    return int(contradicted.sum())


def find_issues(probabilities: Tensor, label: Tensor) -> Tensor:
    """Mask (n,) of as many images as are counted, those whose own label is the least probable."""
    issues = torch.zeros(len(label), dtype=torch.bool)
    issues[of_label(probabilities, label).argsort(stable=True)[: count_issues(probabilities, label)]] = True
    return issues


def spare_classes(keep: Tensor, confidence: Tensor, label: Tensor) -> Tensor:
    """Keep (n,) the most trusted images of each class, whatever was found."""
    keep = keep.clone()
    for one in label.bincount().nonzero().squeeze(1):
        members = (label == one).nonzero().squeeze(1)
        keep[members[confidence[members].argsort(descending=True, stable=True)[:LEAST]]] = True
    return keep


class Confident(Plain):
    """Prune the images that out-of-fold predictions contradict, then train on the rest.

    What a user of cleanlab does with `find_label_issues(filter_by="low_self_confidence")`, and as its tutorials do, the
    predictions are those of a logistic regression on features of the pretrained network; its regularisation is the one
    of four with the lowest loss out of fold. So the whole budget is left for the training. Deviations: the last images
    of a class are never pruned. State: a number and a flag per image; while it prunes, N x F half floats and N x C
    numbers in main memory.
    """

    judged: Tensor  # whether the two that follow are known
    confidence: Tensor  # (n,) out-of-fold probability of the label
    keep: Tensor  # (n,) what the network is trained on

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(ConfidentSettings)
        self.register_table("judged", torch.zeros((), dtype=torch.bool))
        self.register_table("confidence", torch.ones(len(labels)))
        self.register_table("keep", torch.ones(len(labels), dtype=torch.bool))

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Prune, by features that the network has before it is trained: a run that is resumed has done it."""
        if self.judged:
            return
        features, label = training_features(self.network, bag_pass).numpy(), self.labels.cpu()
        fold = deal_folds(label.numpy(), self.settings.folds, self.config.seed)
        strength, held_out = best_out_of_fold(features, label.numpy(), self.classes, fold)
        probabilities = torch.from_numpy(held_out)  # (n, C)
        confidence = of_label(probabilities, label)
        self.confidence.copy_(confidence)
        self.keep.copy_(spare_classes(~find_issues(probabilities, label), confidence, label))
        self.judged.fill_(True)
        dropped = int((~self.keep).sum())
        log.info("confident learning leaves out %d of %d images (C = %g)", dropped, len(label), strength)

    def held_bytes(self) -> int:
        """Features, and predictions as double floats, once and the best of them."""
        return 2 * self.network.width + 16 * self.classes

    def rows(self, phase: Phase) -> NDArray[np.int64]:
        """All but the pruned."""
        return np.flatnonzero(self.keep.numpy())

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the out-of-fold probability of the label."""
        return replace(super().inspect(batch), label_score=send(self.confidence[batch.rows[:, 0]], batch.label.device))
