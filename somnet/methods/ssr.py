"""SSR: Feng et al., "SSR: An Efficient and Robust Framework for Learning with Unknown Label Noise", 2022."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Inspection, Method, Step, of_label
from somnet.methods.features import members, most_similar
from somnet.methods.mixup import mix_up, soft_cross_entropy
from somnet.methods.settings import Count, MethodSettings, Rate, Share
from somnet.nn.backbones import Network
from somnet.system.transfer import send

TRAIN = "train"  # the name of each phase
BLOCK = 2**25  # cosines at a time, 128 MB


class SsrSettings(MethodSettings):
    """Sample selection and relabelling."""

    relabel: Share = 0.95  # confidence beyond which the network's class is the label; the paper's theta_r, WebVision
    agreement: Share = 1.0  # the label's votes among those of the first class, from which on it is clean: theta_s
    neighbours: Count = 200  # that vote, at most
    neighbour_share: Share = 0.4  # of the mean size of a class, at most as many vote; 200 of CIFAR-100's 500
    mix: Rate = 0.5  # of the Beta distribution of MixUp


def relabelled(label: Tensor, probabilities: Tensor, threshold: float) -> Tensor:
    """Labels (I,): the class that is more probable (I, C) than the threshold, else the given one."""
    most, best = probabilities.max(dim=1)
    return torch.where(most > threshold, best, label)


def neighbour_votes(unit: Tensor, block: slice, label: Tensor, classes: int, count: int) -> Tensor:
    """Shares (b, C) of the votes of the `count` nearest others for each image of a block, by unit features (n, F).

    An image votes for its label; the votes for a class are divided by the share of images that have its label. The
    features may be in main memory.
    """
    own = torch.arange(len(label), device=label.device)[block]
    queries = send(unit[block], label.device).float()  # (b, F)
    voters = label[most_similar(queries, unit, count, own=own)]  # (b, count)
    votes = queries.new_zeros(len(own), classes).scatter_add_(1, voters, torch.ones_like(voters, dtype=queries.dtype))
    votes = votes / label.bincount(minlength=classes).clamp(min=1)
    return votes / votes.sum(dim=1, keepdim=True).clamp(min=torch.finfo(votes.dtype).tiny)


def is_clean(votes: Tensor, label: Tensor, agreement: float) -> Tensor:
    """Whether the votes (I, C) for the label (I,) are at least this share of those for the first class."""
    return of_label(votes, label) >= agreement * votes.amax(dim=1)


def balanced_rows(label: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """As many numbers as there are images (n,), of chosen ones (n,) only: each class equally often, in random order.

    The images of a class are taken in turn, so how often two of them come differs by one. Without any, all are chosen.
    """
    rows = chosen.nonzero().squeeze(1) if chosen.any() else torch.arange(len(label))
    classes = [rows[some] for some in members(label[rows])]
    drawn = []
    for number, of_class in enumerate(classes):
        quota = len(label) // len(classes) + (number < len(label) % len(classes))
        order = of_class[torch.randperm(len(of_class), generator=generator)]
        drawn.append(order.repeat(-(-quota // len(order)))[:quota])
    return torch.cat(drawn)


class Ssr(Method):
    """Train on the images whose label their neighbours confirm; what the network is sure of is relabelled first.

    Before each epoch, on whole images: where the classifier is surer than a threshold its class is the label, elsewhere
    the given one is. Then the nearest others in the features vote by these labels, and an image is clean if its label
    wins. The epoch draws the clean images, each class equally often, and mixes them up.

    Deviations from the paper: this is SSR, without the feature consistency of SSR+, which takes two more views of all
    images, clean or not; one view of an image in a batch, where the authors put in two of half as many images; an image
    has no vote on itself; fewer neighbours where classes are small; an epoch has as many steps as any other, however
    few images are clean. Where no image is clean, all are used. The pass over the images before an epoch takes no
    gradient and is not charged; each image is compared with each other one, so its time grows with N x N.
    State: a label, a share, a flag and a number per image; N x F half floats while images are selected.
    """

    divisible = False  # images are mixed with others of the batch

    label: Tensor  # (n,) what an image is now taken for
    clean: Tensor  # (n,) whether the neighbours agree
    share: Tensor  # (n,) of the neighbours' votes, for the given label
    drawn: Tensor  # (n,) the images of this epoch

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(SsrSettings)
        self.register_table("label", labels.clone())
        self.register_table("clean", torch.ones(len(labels), dtype=torch.bool))
        self.register_table("share", torch.ones(len(labels)))
        self.register_table("drawn", torch.arange(len(labels)))

    def plan(self) -> tuple[Phase, ...]:
        """A phase per epoch, each of which selects again, on one cosine of the learning rate."""
        train = self.config.train
        lr, epochs = {"network": train.lr}, train.epochs
        return tuple(Phase(TRAIN, 1, lr, anneal=(i / epochs, (i + 1) / epochs)) for i in range(epochs))

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Relabel, select, and draw the images of the epoch."""
        self._select(bag_pass)
        self.drawn.copy_(balanced_rows(self.label, self.clean, generator))

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """The final scores are those of the final network."""
        if phase.anneal[1] >= 1:
            self._select(bag_pass)

    @property
    def neighbours(self) -> int:
        """How many vote: fewer where classes are small."""
        images, settings = len(self.clean), self.settings
        of_class = max(1, round(settings.neighbour_share * images / self.classes))
        return min(settings.neighbours, of_class, images - 1)

    def _select(self, bag_pass: BagPass) -> None:
        settings, features = self.settings, []
        for batch in bag_pass(1):
            mean = self.network.image_features(batch.images)  # (I, F)
            p = self.network.classifier(mean).softmax(dim=1)
            self.label[batch.rows[:, 0]] = relabelled(batch.label, p, settings.relabel).cpu()
            features.append(normalize(mean, dim=1).half().cpu())
        unit, device = torch.cat(features), self.network.mean.device  # (n, F)
        label, given = (send(labels, device) for labels in (self.label, self.labels))
        size = max(1, BLOCK // len(given))
        for start in range(0, len(given), size):
            block = slice(start, start + size)
            votes = neighbour_votes(unit, block, label, self.classes, self.neighbours)  # (b, C)
            self.clean[block] = is_clean(votes, label[block], settings.agreement).cpu()
            self.share[block] = of_label(votes, given[block]).float().cpu()

    def held_bytes(self) -> int:
        """Features as half floats."""
        return 2 * self.network.width

    def rows(self, phase: Phase) -> NDArray[np.int64]:
        """The clean images, each class equally often; an image may come more than once."""
        return self.drawn.numpy()

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of mixed images with their mixed labels."""
        label = send(self.label[batch.rows[:, 0]], batch.label.device)
        target = one_hot(label, self.classes).float()  # (I, C)
        images, target = mix_up(batch.images, target, self.settings.mix)
        return Step({"cls": soft_cross_entropy(self.predict(images), target).mean()})

    def metrics(self) -> dict[str, float]:
        """Shares of all images."""
        changed = self.label != self.labels
        return {"clean": float(self.clean.float().mean()), "relabelled": float(changed.float().mean())}

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the share of the neighbours' votes that the given label got."""
        return replace(super().inspect(batch), label_score=send(self.share[batch.rows[:, 0]], batch.label.device))
