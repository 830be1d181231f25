"""SOMNet+, the default method: early learning trains the network, and SOMNet's memory reads what it has learnt.

What is left of SOMNet and of ideas beyond it after each had to beat its control (docs/results.md):

1. The network is trained as by ELR, one drawn view of an image at a time. Each image i keeps a moving average t_i of
   what is predicted for its views,

       t_i <- beta t_i + (1 - beta) p_i,   L = cross entropy + strength * mean of log(1 - <t_i, p_i>).

   The gradient of the second term keeps the prediction where t_i has it: labels which contradict what was learnt early
   are not memorised, and where t_i agrees with the label it says the same. Bags of several regions or images, weighed
   by the memory or not, were no better than single views.
2. Then Algorithm 1's second line: the memory learns the features of each image and its regions, all at full size, in a
   network that has come to rest. It has no part in the network's training, but it knows the prototypes of each class.
3. By Eq. 10 it chooses the regions of an image that its label is judged by. label_score is the mean of two witnesses:
   the label's probability in the best of these regions, and in t_i. Where a thing is small among clutter the first
   sees it; where a label is wrong the second has held it off.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from somnet.config import Config
from somnet.core.schedule import INIT_CNN, Stage, algorithm_1
from somnet.core.types import BagBatch, Phase
from somnet.errors import ConfigError
from somnet.methods.base import Inspection, Observation, Step, of_label
from somnet.methods.elr import early_learning_losses
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Momentum, Strength
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

UNSEEN = 1e-6  # probability of each class, for an image that was never used


class SomnetPlusSettings(MethodSettings):
    """Early-learning regularisation, before SOMNet's memory is trained."""

    strength: Strength = 3.0  # of the early-learning term; 0 is none
    beta: Momentum = 0.7  # of the moving average of predictions


class SomNetPlus(SomNet):
    """A network trained with an early-learning term, and SOMNet's memory of its features.

    State: the memory, and one target per image, N x 16 numbers (see SampleTable).
    """

    settings: SomnetSettings  # of SOMNet
    plus: SomnetPlusSettings

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        if self.settings.memory.kmeans:
            raise ConfigError("somnet+ trains its memory: leave out somnet.memory.kmeans, or choose the method somnet")
        self.plus = config.of(SomnetPlusSettings)
        self.targets = SampleTable(len(labels), classes)

    def plan(self) -> tuple[Phase, ...]:
        """The first two lines of Algorithm 1: the network gets all epochs, then the memory its own."""
        train, memory = self.config.train, self.settings.memory
        network, nothing = Stage(train.epochs, {"network": train.lr}), Stage(0, {})
        return algorithm_1(network, Stage(memory.init_epochs, memory.rates()), nothing, keep=(), images_per_bag=1)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy and the early-learning term; for the memory, SOMNet's losses."""
        if phase.name != INIT_CNN:
            return super().step(batch, phase)
        rows, plus = batch.rows[:, 0], self.plus
        known, logits = self.targets.get(rows), self.predict(batch.images)
        losses, target = early_learning_losses(logits, batch.label, known, strength=plus.strength, beta=plus.beta)
        observed = Observation(rows=rows, scores=of_label(_normalised(target), batch.label))
        return Step(losses, observed, {"rows": rows, "target": target})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The targets move along; Eq. 5 and 7."""
        if "target" in pending:
            self.targets.put(pending["rows"], pending["target"])
        super().after_step(pending)

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """As SOMNet; label_score: the mean of the label's probability in its best region and in the moving average."""
        seen = super().inspect(batch)
        average = _normalised(self.targets.get(batch.rows[:, 0]))  # (I, C)
        label_score = (seen.label_score + of_label(average, batch.label)) / 2
        return replace(seen, probabilities=average, label_score=label_score)


def _normalised(target: Tensor) -> Tensor:
    """Probabilities (I, C) that sum to 1: a target sums to less after few epochs."""
    positive = target + UNSEEN
    return positive / positive.sum(dim=1, keepdim=True)
