"""Early-learning regularisation (ELR): Liu et al., "Early-Learning Regularization Prevents Memorization", 2020."""

from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import Bag, Losses, Phase
from somnet.methods.plain import Plain
from somnet.methods.sample_table import SampleTable
from somnet.nn.backbones import Network

SURE = 1e-4  # probabilities are clamped this far from 0 and 1, as in the authors' code


def early_learning_term(logits: Tensor, target: Tensor) -> Tensor:
    """Mean of log(1 - <t, p>): lowest where the prediction stays with what the network believed early."""
    p = logits.softmax(dim=1).clamp(SURE, 1 - SURE)  # (I, C)
    return (1 - (target * p).sum(dim=1)).clamp(min=SURE).log().mean()


def moving_target(target: Tensor, logits: Tensor, beta: float) -> Tensor:
    """t <- beta t + (1 - beta) p, p normalised after clamping."""
    p = logits.detach().softmax(dim=1).clamp(SURE, 1 - SURE)  # (I, C)
    return beta * target + (1 - beta) * p / p.sum(dim=1, keepdim=True)


class EarlyLearning(Plain):
    """Cross entropy, and a pull towards the moving average of an image's own predictions.

    Deviations from the paper: none in the loss; of the two variants this is ELR, without the second network and the
    weight averaging of ELR+. State: a target an image, N x 16 numbers (see SampleTable), not N x C.
    """

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.targets = SampleTable(len(labels), classes)
        self.moved: tuple[Tensor, Tensor] | None = None  # rows of this step, and their new targets

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Cross entropy and the regulariser."""
        assert bag.images is not None
        logits, rows = self.predict(bag.images), bag.index[:, 0]
        settings = self.config.elr
        target = moving_target(self.targets.get(rows), logits, settings.beta)
        self.moved = rows, target
        return {
            "cls": classification_loss(logits, bag.label),
            "early": settings.strength * early_learning_term(logits, target),
        }

    def after_step(self) -> None:
        """The targets move along, if the step's loss was a number."""
        if self.moved is not None:
            self.targets.put(*map(self.of_all, self.moved))
            self.moved = None
