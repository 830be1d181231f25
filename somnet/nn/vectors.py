"""In place of a network, where another model has made a vector of each image: nothing but a linear classifier."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from somnet.config import ModelConfig
from somnet.errors import ConfigError, RunError
from somnet.nn.backbones import Network

NAME = re.compile(r"vectors-([1-9]\d{0,5})")
MOST = 100_000  # numbers of a vector


def vectors_name(width: int) -> str:
    """The name of a model that takes vectors of so many numbers."""
    return f"vectors-{width}"


def vectors_width(config: ModelConfig) -> int:
    """How many numbers the vectors of such a model have."""
    found = NAME.fullmatch(config.name)
    if not found or int(found[1]) > MOST:
        raise ConfigError(f"model.name={config.name} does not go with model.embeddings: leave out one of them")
    return int(found[1])


def refuse_network(told: Sequence[str]) -> None:
    """Refuse what somebody told about a network beside vectors, which take its place: it would be ignored."""
    if told:
        raise ConfigError(
            f"vectors of the images take the place of a network, so {' and '.join(told)} would be ignored: leave that "
            "out, or --embeddings"
        )


def told_of_a_network(config: ModelConfig) -> list[str]:
    """What a config tells about a network; the name of a run on vectors is none."""
    unset = ModelConfig(name=config.name) if NAME.fullmatch(config.name) else ModelConfig()
    names = ("name", "weights", "freeze")
    return [f"model.{name}={told}" for name in names if (told := getattr(config, name)) != getattr(unset, name)]


def make_network(config: ModelConfig, classes: int) -> Network:
    """The network of a config; with embeddings, what takes its place."""
    return GivenVectors(config, classes) if config.embeddings else Network(config, classes)


class GivenVectors(Network):
    """A linear classifier for given vectors, which are its feature maps, of one cell each."""

    reads_images = False

    def __init__(self, config: ModelConfig, classes: int) -> None:
        nn.Module.__init__(self)
        self.file = config.embeddings
        self.width = vectors_width(config)
        self.licence = f"that of the model behind {self.file}"
        self.frozen_trunk, self.imgsz, self.precision = True, config.imgsz, "fp32"
        self.input_shape = (self.width, 1, 1)
        self.trunk, self.tail = nn.Identity(), nn.Identity()
        self.register_buffer("mean", torch.zeros(3, 1, 1))
        self.register_buffer("std", torch.ones(3, 1, 1))
        self.classifier = nn.Linear(self.width, classes)
        nn.init.zeros_(self.classifier.bias)

    def prepare(self, pixels: Tensor) -> Tensor:
        """Images cannot be made vectors here."""
        raise RunError(
            f"this run has no network for images, only a linear classifier for the vectors of {self.file}: train with "
            "--model instead of --embeddings"
        )
