"""Early-learning regularisation (ELR): Liu et al., "Early-Learning Regularization Prevents Memorization", 2020."""

from collections.abc import Mapping

from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Step
from somnet.methods.plain import Plain
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import MethodSettings, Momentum, Strength
from somnet.nn.backbones import Network

SURE = 1e-4  # probabilities are clamped this far from 0 and 1, as in the authors' code


class ElrSettings(MethodSettings):
    """Early-learning regularisation."""

    beta: Momentum = 0.7  # of the moving average of predictions
    strength: Strength = 3.0  # the paper's lambda


def early_learning(p: Tensor, target: Tensor) -> Tensor:
    """log(1 - <t, p>) of each prediction (I, C): lowest where it stays with what the network predicted early."""
    return (1 - (target * p.clamp(SURE, 1 - SURE)).sum(dim=1)).clamp(min=SURE).log()  # (I,)


def moving_target(target: Tensor, p: Tensor, beta: float) -> Tensor:
    """t <- beta t + (1 - beta) p, p normalised after clamping."""
    p = p.detach().clamp(SURE, 1 - SURE)  # (I, C)
    return beta * target + (1 - beta) * p / p.sum(dim=1, keepdim=True)


def early_learning_losses(
    logits: Tensor, label: Tensor, target: Tensor, weight: Tensor | None = None, *, strength: float, beta: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Cross entropy, weighted (I,), and the regulariser for logits (I, C); where the targets (I, C) move."""
    p = logits.softmax(dim=1)  # (I, C)
    moved = moving_target(target, p, beta)
    early = strength * early_learning(p, moved).mean()
    return {"cls": classification_loss(logits, label, weight), "early": early}, moved


class EarlyLearning(Plain):
    """Cross entropy, and a pull towards the moving average of an image's own predictions.

    Deviations from the paper: none in the loss; of the two variants this is ELR, without the second network and the
    weight averaging of ELR+. State: one target per image, N x 16 numbers (see SampleTable), not N x C.
    """

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(ElrSettings)
        self.targets = SampleTable(len(labels), classes)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy and the regulariser."""
        rows, settings = batch.rows[:, 0], self.settings
        known, logits = self.targets.get(rows, batch.label.device), self.predict(batch.images)
        losses, target = early_learning_losses(
            logits, batch.label, known, batch.bag_weight(), strength=settings.strength, beta=settings.beta
        )
        return Step(losses, pending={"rows": rows, **self.targets.entries(target)})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The targets move along."""
        self.targets.put_entries(pending["rows"], pending)
