"""The contract of a method. The loop knows this and nothing more; the contract test runs over the registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.types import BagBatch, Losses, Phase
from somnet.errors import ConfigError
from somnet.methods.registry import import_method_module, method_place
from somnet.nn.backbones import Network
from somnet.nn.tables import WithTables

BagPass = Callable[[int], Iterator[BagBatch]]
"""bag_pass(images_per_bag) goes once over the training images, unaugmented; 1: in order, one image per bag.

A method with `full_size` gets the image and its first proposals, each at full size: images (I * P, ...) for P boxes.
"""

CLASSIFIER = ".classifier"  # ends the name of a classifier's parameter group
UNCHOSEN = -1.0  # of a weight decay


@dataclass(frozen=True)
class Observation:
    """What a step saw beside its losses, for the curves; it costs a step next to nothing."""

    rows: Tensor | None = None  # (I,) training images, by number
    scores: Tensor | None = None  # (I,) what the method thinks of them now, 0 or more
    slots: Tensor | None = None  # (B, 2) the slots nearest to each bag feature, the winner first
    cosines: Tensor | None = None  # (B, 2) of bag feature and key
    memory_side: int = 0  # of the grid that the slots lie on

    def tensors(self) -> dict[str, Tensor]:
        """All that was seen, by name."""
        named = {"rows": self.rows, "scores": self.scores, "slots": self.slots, "cosines": self.cosines}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Observation":
        """The same, but for these."""
        return Observation(**{**self.tensors(), **tensors}, memory_side=self.memory_side)


@dataclass(frozen=True)
class Step:
    """All that came of a step.

    `pending` is what changes beside the parameters if the step is taken: rows (n, ...) of this process's share of the
    batch, by name. The loop brings together those of all processes, in main memory, and hands them to `after_step`.
    """

    losses: Losses
    observed: Observation = Observation()
    pending: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspection:
    """What a method thinks of I images and their P boxes after training."""

    probabilities: Tensor  # (I, C) of the network for the image alone, as `predict` has them
    label_score: Tensor  # (I,) 0 to 1, low is bad
    background_score: Tensor  # (I,) 0 to 1, low is bad
    weights: Tensor  # (I, P) sum to 1 over the real boxes of an image
    best: Tensor  # (I,) the box that shows the label best
    details: Mapping[str, Tensor] = field(default_factory=dict)  # (I, P) slot, d, r, a, ... where the method has them


class Method(WithTables, ABC):
    """One way to train a network on noisy images. A new one is a file with a subclass, and a name: see registry.py."""

    full_size = False  # whether passes and inspections show an image's first regions too, each at full size
    divisible = True  # whether ranks may share a batch: its losses are means or sums over bags that do not meet
    judges_labels = False  # whether it judges the labels before it trains, as every run does afterwards
    uses_rate = True  # whether the result depends on train.lr; False: a benchmark searches no learning rate for it
    weighted: frozenset[str] = frozenset()  # losses in which an image counts by its weight; none: weights are refused
    summed: frozenset[str] = frozenset()  # losses that are sums over the batch; the others are means

    classifier_decay: Tensor  # () weight decay of the classifier, once it is chosen

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__()
        self.config = config
        self.network = network
        self.labels = labels  # (n,) given labels of the training images
        self.classes = classes
        self.register_table("classifier_decay", torch.tensor(_given_decay(config)))

    @abstractmethod
    def plan(self) -> tuple[Phase, ...]:
        """The phases of training, as data."""

    @abstractmethod
    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Named losses of a batch, which the loop sums, and what else came of it. Nothing of `self` changes here."""

    def confirm(self, verified: Tensor) -> None:
        """Called before training with which labels (n,) a person has confirmed. By default nothing follows from it."""

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Called after the optimiser's step with what was pending: projections, moving averages, new targets.

        A step that is skipped, as its loss or gradient is NaN, has none.
        """

    def count(self, batch: BagBatch) -> int:
        """Over how many the means among the losses are taken, if not over bags, whose number all ranks know."""
        return len(batch.label)

    def counts_bags(self) -> bool:
        """Whether the ranks need not tell each other the count of a batch."""
        return type(self).count is Method.count

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Called before a phase starts or is resumed; a resume then restores all that is in the state dict."""

    def rows(self, phase: Phase) -> NDArray[np.int64] | None:
        """The training images that a prepared phase draws from, by number; None: all of them."""
        return None

    def view_shares(self, phase: Phase) -> NDArray[np.float32] | None:
        """How often each view (n, V) of an image is drawn in a prepared phase, above 0; None: all alike.

        V as in the config: the image, its proposals, the mirror image, random crops.
        """
        return None

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """Called once when a phase has ended, in evaluation mode and without gradient."""

    def metrics(self) -> dict[str, float]:
        """Figures about the method's own state, logged after each epoch."""
        return {}

    def param_groups(self) -> list[dict[str, Any]]:
        """Named parameter groups; a phase sets the learning rate of each by its name, less CLASSIFIER."""
        return self.network_groups("network", self.network.tail, self.network.classifier)

    def held_bytes(self) -> int:
        """Bytes of main memory per image, where features or predictions of all images are held at once."""
        return 0

    def first_features(self, inputs: Tensor) -> Tensor:
        """Features (I, F) of whole images that a classifier sees, by which its weight decay is chosen."""
        return self.network.image_features(inputs)

    def network_groups(self, name: str, tail: nn.Module, classifier: nn.Module) -> list[dict[str, Any]]:
        """The groups of a network: a classifier's weights, first to memorise wrong labels, get a decay of their own."""
        weight = [parameter for parameter in classifier.parameters() if parameter.dim() > 1]
        others = [*tail.parameters(), *(parameter for parameter in classifier.parameters() if parameter.dim() == 1)]
        return [{"name": name, "params": others}, {"name": f"{name}{CLASSIFIER}", "params": weight}]

    def inspect(self, batch: BagBatch) -> Inspection:
        """What the method thinks of single images (G = 1). By default: the classifier's probability of the label."""
        probabilities = self.predict(batch.images).softmax(dim=1)  # (I, C)
        weights = torch.zeros(batch.mask.shape, device=batch.mask.device)  # (I, 1, P)
        weights[..., 0] = 1.0
        label_score = of_label(probabilities, batch.label)
        return Inspection(
            probabilities=probabilities,
            label_score=label_score,
            background_score=torch.ones_like(label_score),
            weights=weights.flatten(1),
            best=torch.zeros_like(batch.label),
        )

    @final
    def predict(self, inputs: Tensor) -> Tensor:
        """Logits (I, C) of whole images. The same for every method: at test time only the CNN is used."""
        return self.network(inputs)  # type: ignore[no-any-return]


def find_method(name: str) -> type[Method]:
    """The class of a method, by its name or as `package.module:Class`."""
    module, _, attribute = method_place(name).partition(":")
    kind = getattr(import_method_module(module), attribute, None)
    if not isinstance(kind, type) or not issubclass(kind, Method):
        raise ConfigError(f"{module} has no method '{attribute}': name a subclass of somnet.methods.base.Method")
    return kind


def _given_decay(config: Config) -> float:
    """The classifier's weight decay, if it need not be chosen: a network without weights has no features to go by."""
    if config.train.classifier_decay is not None:
        return config.train.classifier_decay
    return UNCHOSEN if config.model.pretrained else config.train.weight_decay


def of_label(rows: Tensor, label: Tensor) -> Tensor:
    """The entry (I,) of each row (I, C) that belongs to its label (I,)."""
    return rows.gather(1, label[:, None]).squeeze(1)
