"""Where the work is done: the device, the processes that load data, and the ranks that share it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from somnet.errors import RunError
from somnet.system.cores import own_cores
from somnet.system.ranks import ALONE, Ranks

HAVE_BF16 = (8, 0)  # NVIDIA's GPUs from Ampere on

Placed = TypeVar("Placed", bound=nn.Module)


@dataclass(frozen=True)
class Compute:
    """One value for device, workers and ranks."""

    device: str = "cpu"
    workers: int | None = None  # processes that read images; None: as many as suit
    ranks: Ranks = ALONE

    @property
    def loaders(self) -> int:
        """Processes that load data beside a network at work: by default one per core, less two that it keeps busy."""
        return max(0, own_cores() - 2) if self.workers is None else self.workers

    def loaders_of(self, *, cached: bool) -> int:
        """The same; none for cached maps, which are read faster than a process could hand them over."""
        return 0 if cached else self.loaders


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Within this context torch, numpy and what else computes here do it in so many threads.

    Sums are added up thread by thread, so results differ in their last bits where the number of threads does.
    """
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def placed(module: Placed, device: str) -> Placed:
    """A module on a device; on CUDA with weights in the order of its fast convolutions, which are tried out first."""
    if torch.device(device).type != "cuda":
        return module.to(device)
    torch.backends.cudnn.benchmark = True
    return module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def choose_precision(precision: str, device: str) -> str:
    """`auto` is bf16 on a GPU that computes in it, else fp32."""
    if precision != "auto":
        return precision
    has_it = torch.device(device).type == "cuda" and torch.cuda.get_device_capability(device) >= HAVE_BF16
    return "bf16" if has_it else "fp32"


def devices() -> dict[str, int]:
    """How many devices of each kind torch can compute on here."""
    return {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}


def choose_device(device: str, present: Mapping[str, int] | None = None) -> str:
    """`auto` is the GPU if there is one; anything else has to be there."""
    present = devices() if present is None else present
    if device == "auto":
        return "cuda" if present["cuda"] else "cpu"
    try:
        asked = torch.device(device)
    except RuntimeError:
        asked = None
    if asked is None or asked.type not in present:
        raise RunError(f"there is no device '{device}': use cpu, cuda, cuda:1, ..., mps or auto")
    count = present[asked.type]
    if count == 0:
        raise RunError(f"--device {device}, but torch finds no such GPU here: use --device cpu, or see somnet doctor")
    if (asked.index or 0) >= count:
        known = asked.type if count == 1 else f"{asked.type}:0 to {asked.type}:{count - 1}"
        raise RunError(f"--device {device}, but there is only {known}: use that, or auto")
    return device
