"""For methods that use the features of a class as a whole."""

from collections.abc import Iterator

import torch
from torch import Tensor

from somnet.methods.base import BagPass
from somnet.nn.backbones import Network

FEATURES = "features"  # the phase of a short training that makes the features tell classes apart


def training_features(network: Network, bag_pass: BagPass) -> Tensor:
    """Features (n, F) of all training images, in main memory and half precision: 2.6 GB for a million of width 1280."""
    return torch.cat([network.image_features(batch.images).half().cpu() for batch in bag_pass(1)])


def members(labels: Tensor) -> Iterator[Tensor]:
    """Numbers (R,) of the images of each class that has any, in order."""
    order = labels.argsort(stable=True)
    yield from (rows for rows in torch.split(order, labels.bincount().tolist()) if len(rows))
