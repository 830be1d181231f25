"""SOMNet+, the default method: it trains on what a label probably should be, and SOMNet's memory reads what was learnt.

What is left of SOMNet and of ideas beyond it after each had to beat its control (docs/results.md):

1. Before training, other images are heard about each image: belief in its regions, prototypes of the classes and
   neighbours, from features that no label has touched (label_evidence.py). What each is worth, and how many labels are
   wrong, is whatever makes the given labels most likely (label_posterior.py). This gives each image i a distribution
   t_i over the classes: where labels are right, t_i is the label; where they are flipped, it is what the image shows.
2. The network is trained by cross entropy with t_i, one drawn view of an image at a time. Nothing is relabelled by a
   network that has seen the label, so no mistake feeds itself.
3. Then Algorithm 1's second line: the memory learns the features of each image and its regions, all at full size, in a
   network that has come to rest. It has no part in the network's training, but it knows the prototypes of each class.
4. By Eq. 10 it chooses the regions of an image that its label is judged by. label_score is the mean of two
   probabilities: of the label in the best of these regions, and in t_i.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from somnet.config import Config
from somnet.core.schedule import INIT_CNN, Stage, algorithm_1
from somnet.core.types import BagBatch, Phase
from somnet.errors import ConfigError
from somnet.methods.base import BagPass, Inspection, Observation, Step, of_label
from somnet.methods.label_evidence import MOST, RegionFeatures, ask
from somnet.methods.label_posterior import fit_posterior
from somnet.methods.mixup import soft_cross_entropy
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

log = logging.getLogger("somnet")


class SomnetPlusSettings(MethodSettings):
    """Who is heard about a label before training, beside the belief in an image's regions on average."""

    best_region: bool = True  # the belief in the best region
    prototypes: bool = True  # the cosines to the classes' mean features
    neighbours: bool = True  # the labels of the most similar images

    def heard(self) -> list[int]:
        """The witnesses by their numbers in label_evidence.py."""
        return [
            0,
            *(1 + place for place, yes in enumerate((self.best_region, self.prototypes, self.neighbours)) if yes),
        ]


class SomNetPlus(SomNet):
    """A network trained on probable labels, and SOMNet's memory of its features.

    State: the memory, and one distribution per image, N x 16 numbers (see SampleTable); while they are estimated,
    P x F half floats for each of at most 20,000 images.
    """

    settings: SomnetSettings  # of SOMNet
    judged: Tensor  # () whether the distributions are known

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        if self.settings.memory.kmeans:
            raise ConfigError("somnet+ trains its memory: leave out somnet.memory.kmeans, or choose the method somnet")
        self.plus = config.of(SomnetPlusSettings)
        self.targets = SampleTable(len(labels), classes)
        self.register_buffer("judged", torch.zeros((), dtype=torch.bool))

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
        labels, heard = self.labels.cpu().numpy(), self.plus.heard()
        asked = np.sort(np.random.default_rng((self.config.seed, *b"ask")).permutation(len(labels))[:MOST])
        place = np.full(len(labels), -1)
        place[asked] = np.arange(len(asked))
        shown = [
            (rows[own], regions.take(own))
            for rows, regions in self._regions(bag_pass)
            if (own := place[rows] >= 0).any()
        ]
        regions = RegionFeatures(
            *(np.concatenate([getattr(some, name) for _, some in shown]) for name in ("features", "real"))
        )
        witnesses = ask(regions, labels[asked], self.classes, self.config.seed)
        evidence = witnesses.hear(regions, np.arange(len(asked)))[heard]
        posterior = fit_posterior(evidence, labels[asked])
        log.info(
            "labels: about %.0f %% are another class's; witnesses weigh %s",
            100 * posterior.wrong,
            ", ".join(f"{weight:.2f}" for weight in posterior.weights),
        )
        again = self._regions(bag_pass) if len(asked) < len(labels) else iter([(asked, regions)])
        for rows, some in again:
            probable = posterior.probabilities(witnesses.hear(some, place[rows])[heard], labels[rows])
            self.targets.put(
                torch.from_numpy(rows).to(self.judged.device), torch.from_numpy(probable).float().to(self.judged.device)
            )

    def _regions(self, bag_pass: BagPass) -> Iterator[tuple[np.ndarray, RegionFeatures]]:
        """Rows and region features of all images, some at a time."""
        for batch in bag_pass(1):
            features = self.network.roi_features(batch.images, batch.boxes[:, 0]).half().cpu().numpy()  # (I, P, F)
            yield batch.rows[:, 0].cpu().numpy(), RegionFeatures(features, batch.mask[:, 0].cpu().numpy())

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy with what the labels probably should be; for the memory, SOMNet's losses."""
        if phase.name != INIT_CNN:
            return super().step(batch, phase)
        rows, logits = batch.rows[:, 0], self.predict(batch.images)
        losses = {"cls": soft_cross_entropy(logits, self.targets.get(rows)).mean()}
        return Step(losses, Observation(rows=rows, scores=of_label(logits.detach().softmax(dim=1), batch.label)))

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """As SOMNet; label_score: the mean of the label's probability in its best region and before training."""
        seen = super().inspect(batch)
        probable = self.targets.get(batch.rows[:, 0])  # (I, C)
        label_score = (seen.label_score + of_label(probable, batch.label)) / 2
        return replace(seen, probabilities=probable, label_score=label_score)
