"""MoPro: Li et al., "MoPro: Webly Supervised Learning with Momentum Prototypes", 2021."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Inspection, Method, Step, of_label
from somnet.methods.settings import Count, MethodSettings, Momentum, Rate, Share
from somnet.nn.average import follow, warm_momentum
from somnet.nn.backbones import Network
from somnet.nn.roi import random_boxes

INIT, CORRECT = "init", "correct"  # phases
DROPPED = -1  # label of an image that is not an example of any class; cross entropy passes over it


class MoproSettings(MethodSettings):
    """Momentum prototypes."""

    width: Count = 128  # of the projection
    temperature: Rate = 0.1  # of both contrasts
    momentum: Momentum = 0.99  # of prototypes and of the second encoder
    queue: Count = 512  # keys to contrast with; the paper takes 8192 for 1,000 classes
    smallest_crop: Share = 0.6  # of the side, of the crops that are an image's views
    threshold: Share = 0.8  # probability from which on an image is relabelled
    init_share: Share = 0.3  # of the epochs before labels are corrected


def corrected(label: Tensor, confidence: Tensor, threshold: float) -> Tensor:
    """Labels (I,) by confidence (I, C): the class above the threshold, else the given one if it beats chance."""
    most, best = confidence.max(dim=1)
    kept = torch.where(of_label(confidence, label) > 1 / confidence.shape[1], label, DROPPED)
    return torch.where(most > threshold, best, kept)


def supervised(logits: Tensor, label: Tensor) -> Tensor:
    """Mean cross entropy of the images that are not dropped; 0 where all are."""
    return cross_entropy(logits, label, ignore_index=DROPPED, reduction="sum") / (label != DROPPED).sum().clamp(min=1)


def instance_loss(z: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """InfoNCE: the key (I, D) of the same image among those of other images, the queue (Q, D)."""
    same = (z * key).sum(dim=1, keepdim=True)  # (I, 1)
    logits = torch.cat([same, z @ queue.T], dim=1) / temperature  # (I, 1 + Q)
    return cross_entropy(logits, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def moved_prototypes(prototypes: Tensor, z: Tensor, label: Tensor, momentum: float) -> Tensor:
    """Prototypes (C, D) after k new members each: c <- m^k c + (1 - m^k) mean of the members, at unit length."""
    kept = label != DROPPED
    count = label[kept].bincount(minlength=len(prototypes)).to(z)[:, None]  # (C, 1)
    mean = torch.zeros_like(prototypes).index_add(0, label[kept], z[kept]) / count.clamp(min=1)
    fade = momentum**count
    return normalize(fade * prototypes + (1 - fade) * mean, dim=1)


class MoPro(Method):
    """Contrast of images and of classes: prototypes in a projection of the features correct labels or drop images.

    An image's two views are crops of the feature map; the network sees one, its moving average the other. Losses:
    cross entropy, InfoNCE against a queue of earlier images, cross entropy against the prototypes. After the first
    epochs q = p / 2 + softmax(z c / tau) / 2 decides: max q beyond a threshold is the new label; else the given one
    stays if q_y beats chance; else the image is only contrasted.

    Deviations from the paper: momentum 0.99 for 0.999, which would take thousands of steps to forget its start, and
    a plain mean at first; prototypes move once per batch, by as much as its images would move them one by one; a linear
    projection; the contrast of prototypes with each other's noise scale is left out.
    State: queue, prototypes, and the moving average of the network; none per sample.
    """

    divisible = False  # only the images that are not dropped count, and views are drawn for the batch

    queue: Tensor  # (Q, D) unit keys of earlier images, the oldest are replaced first
    prototypes: Tensor  # (C, D)
    steps: Tensor  # so far

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(MoproSettings)
        width = self.settings.width
        self.projection = nn.Linear(network.width, width)
        self.slow_network = network.twin()
        self.slow_projection = copy.deepcopy(self.projection).requires_grad_(False)
        self.register_buffer("queue", normalize(torch.randn(self.settings.queue, width), dim=1))
        self.register_buffer("prototypes", torch.zeros(classes, width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def plan(self) -> tuple[Phase, ...]:
        """Given labels, then corrected ones."""
        train, settings = self.config.train, self.settings
        init = max(1, round(settings.init_share * train.epochs))
        lr = {"network": train.lr, "projection": train.lr}
        return (Phase(INIT, init, lr), Phase(CORRECT, train.epochs - init, lr, anneal=(0.0, 1.0)))

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The three losses; the second phase corrects labels first."""
        settings = self.settings
        features = self._view(self.network, batch.images)  # (I, F)
        logits, z = self.network.classifier(features), self._embed(features)  # (I, C), (I, D)
        near = z @ self.prototypes.T / settings.temperature  # (I, C)
        label = batch.label
        if phase.name == CORRECT:
            label = corrected(label, mixed_confidence(logits.detach(), near.detach()), settings.threshold)
        with torch.no_grad():
            slow = self.slow_projection(self._view(self.slow_network.eval(), batch.images))
            key = normalize(slow, dim=1)  # (I, D)
        losses = {
            "cls": supervised(logits, label),
            "prototype": supervised(near, label),
            "instance": instance_loss(z, key, self.queue, settings.temperature),
        }
        return Step(losses, pending={"embedding": z.detach(), "key": key, "label": label})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Prototypes, queue and the slow network move."""
        momentum = self.settings.momentum
        moved = moved_prototypes(self.prototypes, pending["embedding"], pending["label"], momentum)
        self.prototypes.copy_(moved)
        self.queue.copy_(torch.cat([self.queue, pending["key"]])[-len(self.queue) :])
        self.steps += 1
        slowness = warm_momentum(momentum, int(self.steps))
        follow(self.slow_network.tail, self.network.tail, slowness)
        follow(self.slow_projection, self.projection, slowness)

    def _view(self, network: Network, images: Tensor) -> Tensor:
        """Features (I, F) of a random crop of each feature map."""
        boxes = random_boxes(len(images), self.settings.smallest_crop, images.device)
        return network.roi_features(images, boxes[:, None]).squeeze(1)

    def _embed(self, features: Tensor) -> Tensor:
        return normalize(self.projection(features), dim=1)

    def param_groups(self) -> list[dict[str, Any]]:
        """The network and the projection."""
        return [*super().param_groups(), {"name": "projection", "params": list(self.projection.parameters())}]

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the confidence q in the given label."""
        features = self.network.image_features(batch.images)
        near = self._embed(features) @ self.prototypes.T / self.settings.temperature
        confidence = mixed_confidence(self.network.classifier(features), near)
        return replace(super().inspect(batch), label_score=of_label(confidence, batch.label))


def mixed_confidence(logits: Tensor, near: Tensor) -> Tensor:
    """q (I, C): half the classifier's probability, half that of the prototypes."""
    return (logits.softmax(dim=1) + near.softmax(dim=1)) / 2
