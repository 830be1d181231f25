"""For methods that use the features of a class as a whole."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.methods.base import BagPass
from somnet.methods.label_evidence import RegionFeatures
from somnet.nn.backbones import Network
from somnet.system.transfer import send

HALF_MAX = torch.finfo(torch.float16).max
AT_ONCE = 2**28  # numbers that a device is given at a time, 1 GB
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


def most_similar(
    queries: Tensor, points: Tensor, count: int, *, own: Tensor | None = None, euclidean: bool = False
) -> Tensor:
    """Numbers (Q, count) of the points (n, F) with the largest products with queries (Q, F), the largest first.

    `euclidean`: the nearest ones instead. `own` (Q,) are the queries' own numbers among the points, which do not count.
    Points may be in main memory: some at a time come to the queries' device.
    """
    size = max(1, AT_ONCE // points.shape[1])
    values, numbers = [], []
    for start in range(0, len(points), size):
        some = send(points[start : start + size], queries.device).to(queries.dtype)
        near = queries @ some.T  # (Q, n)
        if euclidean:
            near = near - some.square().sum(dim=1) / 2  # falls with the distance
        if own is not None:
            place = (own - start).clamp(0, len(some) - 1)[:, None]
            elsewhere = (own[:, None] < start) | (own[:, None] >= start + len(some))
            near = near.scatter(1, place, torch.where(elsewhere, near.gather(1, place), -torch.inf))
        best = near.topk(min(count, len(some)), dim=1)
        values.append(best.values)
        numbers.append(best.indices + start)
    if len(numbers) == 1:
        return numbers[0]
    return torch.cat(numbers, dim=1).gather(1, torch.cat(values, dim=1).topk(count, dim=1).indices)
