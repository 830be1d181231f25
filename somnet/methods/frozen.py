"""For methods that train no network: they fit a classifier to the features that the network starts with."""

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.data.embeddings import vector_width
from somnet.errors import ConfigError
from somnet.methods.base import BagPass, Inspection, Method, Observation, Step, find_method
from somnet.methods.features import training_features
from somnet.methods.registry import METHODS
from somnet.nn.backbones import Network
from somnet.nn.vectors import refuse_network, told_of_a_network, vectors_name
from somnet.system.transfer import send

FIT = "fit"  # the phase
IDLE = "idle"  # the group of a parameter that stays as it is
TINY = 1e-8  # keeps a logarithm finite


def with_given_vectors(config: Config) -> Config:
    """The config of a training on vectors that another model has made, as wide as those of the file.

    They are all that is known of an image: there are no regions and no views of it, and no network to train.
    """
    if not config.model.embeddings:
        return config
    if not issubclass(find_method(config.method), FrozenFeatures):
        able = [name for name in METHODS if issubclass(find_method(name), FrozenFeatures)]
        raise ConfigError(
            f"'{config.method}' trains a network, and vectors of the images leave none to train: choose --method "
            f"{' or '.join(able)}, or leave out --embeddings"
        )
    refuse_network(told_of_a_network(config.model))
    file = Path(config.model.embeddings).expanduser().absolute()
    model = {"name": vectors_name(vector_width(file)), "embeddings": str(file), "pretrained": False, "weights": ""}
    views = {"views.mirror": False, "views.crops": 0, "views.proposals": 0, "proposals.max_boxes": 0}
    return config.with_settings({**{f"model.{name}": value for name, value in model.items()}, **views})


class FrozenFeatures(Method):
    """Fits `network.classifier` to features of whole images, before the only phase.

    The loop takes steps, and a step needs a gradient. So there is one epoch of steps that see no images, at a learning
    rate of 0, for a factor of the loss that is 1 and stays 1; the loss says how well the label of an image is predicted
    without it. That costs no pass of the budget.
    """

    uses_rate = False

    trust: Tensor  # (n,) probability of each image's label, by others than the image itself

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.idle = nn.Parameter(torch.ones(()))
        self.register_table("trust", torch.ones(len(labels)))

    @abstractmethod
    def fit(self, features: Tensor) -> Tensor:
        """Fit the classifier to the features (n, F) of all training images, in main memory; the trust (n,) in each."""

    def plan(self) -> tuple[Phase, ...]:
        """One phase that trains nothing."""
        return (Phase(FIT, 1, {IDLE: 0.0}, needs_images=False, passes=0.0),)

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """All there is to do."""
        self.trust.copy_(self.fit(training_features(self.network, bag_pass)))

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Mean of -log(trust)."""
        trust = send(self.trust[batch.rows[:, 0]], self.idle.device)  # (I,)
        loss = self.idle * -trust.clamp(min=TINY).log().mean()
        return Step({"cls": loss}, Observation(rows=batch.rows[:, 0], scores=trust))

    def param_groups(self) -> list[dict[str, Any]]:
        """The network, which no phase names, and the parameter that does nothing."""
        return [*super().param_groups(), {"name": IDLE, "params": [self.idle]}]

    def held_bytes(self) -> int:
        """Features as half floats."""
        return 2 * self.network.width

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the trust in the label."""
        return replace(super().inspect(batch), label_score=send(self.trust[batch.rows[:, 0]], batch.label.device))
