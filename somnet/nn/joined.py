"""Several networks that are trained apart and tested together, as one network."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from somnet.nn.backbones import Network
from somnet.nn.roi import pool_image


class JoinedNetwork(Network):
    """Networks side by side on one trunk; the logits of the whole are exactly the sum of theirs.

    The tail lays the maps of all tails one behind the other, along the channels; the classifier is [W1 W2 ...] with the
    bias b1 + b2 + ... . So the whole is a linear classifier on the mean of a map, like any other network: heat maps and
    exports need to know nothing of it. Each parameter is held once, by the part that it belongs to.
    """

    def __init__(self, network: Network, parts: int = 2) -> None:
        """Part 0 is the network itself, and the others its copies with a classifier of their own, drawn at random."""
        nn.Module.__init__(self)  # nothing is built here: all that a Network holds is taken over
        self.licence, self.frozen_trunk, self.precision = network.licence, network.frozen_trunk, network.precision
        self.imgsz, self.input_shape, self.trunk = network.imgsz, network.input_shape, network.trunk
        self.register_buffer("mean", network.mean)
        self.register_buffer("std", network.std)
        tails = [network.tail, *(copy.deepcopy(network.tail) for _ in range(parts - 1))]
        linears = [network.classifier, *(copy.deepcopy(network.classifier) for _ in range(parts - 1))]
        for later in linears[1:]:
            later.reset_parameters()  # else all would see the same
            nn.init.zeros_(later.bias)
        self.tail: _Tails = _Tails(tails)
        self.classifier = _Classifiers(linears)  # type: ignore[assignment]  # does what is asked of a linear layer
        self.width = parts * network.width

    def part(self, number: int, inputs: Tensor) -> Tensor:
        """Logits (I, C) of one of the networks alone."""
        return self.modules_of(number)[1](self.features_of(number, inputs))  # type: ignore[no-any-return]

    def features_of(self, number: int, inputs: Tensor) -> Tensor:
        """Features (I, F) of one of the networks alone."""
        return pool_image(self.maps_by(self.modules_of(number)[0], inputs))

    def modules_of(self, number: int) -> tuple[nn.Module, nn.Module]:
        """Tail and classifier of one of the networks."""
        classifiers = cast("_Classifiers", self.classifier)
        return self.tail.parts[number], classifiers.parts[number]


class _Tails(nn.Module):
    """The maps of several tails, one behind the other along the channels."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([part(inputs) for part in self.parts], dim=1)


class _Classifiers(nn.Module):
    """One linear layer, made of several that each see their own stretch of the features."""

    def __init__(self, parts: list[nn.Linear]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.in_features = sum(part.in_features for part in parts)
        self.out_features = parts[0].out_features

    @property
    def weight(self) -> Tensor:
        """(C, F of all parts)"""
        return torch.cat([cast("Tensor", part.weight) for part in self.parts], dim=1)

    @property
    def bias(self) -> Tensor:
        """(C,)"""
        return torch.stack([cast("Tensor", part.bias) for part in self.parts]).sum(dim=0)

    def forward(self, features: Tensor) -> Tensor:
        return linear(features, self.weight, self.bias)
