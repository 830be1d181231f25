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
from somnet.system.transfer import send

INIT, PROTOTYPES, CORRECT = "init", "prototypes", "correct"  # phases
VIEWS = 2  # of an image: the network sees the first, its moving average the other
QUEUE_SHARE = 0.25  # of the training images, the most that the queue may hold
DROPPED = -1  # label of an image that is not an example of any class; cross entropy passes over it


class MoproSettings(MethodSettings):
    """Momentum prototypes."""

    width: Count = 128  # of the projection
    temperature: Rate = 0.1  # of both contrasts
    momentum: Momentum = 0.99  # of prototypes and of the second encoder
    queue: Count = 8192  # keys to contrast with; never more than a quarter of the training images
    threshold: Share = 0.8  # probability from which on an image is relabelled
    init_share: Share = 0.12  # of the epochs before labels are corrected; 11 of 90


def corrected(label: Tensor, confidence: Tensor, threshold: float) -> Tensor:
    """Labels (I,) by confidence (I, C): the class above the threshold, else the given one if it beats chance."""
    most, best = confidence.max(dim=1)
    kept = torch.where(of_label(confidence, label) > 1 / confidence.shape[1], label, DROPPED)
    return torch.where(most > threshold, best, kept)


def supervised(logits: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross entropy, each times its weight (I,), of the images that are not dropped; 0 where all are."""
    each = cross_entropy(logits, label, ignore_index=DROPPED, reduction="none")  # (I,)
    return (each if weight is None else weight * each).sum() / (label != DROPPED).sum().clamp(min=1)


def instance_loss(z: Tensor, key: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """InfoNCE: the key (I, D) of the same image among those of other images, the queue (Q, D)."""
    same = (z * key).sum(dim=1, keepdim=True)  # (I, 1)
    logits = torch.cat([same, z @ queue.T], dim=1) / temperature  # (I, 1 + Q)
    return cross_entropy(logits, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def moved_prototypes(prototypes: Tensor, z: Tensor, label: Tensor, momentum: float) -> Tensor:
    """Prototypes (C, D) after k new members each: c <- m^k c + (1 - m^k) mean of the members, at unit length."""
    classes = len(prototypes)
    member = torch.where(label == DROPPED, classes, label)  # dropped ones gather behind the last class
    count = z.new_zeros(classes + 1).index_add(0, member, torch.ones_like(z[:, 0]))[:classes, None]  # (C, 1)
    mean = z.new_zeros(classes + 1, z.shape[1]).index_add(0, member, z)[:classes] / count.clamp(min=1)
    fade = momentum**count
    return normalize(fade * prototypes + (1 - fade) * mean, dim=1)


class KeyEncoder(nn.Module):
    """The moving average of a network and its projection. It is only asked, so it is always in evaluation mode."""

    def __init__(self, network: Network, projection: nn.Module) -> None:
        super().__init__()
        self.network = network.twin()
        self.projection = copy.deepcopy(projection).requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> "KeyEncoder":
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Unit keys (I, D)."""
        return normalize(self.projection(self.network.image_features(images)), dim=1)

    def follow(self, network: Network, projection: nn.Module, momentum: float) -> None:
        """Move towards them."""
        follow(self.network.tail, network.tail, momentum)
        follow(self.projection, projection, momentum)


class MoPro(Method):
    """Contrast of images and of classes: prototypes in a projection of the features correct labels or drop images.

    The network sees one view of an image, its moving average another. Losses: cross entropy, InfoNCE against a queue of
    earlier images, and after the first epoch cross entropy against the prototypes, which only gather until then. When
    an eighth of the epochs is over, q = p / 2 + softmax(z c / tau) / 2 decides: max q beyond a threshold is the new
    label; else the given one stays if q_y beats chance; else the image is only contrasted.

    Deviations from the paper: momentum 0.99 for 0.999, which would take thousands of steps to forget its start, and
    a plain mean at first; the moving average is in evaluation mode, where the authors shuffle batches between GPUs; the
    queue holds at most a quarter of the training images (theirs holds 8192 of 2.4 million), else it would be full
    of the very images that are contrasted; of few classes many of its keys are of the same class, where theirs has
    1,000; prototypes move once per batch, by as much as its images would move them one by one; views are drawn like
    those of all methods, not a weak and a strong one; one cosine of the learning rate; the classifier is not trained
    again afterwards on the cleaned labels.
    An image is charged with one pass: the second view takes no gradient.
    State: queue, prototypes, the moving average of the network, and the label that each image was last used with.
    """

    weighted = frozenset({"cls", "prototype"})
    divisible = False  # only the images that are not dropped count

    queue: Tensor  # (Q, D) unit keys of earlier images, the oldest are replaced first
    prototypes: Tensor  # (C, D)
    used: Tensor  # (n,) the label that an image was last trained with; DROPPED for none
    steps: Tensor  # so far

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(MoproSettings)
        wide, width = network.width, self.settings.width
        self.projection = nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, width))
        self.slow = KeyEncoder(network, self.projection)
        keys = max(1, min(self.settings.queue, int(QUEUE_SHARE * len(labels))))
        self.register_buffer("queue", normalize(torch.randn(keys, width), dim=1))
        self.register_buffer("prototypes", torch.zeros(classes, width))
        self.register_table("used", labels.to(torch.int32))
        self.register_table("steps", torch.zeros((), dtype=torch.int64))

    def plan(self) -> tuple[Phase, ...]:
        """Given labels, in the first epoch without prototypes; then corrected ones."""
        train = self.config.train
        start = max(1, round(self.settings.init_share * train.epochs))  # of the correction
        lr = {"network": train.lr, "projection": train.lr}
        return tuple(
            Phase(name, end - begin, lr, anneal=(begin / train.epochs, end / train.epochs), views=VIEWS)
            for name, begin, end in ((INIT, 0, 1), (PROTOTYPES, 1, start), (CORRECT, start, train.epochs))
        )

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The three losses, as far as the phase has them; the last phase corrects labels first."""
        settings = self.settings
        views = batch.images.view(len(batch.label), -1, *batch.images.shape[1:])  # (I, V, ...)
        features = self.network.image_features(views[:, 0])  # (I, F)
        logits, z = self.network.classifier(features), self._embed(features)  # (I, C), (I, D)
        near = z @ self.prototypes.T / settings.temperature  # (I, C)
        label, key = batch.label, self.slow(views[:, -1])  # (I,), (I, D)
        if phase.name == CORRECT:
            label = corrected(label, mixed_confidence(logits.detach(), near.detach()), settings.threshold)
        losses = {"cls": supervised(logits, label, batch.bag_weight())}
        if phase.name != INIT:
            losses["prototype"] = supervised(near, label, batch.bag_weight())
        losses["instance"] = instance_loss(z, key, self.queue, settings.temperature)
        return Step(losses, pending={"rows": batch.rows[:, 0], "embedding": z.detach(), "key": key, "label": label})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Prototypes, queue and the slow network move."""
        self.used[pending["rows"]] = pending["label"].to(self.used.dtype)
        momentum, device = self.settings.momentum, self.queue.device
        label, embedding, key = (send(pending[name], device) for name in ("label", "embedding", "key"))
        self.prototypes.copy_(moved_prototypes(self.prototypes, embedding, label, momentum))
        self.queue.copy_(torch.cat([self.queue, key])[-len(self.queue) :])
        self.steps += 1
        self.slow.follow(self.network, self.projection, warm_momentum(momentum, int(self.steps)))

    def metrics(self) -> dict[str, float]:
        """Of all images, the shares that were last used with another label, with the given one, and with none."""
        dropped, kept = self.used == DROPPED, self.used == self.labels
        shares = {"corrected": ~(dropped | kept), "kept": kept, "dropped": dropped}
        return {name: float(chosen.float().mean()) for name, chosen in shares.items()}

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
