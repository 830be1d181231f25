"""SOMNet that looks again: the default method.

SOMNet's bags are mixtures of small regions, cut from one coarse map; its classifier is then tested on whole images.
Here SOMNet only searches, and what it finds is looked at again, at full size:

1. Search, `search_share` of the epochs: Algorithm 1, as it is. It tells for each ROI whether the memory keeps it, and
   how far the classifier believes in the label there.
2. Second look, the other epochs: each time an image is due, one of three views of it is drawn: all of it; the region
   in which the label is believed most; the largest region that is nearly as good. So a thing that is small among
   clutter is seen as large as in a test image, and one that fills the image is still seen as a whole.
3. The second look remembers what was believed of each image early, over all views (ELR's term), and begins with what
   the search believed: wrong labels are not learnt by heart, however many the steps. With labels that are right, the
   term says the same as they do.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import Bag, Inspection, Losses, Phase, Sighting
from somnet.methods.base import BagPass
from somnet.methods.elr import early_learning_term, moving_target
from somnet.methods.sample_table import SampleTable
from somnet.methods.somnet import SomNet
from somnet.nn.backbones import Network

LOOK = "look-again"
UNSEEN = 1e-6  # of belief in each class, for an image that was never looked at again


def largest_good_region(boxes: Tensor, believed: Tensor, candidates: Tensor, share: float) -> Tensor:
    """The largest candidate (I,) whose belief (I, P) reaches a share of the best candidate's: crop only as needed."""
    best = (believed * candidates).amax(dim=1, keepdim=True)  # (I, 1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)  # (I, P)
    return torch.where(candidates & (believed >= share * best), area, -1.0).argmax(dim=1)


class SomNetPlus(SomNet):
    """Algorithm 1 as a search for regions, then a second look at them.

    State: a target an image, N x 16 numbers (see SampleTable); three views an image; and the scout, the network as it
    was at the end of the search, to which the memory belongs.
    """

    parts: Tensor  # (n, V, 4) whole image, largest good region, best region; in shares
    best: Tensor  # (n,) number of the best region
    searched: Tensor  # (n,) belief in the label where the search found it best

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.plus = config.somnet_plus
        self.scout = network.twin()
        self.targets = SampleTable(len(labels), classes)
        self.moved: tuple[Tensor, Tensor] | None = None  # rows of this step, and their new targets
        self.register_buffer("parts", torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(len(labels), 3, 1))
        self.register_buffer("best", torch.zeros(len(labels), dtype=torch.int16))
        self.register_buffer("searched", torch.ones(len(labels)))

    def plan(self) -> tuple[Phase, ...]:
        """Algorithm 1 in short, then the second look; a budget too small for both is spent on the latter."""
        train = self.config.train
        search = min(round(self.plus.search_share * train.epochs), train.epochs - 1)
        algorithm_1 = self._algorithm_1(search) if search > 1 else ()
        rest = train.epochs - search if search > 1 else train.epochs
        return (*algorithm_1, Phase(LOOK, rest, {"network": train.lr * self.plus.lr}, anneal=(0.0, 1.0), fresh=True))

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Before the second look the search is evaluated."""
        super().prepare(phase, bag_pass, generator)
        if phase.name == LOOK:
            self.scout.load_state_dict(self.network.twin().state_dict())
            for bag in bag_pass(1):
                self._choose_views(bag)

    @property
    def memory_network(self) -> Network:
        """The scout: the second look goes on without the memory."""
        return self.scout

    def _choose_views(self, bag: Bag) -> None:
        rows, boxes = bag.index[:, 0], bag.boxes[:, 0]  # (I,), (I, P, 4)
        seen = self._inspect(bag)
        candidates = seen.weights > 0  # (I, P)
        candidates[:, 0] = True
        good = largest_good_region(boxes, seen.details["believed"], candidates, self.plus.near_best)
        each = torch.arange(len(rows), device=rows.device)
        self.parts[rows] = torch.stack([boxes[:, 0], boxes[each, good], boxes[each, seen.best]], dim=1)
        self.best[rows] = seen.best.to(self.best.dtype)
        self.searched[rows] = seen.label_score
        if self.plus.handover:
            self.targets.put(rows, seen.probabilities)

    def views(self, phase: Phase) -> NDArray[np.float32] | None:
        """Three parts of each image."""
        return self.parts.cpu().numpy() if phase.name == LOOK and self.plus.regions else None

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Algorithm 1; then cross entropy of what is seen of the images, and the early-learning term."""
        if phase.name != LOOK:
            return super().step(bag, phase)
        assert bag.images is not None
        logits, rows = self.predict(bag.images), bag.index[:, 0]
        target = moving_target(self.targets.get(rows), logits, self.plus.beta)
        self.moved = rows, target
        self.sighting = Sighting(rows=rows, scores=_of_label(_normalised(target.detach()), bag.label))
        losses = {"cls": classification_loss(logits, bag.label)}
        if self.plus.strength:
            losses["early"] = self.plus.strength * early_learning_term(logits, target)
        return losses

    def after_step(self) -> None:
        """Eq. 5 and 7; in the second look the targets move along."""
        super().after_step()
        if self.moved is not None:
            self.targets.put(*map(self.of_all, self.moved))
            self.moved = None

    @torch.no_grad()
    def inspect(self, bag: Bag) -> Inspection:
        """Regions as the search weighted them; label_score: the mean of what both looks believe of the label."""
        seen, rows = self._inspect(bag), bag.index[:, 0]
        believed = _normalised(self.targets.get(rows))  # (I, C)
        of_label = _of_label(believed, bag.label)
        best = self.best[rows].long()
        return replace(seen, probabilities=believed, label_score=(self.searched[rows] + of_label) / 2, best=best)


def _normalised(target: Tensor) -> Tensor:
    """Beliefs (I, C) that sum to 1: a target sums to less after few epochs."""
    believed = target + UNSEEN
    return believed / believed.sum(dim=1, keepdim=True)


def _of_label(believed: Tensor, label: Tensor) -> Tensor:
    return believed.gather(1, label[:, None]).squeeze(1)  # (I,)
