"""SOMNet+, the default method: each image is a bag of full-size regions, and early learning holds wrong labels off.

What is left of several ideas after each had to beat its control (docs/results.md):

1. A bag is one image with its regions: the image and its first proposals, each seen at full size. The classifier is
   linear, so the logits of the bag feature x = sum_r w_r x_r are the same mean of the regions' logits. The label must
   be explained by the regions together: one that shows nothing of the class need not, as it must when crops are
   trained on one by one.
2. Each image keeps a moving average t of the predictions p for its bag, and the loss is
   CE(p, y) + strength log(1 - <t, p>), as in ELR. The second term's gradient keeps the prediction where t has it, so
   that labels which contradict what was learnt early are not memorised; where t agrees, it says the same.
   A bag's prediction is steadier than that of a single crop, and so is t.
3. The weights w are even. SOMNet's memory learns along, from the bag features and without a gradient into the network:
   it knows the prototypes of each class, and scores regions with Eq. 10. With `weigh` its weights make the bag too.

Training begins with single views, on which classifier and targets settle, for `init_share` of the epochs; then the
memory is initialised, and bags take over. The learning rate falls along one cosine.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.schedule import INIT_CNN, INIT_MEMORY, JOINT, Stage, curriculum, initialise_memory
from somnet.core.types import BagBatch, Phase
from somnet.core.weighting import normalise
from somnet.methods.base import Inspection, Observation, Step, of_label
from somnet.methods.elr import early_learning_term, moving_target
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Momentum, Share, Strength
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

UNSEEN = 1e-6  # probability of each class, for an image that was never used


class SomnetPlusSettings(MethodSettings):
    """Bags of one image's regions at full size, and early-learning regularisation of what they say together."""

    init_share: Share = 0.25  # of the epochs, on single views
    regions: bool = True  # False: single views to the end, which is ELR with a memory that looks on
    weigh: bool = False  # True: the memory's weights make the bag; False: all regions count the same
    strength: Strength = 3.0  # of the early-learning term; 0 is plain cross entropy
    beta: Momentum = 0.7  # of the moving average of predictions


class SomNetPlus(SomNet):
    """Bags of full-size regions of one image, an early-learning term, and SOMNet's memory beside.

    State: one target per image, N x 16 numbers (see SampleTable), and the memory.
    """

    settings: SomnetSettings  # of the memory
    plus: SomnetPlusSettings

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.full_size = True
        self.plus = config.of(SomnetPlusSettings)
        self.targets = SampleTable(len(labels), classes)

    def plan(self) -> tuple[Phase, ...]:
        """Single views, the memory's initialisation, then bags; a budget of one epoch is spent on bags."""
        train, weighting = self.config.train, self.settings.weighting
        init = min(max(1, round(self.plus.init_share * train.epochs)), train.epochs - 1)
        rest = train.epochs - init
        first, later = self.memory_rates()
        parts = [(init + epoch) / train.epochs for epoch in range(rest + 1)]  # of the cosine
        keep = curriculum(weighting.keep_first, weighting.keep_last, weighting.keep_step, rest)
        lr = {"network": train.lr}
        return (
            Phase(INIT_CNN, init, lr, anneal=(0.0, parts[0])),
            initialise_memory(Stage(len(first) and self.settings.memory.init_epochs, first), images_per_bag=1),
            *(
                Phase(
                    JOINT,
                    1,
                    {**lr, **later},
                    anneal=(parts[epoch], parts[epoch + 1]),
                    keep=keep[epoch],
                    regions=self.plus.regions,
                    passes=1 + self.config.views.proposals if self.plus.regions else 1,
                )
                for epoch in range(rest)
            ),
        )

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of the bag, and the early-learning term; the memory learns from the same bag."""
        if phase.name == INIT_MEMORY:
            return super().step(batch, phase)
        bags = phase.name == JOINT and self.plus.regions
        x = self.bags(batch, phase.keep)[0] if bags else self.network.image_features(batch.images)  # (B, F)
        logits, rows = self.network.classifier(x), batch.rows[:, 0]
        target = moving_target(self.targets.get(rows), logits, self.plus.beta)
        losses = {"cls": classification_loss(logits, batch.label)}
        if self.plus.strength:
            losses["early"] = self.plus.strength * early_learning_term(logits, target)
        observed = Observation(rows=rows, scores=of_label(_normalised(target), batch.label))
        pending = {"rows": rows, "target": target}
        if phase.name != JOINT:
            return Step(losses, observed, pending)
        memory = self.memory_step(x.detach(), batch.label)
        observed = replace(memory.observed, rows=rows, scores=observed.scores)
        return Step(losses | memory.losses, observed, {**pending, **memory.pending})

    def bag_weights(self, weight: Tensor, batch: BagBatch, keep: float) -> Tensor:
        """Even, or as the memory has them."""
        if self.plus.weigh:
            return super().bag_weights(weight, batch, keep)
        return normalise(batch.mask.flatten(1).float())

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The targets move along; Eq. 5 and 7."""
        if "target" in pending:
            self.targets.put(pending["rows"], pending["target"])
        super().after_step(pending)

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """Regions as SOMNet scores them; label_score: the label's probability in the moving average."""
        seen, rows = super().inspect(batch), batch.rows[:, 0]
        probabilities = _normalised(self.targets.get(rows))  # (I, C)
        return replace(seen, probabilities=probabilities, label_score=of_label(probabilities, batch.label))


def _normalised(target: Tensor) -> Tensor:
    """Probabilities (I, C) that sum to 1: a target sums to less after few epochs."""
    positive = target + UNSEEN
    return positive / positive.sum(dim=1, keepdim=True)
