"""Joint optimisation: Tanaka et al., "Joint Optimization Framework for Learning with Noisy Labels", 2018."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from somnet.config import Config
from somnet.core.losses import weighted_mean
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Inspection, Method, Step, of_label
from somnet.methods.entropy import entropy
from somnet.methods.fresh import FreshStart
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Share, Strength
from somnet.nn.backbones import Network
from somnet.system.transfer import send

GIVEN, SOFT, FRESH = "given", "soft", "fresh"  # phases: the labels that the network learns
TINY = 1e-8  # keeps the logarithm of a class finite that a whole batch excludes


class TanakaSettings(MethodSettings):
    """Soft labels from the network's own predictions, then a fresh network on them."""

    alpha: Strength = 1.2  # of the prior: no class may take all images
    beta: Strength = 0.8  # of the entropy
    window: Share = 0.05  # of the first step's epochs, whose predictions are averaged (10 of 200); at least one epoch
    first_share: Share = 0.6  # of the epochs, to find the soft labels; the rest trains the fresh network
    start: Share = 0.35  # of the first step's epochs, after which labels are updated (70 of 200)


def prior_term(logits: Tensor, prior: Tensor) -> Tensor:
    """Lp = -sum_c prior_c log(batch mean of p_c): lowest where a batch has the classes in the prior's shares."""
    return -(prior * logits.softmax(dim=1).mean(dim=0).clamp(min=TINY).log()).sum()


def running_mean(mean: Tensor, count: Tensor, new: Tensor, window: int) -> Tensor:
    """Mean (I, C) of the last `window` visits: exact for the first ones; then old visits fade, they do not fall out."""
    return mean + (new - mean) / (count + 1).clamp(max=window)[:, None]


class Tanaka(Method):
    """Soft labels from the network's own predictions; then a fresh network is trained on them.

    Step 1: L = CE(s, p) + alpha Lp + beta Le, the soft labels s one-hot at first; from a start epoch on, s is the mean
    of an image's predictions in earlier epochs. Le is the entropy of the predictions, which makes each of them choose.
    Step 2: the weights of the start again, and plain CE on the final s.

    Deviations from the paper: the mean over the window is a running one, as a history would take a table per epoch: it
    is exact when labels are first updated, then older epochs fade. An image's soft label moves when the image is
    visited instead of at the end of the epoch, which is the same for the image. The paper's high learning rate, against
    memorising, is left to the budget that all methods share.
    State: soft labels, N x 16 numbers (see SampleTable), not N x C; one counter per image; the weights of the start.
    """

    weighted = frozenset({"cls"})
    divisible = False  # the prior term is the logarithm of a mean over the batch

    prior: Tensor  # (C,) of the given labels
    seen: Tensor  # (n,) number of predictions for each image in the first step

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(TanakaSettings)
        self.beginning = FreshStart(network)
        self.soft = SampleTable(len(labels), classes)
        self.register_buffer("prior", labels.bincount(minlength=classes) / max(1, len(labels)))
        self.register_table("seen", torch.zeros(len(labels), dtype=torch.int16))

    def plan(self) -> tuple[Phase, ...]:
        """Given labels, soft labels, and the fresh network."""
        train = self.config.train
        first, start = self._first_step()
        lr = {"network": train.lr}
        return (
            Phase(GIVEN, start, lr),
            Phase(SOFT, first - start, lr),
            Phase(FRESH, train.epochs - first, lr, anneal=(0.0, 1.0), fresh=True),
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Step 2 starts from the first weights."""
        if phase.name == FRESH:
            self.beginning.restart(self.network)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy with the labels of the phase; in step 1 both regularisers."""
        logits, rows, settings = self.predict(batch.images), batch.rows[:, 0], self.settings
        given = one_hot(batch.label, self.classes).float()  # (I, C)
        device = logits.device
        soft, count = self.soft.get(rows, device), send(self.seen[rows], device)
        target = given if phase.name == GIVEN else torch.where(count[:, None] > 0, soft, given)
        losses = {"cls": weighted_mean(cross_entropy(logits, target, reduction="none"), batch.bag_weight())}
        if phase.name == FRESH:
            return Step(losses)
        losses["prior"] = settings.alpha * prior_term(logits, self.prior)
        losses["entropy"] = settings.beta * entropy(logits)
        window = self.window()
        before = max(0, self._first_step()[1] - window)  # epochs that are over when the window opens do not count
        mean = running_mean(soft, (count - before).clamp(min=0), logits.detach().softmax(dim=1), window)
        return Step(losses, pending={"rows": rows, **self.soft.entries(mean)})

    def window(self) -> int:
        """Over the predictions of how many epochs soft labels are averaged."""
        return max(1, round(self.settings.window * self._first_step()[0]))

    def _first_step(self) -> tuple[int, int]:
        """Epochs of the first step, and after how many of them labels are updated."""
        first = int(self.settings.first_share * self.config.train.epochs)
        return first, min(first, max(1, round(self.settings.start * first)))

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Remember the predictions."""
        if pending:
            self.soft.put_entries(pending["rows"], pending)
            self.seen[pending["rows"]] += 1

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: what the soft label has left for the given label."""
        inspection = super().inspect(batch)
        rows, device = batch.rows[:, 0], batch.label.device
        left = of_label(self.soft.get(rows, device), batch.label)  # (I,)
        seen = send(self.seen[rows], device) > 0
        return replace(inspection, label_score=torch.where(seen, left, inspection.label_score))
