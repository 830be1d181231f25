"""SOMNet+, the default method: it trains on what a label probably should be, and SOMNet's memory reads what was learnt.

What is left of SOMNet and of ideas beyond it. docs/results.md says what the parts of the training are worth beside
their controls; the memory, which judges and does not train, was not measured alone.

1. Before training, other images are heard about each image: belief in its regions, prototypes of the classes and
   neighbours, from features that no label has touched (label_evidence.py). What each is worth, and which share e of the
   labels is drawn at random, is whatever makes the given labels most likely (label_posterior.py). This gives each image
   i a distribution t_i over the classes: where labels are right, t_i is the label; where they are flipped, it is what
   the image shows. Nothing is relabelled by a network that has seen the label, so no mistake feeds itself.
2. The network is trained with t_i, one drawn view of an image at a time. Where labels are wrong some t_i are, too, and
   a loss that a wrong one cannot pull at is better than cross entropy: a step takes

       (1 - e) CE(p, t_i) + e SL(p, t_i),     SL = 0.1 CE + RCE,   RCE = -log(1e-4) (1 - <p, t_i>)

   with the symmetric cross entropy SL of sl.py. Where no labels are wrong that is cross entropy.
3. Where things are small among clutter most views do not show them. The same likelihood tells whether labels go by the
   best region of an image or by all of them: k is the probability of the former. With q_iv, the belief in t_i of a
   model that has not seen the image, view v is drawn with a probability in proportion to q_iv^k: all views alike where
   all tell. The mirror image and random crops are variants of the image, so as far as regions are drawn by belief these
   share its part.
4. Then Algorithm 1's second line: the memory learns the features of each image and its regions, all at full size, in a
   network that has come to rest. It has no part in the network's training, but it knows the prototypes of each class.
5. By Eq. 10 it chooses the regions of an image that its label is judged by. What the method itself thinks of a label
   (the column `belief`) is the mean of two probabilities: of the label in the best of these regions, and in t_i.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from somnet.config import Config
from somnet.core.losses import weighted_mean
from somnet.core.schedule import INIT_CNN, Stage, algorithm_1
from somnet.core.types import BagBatch, Phase
from somnet.errors import ConfigError
from somnet.methods import sl
from somnet.methods.base import BagPass, Inspection, Observation, Step, of_label
from somnet.methods.features import region_features
from somnet.methods.label_judgement import GivenLabels, Judged, judge_labels
from somnet.methods.mixup import soft_cross_entropy
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

SYMMETRIC = sl.SlSettings()  # as in the paper
LEAST_SEEN = 1e-3  # belief below which a view is drawn no less


class SomnetPlusSettings(MethodSettings):
    """Who is heard about a label before training, beside the belief in an image's regions on average; its uses."""

    best_region: bool = True  # the belief in the best region
    prototypes: bool = True  # the cosines to the classes' mean features
    neighbours: bool = True  # the labels of the most similar images
    probable_labels: bool = True  # train on what the labels probably should be; false: on the given ones
    robust_loss: bool = True  # a loss that is the more robust the more labels are wrong; false: cross entropy
    choose_views: bool = True  # draw views by what is believed to be in them; false: all alike

    def heard(self) -> list[int]:
        """The witnesses by their numbers in label_evidence.py."""
        return [
            0,
            *(1 + place for place, yes in enumerate((self.best_region, self.prototypes, self.neighbours)) if yes),
        ]


class SomNetPlus(SomNet):
    """A network trained on probable labels, and SOMNet's memory of its features.

    State: the memory, one distribution per image, N x 16 numbers (see SampleTable), and one share per view, N x V;
    while they are estimated, P x F half floats for each of at most 20,000 images.
    """

    judges_labels = True
    weighted = frozenset({"cls", "reverse"})
    settings: SomnetSettings  # of SOMNet
    judged: Tensor  # () whether the distributions are known
    wrong: Tensor  # () e, the share of labels that are drawn at random
    shares: Tensor  # (n, V) how often each view is drawn

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        if self.settings.memory.kmeans:
            raise ConfigError("somnet+ trains its memory: leave out somnet.memory.kmeans, or choose the method somnet")
        self.plus = config.of(SomnetPlusSettings)
        self.targets = SampleTable(len(labels), classes)
        self.register_table("judged", torch.zeros((), dtype=torch.bool))
        self.register_table("wrong", torch.zeros(()))
        views = config.views
        self.register_table("shares", torch.ones(len(labels), 1 + views.proposals + views.mirror + views.crops))
        self.verified = torch.zeros(len(labels), dtype=torch.bool)  # (n,)

    def confirm(self, verified: Tensor) -> None:
        """Labels that a person has confirmed are beyond doubt."""
        self.verified = verified

    def plan(self) -> tuple[Phase, ...]:
        """The first two lines of Algorithm 1: the network gets all epochs, then the memory its own."""
        train, memory = self.config.train, self.settings.memory
        network, nothing = Stage(train.epochs, {"network": train.lr}), Stage(0, {})
        return algorithm_1(network, Stage(memory.init_epochs, memory.rates()), nothing, keep=(), images_per_bag=1)

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Hear about each label, by features that the network has before it is trained: a resumed run has done it."""
        super().prepare(phase, bag_pass, generator)
        if phase.name == INIT_CNN and not self.judged:
            self._judge(bag_pass)
            self.judged.fill_(True)

    def _judge(self, bag_pass: BagPass) -> None:
        labels = self.labels.cpu()
        given = GivenLabels(labels.numpy(), self.classes, verified=self.verified.numpy())
        regions = partial(region_features, self.network, bag_pass)
        for judged in judge_labels(regions, given, self.config.seed, self.plus.heard()):
            rows, probable = torch.from_numpy(judged.rows), torch.from_numpy(judged.probable).float()
            certain = functional.one_hot(labels[rows], self.classes).float()
            known = self.verified[rows, None] | torch.tensor(not self.plus.probable_labels)  # (b, 1)
            self.targets.put(rows, torch.where(known, certain, probable))
            if self.plus.robust_loss:
                self.wrong.fill_(judged.wrong)
            if self.plus.choose_views:
                self.shares[rows] = view_shares(judged, self.shares.shape[1])

    def view_shares(self, phase: Phase) -> NDArray[np.float32] | None:
        """Views are drawn by what is believed to be in them."""
        return self.shares.numpy() if phase.name == INIT_CNN and self.plus.choose_views else None

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Both losses with what the labels probably should be; for the memory, SOMNet's losses."""
        if phase.name != INIT_CNN:
            return super().step(batch, phase)
        rows, logits, weight = batch.rows[:, 0], self.predict(batch.images), batch.bag_weight()
        targets, wrong = self.targets.get(rows, logits.device), float(self.wrong)  # (I, C), in main memory
        forward = weighted_mean(soft_cross_entropy(logits, targets), weight)
        losses = {"cls": (1 - wrong + wrong * SYMMETRIC.alpha) * forward}
        if self.plus.robust_loss:
            losses["reverse"] = wrong * SYMMETRIC.beta * sl.reverse_cross_entropy(logits, targets, weight)
        return Step(losses, Observation(rows=rows, scores=of_label(logits.detach().softmax(dim=1), batch.label)))

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """As SOMNet; label_score: the mean of the label's probability in its best region and before training."""
        seen = super().inspect(batch)
        probable = self.targets.get(batch.rows[:, 0], batch.label.device)  # (I, C)
        label_score = (seen.label_score + of_label(probable, batch.label)) / 2
        return replace(seen, label_score=label_score)


def view_shares(judged: Judged, views: int) -> Tensor:
    """How often each view (b, V) of an image is drawn: the image, its regions, then other variants of the image."""
    seen, real = torch.from_numpy(judged.seen), torch.from_numpy(judged.real)  # (b, P)
    variant = functional.pad(~real, (0, views - real.shape[1]), value=True)  # (b, V)
    variant[:, 0] = True
    image = seen[:, :1].clamp(min=LEAST_SEEN) / variant.sum(dim=1, keepdim=True)  # (b, 1) its variants share its part
    regions = functional.pad(seen.clamp(min=LEAST_SEEN), (0, views - real.shape[1]))
    return torch.where(variant, image, regions) ** judged.clutter
