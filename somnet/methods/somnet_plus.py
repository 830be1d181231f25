"""Two stages, the default method: SOMNet finds regions, then the network is trained on crops of them.

SOMNet's bags are mixtures of small regions, cut from one coarse map; its classifier is then tested on whole images.
Here SOMNet only searches, and the network is trained on what it finds, at full size:

1. Search, `search_share` of the epochs: Algorithm 1, as it is. It tells for each ROI whether the memory keeps it, and
   how probable the classifier finds the label there.
2. Training on crops, the other epochs (phase LOOK): whenever an image is used, one of three views of it is drawn: all
   of it; the region in which the label is most probable; the largest region that is nearly as good. So an object that
   is small among clutter is seen as large as in a test image, and one that fills the image is still seen as a whole.
3. Each image has a moving average of its predictions over all views (ELR's term), which starts with the prediction of
   the search: wrong labels are not memorised, however many the steps. With labels that are right, the term says the
   same as they do.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Inspection, Observation, Step, of_label
from somnet.methods.elr import early_learning_term, moving_target
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Momentum, Rate, Share, Strength
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

LOOK = "look-again"  # the second stage, training on crops
UNSEEN = 1e-6  # probability of each class, for an image that the second stage never used


class SomnetPlusSettings(MethodSettings):
    """SOMNet finds regions, then the network is trained on crops of them."""

    search_share: Share = 1 / 3  # of the epochs, for SOMNet to find the regions; the rest learns from them
    lr: Rate = 1 / 3  # of the second stage, relative to train.lr
    near_best: Share = 0.8  # a region with at least this share of the best region's probability counts as good
    regions: bool = True  # False: the second stage trains on whole images only
    strength: Strength = 3.0  # of the early-learning term; 0 is plain cross entropy
    beta: Momentum = 0.7  # of the moving average of predictions
    handover: bool = True  # True: that average starts with the search's predictions; False: at zero


def largest_good_region(boxes: Tensor, of_label: Tensor, candidates: Tensor, share: float) -> Tensor:
    """The largest candidate (I,) whose label has a share of the best one's probability (I, P): crop only as needed."""
    best = (of_label * candidates).amax(dim=1, keepdim=True)  # (I, 1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)  # (I, P)
    return torch.where(candidates & (of_label >= share * best), area, -1.0).argmax(dim=1)


class SomNetPlus(SomNet):
    """Algorithm 1 as a search for regions, then training on crops of them.

    State: one target per image, N x 16 numbers (see SampleTable); three views per image; and the search network, as it
    was at the end of the search, to which the memory belongs. In checkpoints it is called `scout`, the views `parts`.
    """

    settings: SomnetSettings  # of the search
    plus: SomnetPlusSettings
    parts: Tensor  # (n, V, 4) whole image, largest good region, best region; in shares
    best: Tensor  # (n,) number of the best region
    searched: Tensor  # (n,) probability of the label where the search found it best

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.plus = config.of(SomnetPlusSettings)
        self.scout = network.twin()
        self.targets = SampleTable(len(labels), classes)
        self.register_buffer("parts", torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(len(labels), 3, 1))
        self.register_buffer("best", torch.zeros(len(labels), dtype=torch.int16))
        self.register_buffer("searched", torch.ones(len(labels)))

    def plan(self) -> tuple[Phase, ...]:
        """Algorithm 1 in short, then training on crops; a budget too small for both is spent on the latter."""
        train = self.config.train
        search = min(round(self.plus.search_share * train.epochs), train.epochs - 1)
        algorithm_1 = self._algorithm_1(search) if search > 1 else ()
        rest = train.epochs - search if search > 1 else train.epochs
        return (*algorithm_1, Phase(LOOK, rest, {"network": train.lr * self.plus.lr}, anneal=(0.0, 1.0), fresh=True))

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Before the second stage the search is evaluated."""
        super().prepare(phase, bag_pass, generator)
        if phase.name == LOOK:
            self.scout.load_state_dict(self.network.twin().state_dict())
            for batch in bag_pass(1):
                self._choose_views(batch)

    @property
    def memory_network(self) -> Network:
        """The search network: the second stage trains without the memory."""
        return self.scout

    def _choose_views(self, batch: BagBatch) -> None:
        rows, boxes = batch.rows[:, 0], batch.boxes[:, 0]  # (I,), (I, P, 4)
        inspection = super().inspect(batch)
        candidates = inspection.weights > 0  # (I, P)
        candidates[:, 0] = True
        good = largest_good_region(boxes, inspection.details["believed"], candidates, self.plus.near_best)
        each = torch.arange(len(rows), device=rows.device)
        self.parts[rows] = torch.stack([boxes[:, 0], boxes[each, good], boxes[each, inspection.best]], dim=1)
        self.best[rows] = inspection.best.to(self.best.dtype)
        self.searched[rows] = inspection.label_score
        if self.plus.handover:
            self.targets.put(rows, inspection.probabilities)

    def views(self, phase: Phase) -> NDArray[np.float32] | None:
        """Three crops of each image."""
        return self.parts.cpu().numpy() if phase.name == LOOK and self.plus.regions else None

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Algorithm 1; then cross entropy of the views of the images, and the early-learning term."""
        if phase.name != LOOK:
            return super().step(batch, phase)
        logits, rows = self.predict(batch.images), batch.rows[:, 0]
        target = moving_target(self.targets.get(rows), logits, self.plus.beta)
        losses = {"cls": classification_loss(logits, batch.label)}
        if self.plus.strength:
            losses["early"] = self.plus.strength * early_learning_term(logits, target)
        observed = Observation(rows=rows, scores=of_label(_normalised(target), batch.label))
        return Step(losses, observed, {"rows": rows, "target": target})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Eq. 5 and 7; in the second stage the targets move along."""
        if "target" in pending:
            self.targets.put(pending["rows"], pending["target"])
        else:
            super().after_step(pending)

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """Regions as the search weighted them; label_score: the label's mean probability of both stages."""
        searched, rows = super().inspect(batch), batch.rows[:, 0]
        probabilities = _normalised(self.targets.get(rows))  # (I, C)
        label_score = (self.searched[rows] + of_label(probabilities, batch.label)) / 2
        return replace(searched, probabilities=probabilities, label_score=label_score, best=self.best[rows].long())


def _normalised(target: Tensor) -> Tensor:
    """Probabilities (I, C) that sum to 1: a target sums to less after few epochs."""
    positive = target + UNSEEN
    return positive / positive.sum(dim=1, keepdim=True)
