"""Joint optimisation: Tanaka et al., "Joint Optimization Framework for Learning with Noisy Labels", 2018."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from somnet.config import Config
from somnet.core.types import Bag, Inspection, Losses, Phase
from somnet.methods.base import BagPass, Method
from somnet.methods.entropy import entropy
from somnet.methods.fresh import FreshStart
from somnet.methods.sample_table import SampleTable
from somnet.nn.backbones import Network

TINY = 1e-8  # keeps the logarithm of a class finite that a whole batch excludes


def prior_term(logits: Tensor, prior: Tensor) -> Tensor:
    """Lp = -sum_c prior_c log(batch mean of p_c): lowest where a batch has the classes in the prior's shares."""
    return -(prior * logits.softmax(dim=1).mean(dim=0).clamp(min=TINY).log()).sum()


def running_mean(mean: Tensor, seen: Tensor, new: Tensor, window: int) -> Tensor:
    """Mean (I, C) of the last `window` visits: exact for the first ones; then old visits fade, they do not fall out."""
    return mean + (new - mean) / (seen + 1).clamp(max=window)[:, None]


class Tanaka(Method):
    """Soft labels from the network's own predictions; then a fresh network is trained on them.

    Step 1: L = CE(s, p) + alpha Lp + beta Le, the soft labels s one-hot at first; from a start epoch on, s is the mean
    of an image's predictions in earlier epochs. Le is the entropy of the predictions, which makes each of them choose.
    Step 2: the weights of the start again, and plain CE on the final s.

    Deviations from the paper: the mean over 10 epochs is a running one, as a history would take ten tables; an image's
    soft label moves when the image is visited instead of at the end of the epoch, which is the same for the image;
    the paper's high learning rate, against memorising, is left to the budget that all methods share.
    State: soft labels, N x 16 numbers (see SampleTable), not N x C; a counter an image; the weights of the start.
    """

    divisible = False  # the prior term is the logarithm of a mean over the batch

    prior: Tensor  # (C,) of the given labels
    seen: Tensor  # (n,) predictions that an image's soft label is the mean of

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.beginning = FreshStart(network)
        self.soft = SampleTable(len(labels), classes)
        self.register_buffer("prior", labels.bincount(minlength=classes) / max(1, len(labels)))
        self.register_buffer("seen", torch.zeros(len(labels), dtype=torch.int16))
        self.visited: tuple[Tensor, Tensor] | None = None  # rows of this step, and their new means

    def plan(self) -> tuple[Phase, ...]:
        """Given labels, soft labels, and the fresh network."""
        train, settings = self.config.train, self.config.tanaka
        first = int(settings.first_share * train.epochs)
        start = min(first, max(1, round(settings.start * first)))
        lr = {"network": train.lr}
        return (
            Phase("given", start, lr),
            Phase("soft", first - start, lr),
            Phase("fresh", train.epochs - first, lr, anneal=(0.0, 1.0), fresh=True),
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Step 2 starts anew."""
        if phase.name == "fresh":
            self.beginning.restart(self.network)

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Cross entropy with the labels of the phase; in step 1 both regularisers."""
        assert bag.images is not None
        self.visited = None  # what a step that was skipped has left
        logits, rows, settings = self.predict(bag.images), bag.index[:, 0], self.config.tanaka
        given = one_hot(bag.label, self.classes).float()  # (I, C)
        soft, seen = self.soft.get(rows), self.seen[rows]
        target = given if phase.name == "given" else torch.where(seen[:, None] > 0, soft, given)
        losses = {"cls": cross_entropy(logits, target)}
        if phase.name != "fresh":
            losses["prior"] = settings.alpha * prior_term(logits, self.prior)
            losses["entropy"] = settings.beta * entropy(logits)
            self.visited = rows, running_mean(soft, seen, logits.detach().softmax(dim=1), settings.window)
        return losses

    def after_step(self) -> None:
        """Remember the predictions of a step whose loss was a number."""
        if self.visited is not None:
            rows, mean = self.visited
            self.soft.put(rows, mean)
            self.seen[rows] += 1
            self.visited = None

    def inspect(self, bag: Bag) -> Inspection:
        """label_score: what the soft label has left for the given label."""
        seen = super().inspect(bag)
        rows = bag.index[:, 0]
        of_label = self.soft.get(rows).gather(1, bag.label[:, None]).squeeze(1)
        return replace(seen, label_score=torch.where(self.seen[rows] > 0, of_label, seen.label_score))
