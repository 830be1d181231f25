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
from somnet.methods.fresh import FreshStart
from somnet.methods.plain import TRAIN, Plain
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Rate, Share
from somnet.nn.backbones import Network

log = logging.getLogger("somnet")

FOLD = "fold-"  # how the names of the phases that train without a fold begin
SLACK = 1e-6  # a probability this close below its threshold counts as confident
LEAST = 2  # images of a class that are never pruned, the most trusted ones


class ConfidentSettings(MethodSettings):
    """Confident learning: prune what out-of-fold predictions contradict."""

    folds: Annotated[int, Field(ge=2, le=255)] = 5  # of the out-of-fold predictions
    fold_share: Share = 0.4  # of the budget, for all folds together; the rest trains on what is left
    fold_lr: Rate = 3.0  # relative to train.lr: the folds have few steps


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


class Confident(Plain):
    """Prune the images that out-of-fold predictions contradict, then train a fresh network on the rest.

    What a user of cleanlab does with `find_label_issues(filter_by="low_self_confidence")`. Deviations: the folds share
    the budget with the final training, so their networks are trained for few epochs, which also keeps them from
    memorising; the last images of a class are never pruned. With a budget too small for folds nothing is pruned.
    State: out-of-fold probabilities, N x 16 numbers (see SampleTable), not N x C; and the weights of the start.
    """

    fold: Tensor  # (n,) in which an image is held out
    keep: Tensor  # (n,) what the final network is trained on

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(ConfidentSettings)
        self.beginning = FreshStart(network)
        self.held_out = SampleTable(len(labels), classes)
        order = np.random.default_rng(config.seed).permutation(len(labels))
        by_class = order[np.argsort(labels.numpy()[order], kind="stable")]  # each class is dealt out evenly
        fold = torch.empty(len(labels), dtype=torch.uint8)
        fold[torch.from_numpy(by_class)] = (torch.arange(len(labels)) % self.settings.folds).to(torch.uint8)
        self.register_buffer("fold", fold)
        self.register_buffer("keep", torch.ones(len(labels), dtype=torch.bool))

    def plan(self) -> tuple[Phase, ...]:
        """A short training for each fold, then the final one; all of them from the same start."""
        train, settings = self.config.train, self.settings
        cost = settings.folds - 1  # passes of one epoch in every fold
        wanted = max(1, round(settings.fold_share * train.epochs / cost))
        fold_epochs = min(wanted, (train.epochs - 1) // cost)  # an epoch is left for the final network
        rest = train.epochs - fold_epochs * cost
        folds = tuple(
            Phase(
                f"{FOLD}{number}",
                fold_epochs,
                {"network": train.lr * settings.fold_lr},
                anneal=(0.0, 1.0),
                passes=cost / settings.folds,  # the share of the images that a fold trains on
                fresh=True,
            )
            for number in range(settings.folds)
        )
        return (*folds, Phase(TRAIN, rest, {"network": train.lr}, anneal=(0.0, 1.0), fresh=True))

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Every phase starts with the same weights; the last one prunes first."""
        if phase.name == TRAIN and self.plan()[0].epochs:
            label = self.labels.cpu()
            issues = find_issues(self.held_out.get(torch.arange(len(label))).cpu(), label)
            self.keep = spare_classes(~issues, self._self_confidence().cpu(), label).to(self.keep.device)
            log.info("confident learning leaves out %d of %d images", int((~self.keep).sum()), len(label))
        self.beginning.restart(self.network)

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """Predict the fold that the network has not seen."""
        if phase.name == TRAIN:
            return
        for batch in bag_pass(1):
            mine = self.fold[batch.rows[:, 0]] == _number(phase)
            if mine.any():
                self.held_out.put(batch.rows[mine, 0], self.predict(batch.images[mine]).softmax(dim=1))

    def rows(self, phase: Phase) -> NDArray[np.int64]:
        """All but the fold; in the end all but the pruned."""
        chosen = self.keep if phase.name == TRAIN else self.fold != _number(phase)
        return np.flatnonzero(chosen.cpu().numpy())

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the out-of-fold probability of the label."""
        inspection = super().inspect(batch)
        if self.plan()[0].epochs == 0:
            return inspection
        return replace(inspection, label_score=of_label(self.held_out.get(batch.rows[:, 0]), batch.label))

    def _self_confidence(self) -> Tensor:
        rows = torch.arange(len(self.labels), device=self.keep.device)
        return of_label(self.held_out.get(rows), self.labels.to(rows.device))


def spare_classes(keep: Tensor, confidence: Tensor, label: Tensor) -> Tensor:
    """Keep (n,) the most trusted images of each class, whatever was found."""
    keep = keep.clone()
    for one in label.bincount().nonzero().squeeze(1):
        members = (label == one).nonzero().squeeze(1)
        keep[members[confidence[members].argsort(descending=True, stable=True)[:LEAST]]] = True
    return keep


def _number(phase: Phase) -> int:
    return int(phase.name.removeprefix(FOLD))
