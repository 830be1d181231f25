"""A noise layer: Sukhbaatar et al., "Training Convolutional Networks with Noisy Labels", 2014."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.losses import classification_loss, weighted_mean
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Method, Step
from somnet.methods.settings import MethodSettings, Rate, Share, Strength
from somnet.nn.backbones import Network

PLAIN, NOISE_LAYER = "plain", "noise-layer"  # phases; the latter is a parameter group too
LARGEST = 100.0  # gradient of an image for an entry of Q: it is 1 over a probability, and one image must not fill a row


class SukhbaatarSettings(MethodSettings):
    """A noise layer behind the softmax."""

    start: Share = 0.1  # of the epochs, after which the layer is trained: a pretrained network soon memorises
    decay: Strength = 3.0  # of the layer, divided by the classes; up to 1 it can stay the identity
    lr: Rate = 3.0  # of the layer, relative to the network's


def noisy_cross_entropy(logits: Tensor, columns: Tensor, weight: Tensor | None = None) -> Tensor:
    """-log of the probability of the given label behind the layer, sum_i p_i Q_iy; Q_.y are the columns (I, C)."""
    of_label = (logits.softmax(dim=1) * columns).sum(dim=1)  # (I,)
    return weighted_mean(-of_label.clamp(min=torch.finfo(of_label.dtype).tiny).log(), weight)


def nearest_on_simplex(rows: Tensor) -> Tensor:
    """The non-negative rows that sum to 1 and are nearest to these, (..., C).

    All entries that stay positive are shifted alike. Weight decay needs this: it shrinks a row, and dividing the row
    by its sum would just undo it, while the shift hands on to all entries what the large ones lost.
    """
    falling = rows.sort(dim=-1, descending=True).values
    count = torch.arange(1, rows.shape[-1] + 1, device=rows.device)
    shift = (1 - falling.cumsum(dim=-1)) / count  # if the `count` largest entries stay positive
    positive = ((falling + shift) > 0).sum(dim=-1, keepdim=True)
    return (rows + shift.gather(-1, positive - 1)).clamp(min=0)


class Sukhbaatar(Method):
    """Behind the softmax a matrix Q turns probabilities of true classes into those of given labels.

    At first Q is the identity and training is plain; then both are trained, and weight decay draws Q away from the
    identity. Where a network has memorised all labels, the two balance at a diagonal of 1 / sqrt(decay). Q is
    dropped at test time. Deviations from the paper: the layer sets in after a share of the epochs, not where the loss
    flattens; the decay is divided by the number of classes, as the gradient of a row is, so that Q stays as near to the
    diagonal with many of them; an image's gradient on Q is bounded. label_score is the classifier's: the posterior
    p_y Q_yy / sum_i p_i Q_iy told wrong labels less well, and is 1 for all as long as Q is the identity.
    No state per sample; Q has C x C numbers, 4 MB for 1,000 classes.
    """

    weighted = frozenset({"cls"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(SukhbaatarSettings)
        self.layer = nn.Parameter(torch.eye(classes))  # (C, C) Q: one row per true class, which sums to 1

    def plan(self) -> tuple[Phase, ...]:
        """Plain training, then with the noise layer, along one cosine."""
        train, settings = self.config.train, self.settings
        first = round(settings.start * train.epochs)
        turn = first / train.epochs
        network = {"network": train.lr}
        both = {**network, NOISE_LAYER: train.lr * settings.lr}
        return (
            Phase(PLAIN, first, network, anneal=(0.0, turn)),
            Phase(NOISE_LAYER, train.epochs - first, both, anneal=(turn, 1.0)),
        )

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of the labels, in front of the noise layer or behind it."""
        logits = self.predict(batch.images)
        if phase.name == PLAIN:
            return Step({"cls": classification_loss(logits, batch.label, batch.bag_weight())})
        columns = self.layer.T[batch.label]  # (I, C)
        columns.register_hook(_bounded)  # type: ignore[no-untyped-call]
        return Step({"cls": noisy_cross_entropy(logits, columns, batch.bag_weight())})

    @torch.no_grad()
    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Rows of Q are distributions."""
        if self.layer.requires_grad:
            self.layer.copy_(nearest_on_simplex(self.layer))

    def metrics(self) -> dict[str, float]:
        """How much of the labels the layer takes for true."""
        return {"noise-layer/diagonal": float(self.layer.detach().diagonal().mean())}

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN, and the noise layer with its decay."""
        decay = self.settings.decay / self.classes
        layer = {"name": NOISE_LAYER, "params": [self.layer], "momentum": 0.0, "weight_decay": decay}
        return [*super().param_groups(), layer]


def _bounded(gradient: Tensor) -> Tensor:
    """The gradients (I, C) of a mean over images, each image's share held in bounds."""
    return gradient.clamp(min=-LARGEST / len(gradient))
