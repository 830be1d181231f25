"""Workers that put batches together: the same batches as without them, by the same processes epoch after epoch."""

import multiprocessing
import os
import time

import numpy as np
import torch
from torch import Tensor

from somnet.data.bags import BagBatches, draw_bags
from somnet.data.loading import Loader, load


class Witness:
    """Tells which process has put an image together, and with what seed."""

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        told = torch.tensor([os.getpid(), row, 0 if seed is None else seed % 1000], dtype=torch.float64)
        return told.view(3, 1, 1), torch.zeros(1, 4), torch.ones(1, dtype=torch.bool)


def children() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def test_workers_stay_from_epoch_to_epoch_as_long_as_the_images_are_the_same() -> None:
    others = children()  # that earlier tests have left
    labels, inputs, loader = np.arange(12) % 3, Witness(), Loader(2)

    def epoch(seed: int, given: Witness) -> tuple[set[int], list[list[float]]]:
        bags = draw_bags(labels, 2, np.random.default_rng(seed))
        batches = BagBatches(bags, 2, given, None, seed)
        seen = torch.cat([batch.images[:, :, 0, 0] for batch in loader.load(batches, skip=1)])
        alone = torch.cat([batch.images[:, :, 0, 0] for batch in load(batches, 0, skip=1)])
        assert seen[:, 1:].tolist() == alone[:, 1:].tolist()
        return {int(pid) for pid in seen[:, 0]}, seen[:, 1:].tolist()

    first, told = epoch(1, inputs)
    second, later = epoch(2, inputs)
    assert first == second
    assert os.getpid() not in first
    assert told != later
    assert next(iter(loader.load(BagBatches(draw_bags(labels, 2, np.random.default_rng(3)), 2, inputs, None, 3))))
    assert epoch(4, inputs)[0] == first  # also after an epoch that was left
    assert epoch(4, Witness())[0].isdisjoint(first)
    loader.close()
    deadline = time.monotonic() + 60
    while children() - others and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children() - others == set()
