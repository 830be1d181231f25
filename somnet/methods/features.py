"""For methods that use the features of a class as a whole."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.methods.base import BagPass
from somnet.methods.label_evidence import RegionFeatures
from somnet.nn.backbones import Network

HALF_MAX = torch.finfo(torch.float16).max
FEATURES = "features"  # the phase of a short training that makes the features tell classes apart


def training_features(network: Network, bag_pass: BagPass) -> Tensor:
    """Features (n, F) of all training images, in main memory and half precision: 2.6 GB for a million of width 1280."""
    return torch.cat([network.image_features(batch.images).half().cpu() for batch in bag_pass(1)])


def region_features(network: Network, bag_pass: BagPass) -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
    """Numbers (I,) and region features of all training images, some at a time; for a method with `full_size`."""
    for batch in bag_pass(1):
        features = network.roi_features(batch.images, batch.boxes[:, 0]).clamp(-HALF_MAX, HALF_MAX)  # (I, P, F)
        real = batch.mask[:, 0, : features.shape[1]]  # (I, P)
        yield batch.rows[:, 0].cpu().numpy(), RegionFeatures(features.half().cpu().numpy(), real.cpu().numpy())


def members(labels: Tensor) -> Iterator[Tensor]:
    """Numbers (R,) of the images of each class that has any, in order."""
    order = labels.argsort(stable=True)
    yield from (rows for rows in torch.split(order, labels.bincount().tolist()) if len(rows))
