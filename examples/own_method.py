"""A method of your own, complete in one file: soft bootstrapping (Reed et al., 2015).

In the folder that holds this file:

    somnet train DATA --method own_method:Bootstrapping --set own_method.trust=0.8

A package brings a method by an entry point instead, and then it has a plain name:

    [project.entry-points."somnet.methods"]
    bootstrapping = "your_package.own_method:Bootstrapping"
"""

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Method, Observation, Step, of_label
from somnet.methods.settings import MethodSettings, Share
from somnet.nn.backbones import Network

GIVEN, SOFTENED = "given", "softened"  # phases: the labels that are learnt


class BootstrappingSettings(MethodSettings):
    """They are checked, hashed and shown like all others."""

    trust: Share = 0.8  # in the given label; the rest is what the network itself predicts
    start: Share = 0.25  # of the epochs, after which its predictions count


class Bootstrapping(Method):
    """Cross entropy with the target trust * y + (1 - trust) * p: a label that the network doubts pulls less."""

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(BootstrappingSettings)

    def plan(self) -> tuple[Phase, ...]:
        """Given labels at first, then softened ones, along one falling cosine."""
        train = self.config.train
        first = round(self.settings.start * train.epochs)
        turn = first / train.epochs
        given = Phase(GIVEN, first, {"network": train.lr}, anneal=(0.0, turn))
        return given, Phase(SOFTENED, train.epochs - first, {"network": train.lr}, anneal=(turn, 1.0))

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """One loss; what is observed of the images feeds the curves of the report."""
        logits = self.predict(batch.images)  # (I, C)
        p = logits.detach().softmax(dim=1)
        trust = 1.0 if phase.name == GIVEN else self.settings.trust
        target = trust * one_hot(batch.label, self.classes) + (1 - trust) * p
        observed = Observation(rows=batch.rows[:, 0], scores=of_label(p, batch.label))
        return Step({"cls": cross_entropy(logits, target)}, observed)
