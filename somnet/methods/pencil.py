"""PENCIL: Yi and Wu, "Probabilistic End-to-end Noise Correction for Learning with Noisy Labels", 2019."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Inspection, Method, Step, of_label
from somnet.methods.entropy import divergence, entropy
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Rate, Share, Strength
from somnet.nn.backbones import Network

START = 10.0  # the paper's K: label logits start with this at the given label and with 0 elsewhere
INIT, CORRECT, FINAL = "init", "correct", "final"  # phases
CHUNK = 4096  # rows that are written to the table at once


class PencilSettings(MethodSettings):
    """Label distributions that are trained along with the network."""

    alpha: Strength = 0.4  # of the given label
    beta: Strength = 0.1  # of the entropy
    label_lr: Rate = 3.0  # step of an image's label logits a visit; the paper's lambda / (classes * batch size)
    lr: Rate = 0.1  # of the network after the cross entropy, relative to the one before; the paper's 1 / C
    init_share: Share = 0.05  # of the epochs by cross entropy; the paper's 70 of 320 would memorise here
    last_share: Share = 0.4  # of the epochs with frozen label distributions, 120 of 320


def label_gradient(p: Tensor, d: Tensor, label: Tensor, alpha: float) -> Tensor:
    """Gradient (I, C) of KL(p || d) - alpha log d_y with respect to the logits of d: (d - p) + alpha (d - y)."""
    return d - p + alpha * (d - one_hot(label, d.shape[1]))


class Pencil(Method):
    """Every image has a label distribution d of its own, trained along with the network, towards its prediction.

    First cross entropy on the given labels; then the network minimises KL(p || d) + beta H(p), while the logits of d
    go down the gradient of KL(p || d) - alpha log d_y, which is known in closed form; then KL(p || d) with d frozen.

    Deviations from the paper, which divides KL and H by C, takes the mean over a batch, and leaves -log d_y whole:
    - Nothing is divided by C, so that the network's learning rate means the same in all stages.
    - `label_lr` is the step of one image's logits along (d - p) + alpha (d - y). The paper's lambda is that times C
      and the batch size: 600 for CIFAR-10 is 600 / (10 * 128) = 0.47 a visit for 130 visits, and 3000 for Clothing1M
      is 3000 / (14 * 64) = 3.3 for 5. Few epochs need large steps: the given label starts 10 ahead, a sure prediction
      closes that by two steps a visit.
    - alpha is relative to the divergence. d settles at (p + alpha y) / (1 + alpha); with a whole alpha = 0.4 beside
      KL / C it would be (p + 4 y) / 5 at 10 classes, and no label could ever change.

    State: label logits, N x 16 numbers (see SampleTable), not N x C.
    """

    weighted = frozenset({"cls", "divergence"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(PencilSettings)
        self.label_logits = SampleTable(len(labels), classes)
        for rows in torch.split(torch.arange(len(labels)), CHUNK):
            self.label_logits.put(rows, START * one_hot(labels[rows], classes).float())

    def plan(self) -> tuple[Phase, ...]:
        """Given labels, labels that move, labels that are frozen."""
        train, settings = self.config.train, self.settings
        init = max(1, round(settings.init_share * train.epochs))
        last = min(int(settings.last_share * train.epochs), train.epochs - init)
        lr = {"network": train.lr}
        later = {"network": train.lr * settings.lr}
        return (
            Phase(INIT, init, lr),
            Phase(CORRECT, train.epochs - init - last, later),
            Phase(FINAL, last, later, anneal=(0.0, 1.0)),
        )

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The loss of each stage."""
        logits = self.predict(batch.images)  # (I, C)
        if phase.name == INIT:
            return Step({"cls": classification_loss(logits, batch.label, batch.bag_weight())})
        rows, settings = batch.rows[:, 0], self.settings
        label_logits = self.label_logits.get(rows, logits.device)  # (I, C)
        losses = {"divergence": divergence(logits, label_logits, batch.bag_weight())}
        if phase.name == FINAL:
            return Step(losses)
        losses["entropy"] = settings.beta * entropy(logits)
        p, d = logits.detach().softmax(dim=1), label_logits.softmax(dim=1)
        moved = label_logits - settings.label_lr * label_gradient(p, d, batch.label, settings.alpha)
        return Step(losses, pending={"rows": rows, **self.label_logits.entries(moved)})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The label logits move after the network has."""
        if pending:
            self.label_logits.put_entries(pending["rows"], pending)

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: what the label distribution has left for the given label."""
        d = self.label_logits.get(batch.rows[:, 0], batch.label.device).softmax(dim=1)  # (I, C)
        return replace(super().inspect(batch), label_score=of_label(d, batch.label))
