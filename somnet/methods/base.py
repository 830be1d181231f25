"""The contract of a method. The loop knows this and nothing more; the contract test runs over the registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.types import Bag, Inspection, Losses, Phase, Sighting
from somnet.nn.backbones import Network

BagPass = Callable[[int], Iterator[Bag]]
"""bag_pass(images_per_bag) goes once over the training images, unaugmented; 1: in order, an image a bag."""


class Method(nn.Module, ABC):
    """One way to train a network on noisy images. A new one is a file with a subclass and a line in registry.py."""

    divisible = True  # whether ranks may share a batch: its losses are means or sums over bags that do not meet
    summed: frozenset[str] = frozenset()  # losses that are sums over the batch; the others are means

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__()
        self.config = config
        self.network = network
        self.labels = labels  # (n,) given labels of the training images
        self.classes = classes
        self.sighting: Sighting | None = None  # a step may leave here what it saw; the loop takes it
        self.of_all: Callable[[Tensor], Tensor] = _as_they_are
        """From rows (n, ...) of this process's share of the step's batch to those of the whole batch."""

    @abstractmethod
    def plan(self) -> tuple[Phase, ...]:
        """The phases of training, as data."""

    @abstractmethod
    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Named losses of a batch; the loop sums them."""

    def count(self, bag: Bag) -> int:
        """Over how many the means among the losses are taken."""
        return len(bag.label)

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Called before a phase starts or is resumed; a resume then restores all that is in the state dict."""

    def rows(self, phase: Phase) -> NDArray[np.int64] | None:
        """The training images that a prepared phase draws from, by number; None: all of them."""
        return None

    def views(self, phase: Phase) -> NDArray[np.float32] | None:
        """The parts of each training image that a prepared phase looks at, V of them (n, V, 4), in shares.

        Whenever an image is due, one of its parts is drawn and seen at full size. None: always the whole image.
        """
        return None

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """Called once when a phase has ended, in evaluation mode and without gradient."""

    def after_step(self) -> None:
        """Called after the optimiser's step: projections, moving averages. A step that is skipped has none."""

    def metrics(self) -> dict[str, float]:
        """Figures about the method's own state, logged after each epoch."""
        return {}

    def param_groups(self) -> list[dict[str, Any]]:
        """Named parameter groups; a phase sets the learning rate of each by its name."""
        return [{"name": "network", "params": [*self.network.tail.parameters(), *self.network.classifier.parameters()]}]

    def inspect(self, bag: Bag) -> Inspection:
        """What the method thinks of single images (G = 1). By default: the classifier's probability of the label."""
        assert bag.images is not None
        probabilities = self.predict(bag.images).softmax(dim=1)  # (I, C)
        weights = torch.zeros(bag.mask.shape, device=bag.mask.device)  # (I, 1, P)
        weights[..., 0] = 1.0
        label_score = probabilities.gather(1, bag.label[:, None]).squeeze(1)
        return Inspection(
            probabilities=probabilities,
            label_score=label_score,
            background_score=torch.ones_like(label_score),
            weights=weights.flatten(1),
            best=torch.zeros_like(bag.label),
        )

    @final
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits (I, C) of whole images. The same for every method: at test time only the CNN is used."""
        return self.network(inputs)  # type: ignore[no-any-return]


def _as_they_are(rows: Tensor) -> Tensor:
    return rows
