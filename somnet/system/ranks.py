"""Several processes at one training, started by torchrun: which one this is, and what they tell each other.

Every rank holds the same method and draws the same bags. Each takes its share of a batch; gradients are averaged, so
all of them take the same step. The first rank writes. A single process is a world of one, which has nothing to tell.
"""

import contextlib
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from somnet.errors import RunError
from somnet.system.parallel import share_of
from somnet.system.signals import StopFlag
from somnet.system.transfer import as_bytes

log = logging.getLogger("somnet")

LOOK_SECONDS = 0.05  # between two looks at what other ranks have noted
MEETINGS = itertools.count()  # of this process; all ranks come to the same ones, in the same order
LONGEST = timedelta(days=1)  # to wait for another rank; one that died is noticed at once


@dataclass(frozen=True)
class Ranks:
    """The processes of a training, seen from one of them."""

    rank: int = 0
    world: int = 1
    store: Store | None = None  # torchrun's: it lives as long as the command, restarts included
    attempt: int = 0  # how many times torchrun has restarted the ranks

    @property
    def first(self) -> bool:
        """Whether this rank writes and speaks."""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Which of `count` pieces of work are this rank's."""
        return share_of(count, self.rank, self.world)

    def note(self, what: str, value: str = "") -> None:
        """Leave a note that all ranks can read, also after a restart."""
        if self.store is not None:
            self.store.set(what, value)

    def noted(self, what: str) -> bool:
        """Whether some rank has left this note."""
        return self.store is not None and bool(self.store.check([what]))

    def wait_for(self, what: str, meanwhile: Callable[[], None] = lambda: None) -> str:
        """The value of a note, as soon as it is there; a signal is heard while waiting."""
        assert self.store is not None
        while not self.store.check([what]):
            meanwhile()
            time.sleep(LOOK_SECONDS)
        return str(self.store.get(what), "utf-8")

    def barrier(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Continue when all ranks have come here."""
        if self.world > 1:
            assert self.store is not None
            place = self.next_meeting()
            if self.store.add(f"{place}: present", 1) == self.world:
                self.note(place)
            self.wait_for(place, meanwhile)

    def next_meeting(self) -> str:
        """A name that all ranks give to the next task that they do together."""
        return f"meeting {next(MEETINGS)} of attempt {self.attempt}"

    def total(self, values: Sequence[float]) -> list[float]:
        """The sum over all ranks of each number."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, value: int) -> int:
        """The largest of all ranks' numbers."""
        return int(self._reduced([value], dist.ReduceOp.MAX)[0])

    def stopped(self, stop: StopFlag) -> bool:
        """Whether a signal came to any rank; the flag says so then, on all of them at the same place.

        One that comes while the ranks are asking each other stays in the flag for the next time they ask.
        """
        number = self.largest(stop.signal_number or 0)
        if number:
            stop.signal_number = number
        return bool(number)

    def check_together(self, stop: StopFlag) -> None:
        """Stop if a signal came to any rank."""
        if self.stopped(stop):
            stop.check()

    def _reduced(self, values: Sequence[float], how: "dist.ReduceOp.RedOpType") -> list[float]:
        numbers = torch.tensor(values, dtype=torch.float64)
        if self.world > 1:
            with named_loss():
                dist.all_reduce(numbers, op=how)
        reduced: list[float] = numbers.tolist()
        return reduced

    def gather(self, rows: Tensor) -> Tensor:
        """The rows (n, ...) of all ranks in their order; each may have another number of them."""
        return self.gather_all({"": rows})[0][""]

    def gather_all(self, rows: Mapping[str, Tensor], note: int = 0) -> tuple[dict[str, Tensor], int]:
        """The same for several tensors of one device at once, and the largest of all ranks' notes.

        How many rows each rank has is asked first; then all of it travels as bytes, in one piece.
        """
        if self.world == 1:
            return dict(rows), note
        names = sorted(rows, key=lambda name: -rows[name].element_size())  # so each begins where it may
        table = torch.zeros(self.world, 1 + len(names), dtype=torch.int64)
        table[self.rank] = torch.tensor([note, *(len(rows[name]) for name in names)])
        with named_loss():
            dist.all_reduce(table)
        bytes_of = [_row_bytes(rows[name]) for name in names]
        sizes = table[:, 1:] * torch.tensor(bytes_of, dtype=torch.int64)  # (ranks, names)
        gathered = self._exchange([rows[name] for name in names], int(sizes.sum(dim=1).max()))
        parts = [torch.split(mine[: sum(own)], own) for mine, own in zip(gathered, sizes.tolist(), strict=True)]
        found = {
            name: torch.cat([part[place].view(rows[name].dtype).view(-1, *rows[name].shape[1:]) for part in parts])
            for place, name in enumerate(names)
        }
        return found, int(table[:, 0].max())

    def _exchange(self, tensors: Sequence[Tensor], size: int) -> list[Tensor]:
        """The bytes of all ranks' tensors, each rank's filled up to the same size."""
        if size == 0:
            return [torch.zeros(0, dtype=torch.uint8, device=tensor.device) for tensor in tensors[:1]] * self.world
        mine = [as_bytes(tensor) for tensor in tensors]
        filling = mine[0].new_zeros(size - sum(map(len, mine)))
        packed = torch.cat([*mine, filling])
        gathered = [torch.empty_like(packed) for _ in range(self.world)]
        with named_loss():
            dist.all_gather(gathered, packed)
        return gathered

    def summed(self, values: Tensor) -> Tensor:
        """The sum of all ranks' tensors of the same shape."""
        total = values.detach().clone()
        if self.world > 1:
            with named_loss():
                dist.all_reduce(total)
        return total

    def follow_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first rank, to the last bit."""
        if self.world > 1:
            with named_loss():
                for tensor in tensors:
                    raw = as_bytes(tensor)  # gloo knows few kinds of numbers
                    dist.broadcast(raw, src=0)
                    tensor.detach().copy_(raw.view(tensor.dtype).view_as(tensor))


ALONE = Ranks()


def started_note(out: Path) -> str:
    """The note that the work on a folder was started by this very command."""
    return f"started: {out.absolute()}"


def _row_bytes(rows: Tensor) -> int:
    return math.prod(rows.shape[1:]) * rows.element_size()


def find_ranks() -> Ranks:
    """What torchrun says about this process; ALONE where there is no torchrun."""
    if not dist.is_torchelastic_launched():
        return ALONE
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = PrefixStore("somnet", TCPStore(address, port, is_master=False))
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    return Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), store, restarts)


def leave_ranks() -> None:
    """From here on this process is alone: for one that a rank has forked."""
    os.environ.pop("TORCHELASTIC_RUN_ID", None)


@contextlib.contextmanager
def quiet_ranks(ranks: Ranks) -> Iterator[None]:
    """Within this context all ranks but the first log errors only, and show no progress."""
    level = log.level
    if not ranks.first:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def joined_ranks(device: str = "cpu") -> Iterator[Ranks]:
    """The ranks of this command, able to exchange tensors: by gloo on CPUs, by NCCL on GPUs."""
    ranks = find_ranks()
    with quiet_ranks(ranks):
        if ranks.world == 1:
            yield ranks
            return
        assert ranks.store is not None
        on_gpu = torch.device(device).type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=PrefixStore(ranks.next_meeting(), ranks.store),  # addresses of an earlier group would mislead
            rank=ranks.rank,
            world_size=ranks.world,
            timeout=LONGEST,
        )
        try:
            yield ranks
            time.sleep(LOOK_SECONDS)  # gloo's threads drop their last tensors: before torch 2.8 they could not any more
        finally:
            dist.destroy_process_group()


def device_of_rank(device: str) -> str:
    """A GPU a process, where torchrun has started several on this machine."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    given = torch.device(device).index is not None
    if torch.device(device).type != "cuda" or (here == 1 and given):
        return device
    if here == 1:
        return "cuda:0"  # with its number: without one, a machine's only process could not choose it
    if given:
        raise RunError(f"--device {device}, but {here} processes need a GPU each: use --device cuda")
    if here > torch.cuda.device_count():
        raise RunError(
            f"torchrun starts {here} processes, but there are {torch.cuda.device_count()} GPUs: lower --nproc-per-node"
        )
    return f"cuda:{os.environ['LOCAL_RANK']}"


@contextlib.contextmanager
def named_loss() -> Iterator[None]:
    """Within this context a lost rank is named: of one, gloo says "connection closed", and NCCL much more."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo/transport" not in str(error):
            raise
        reason = str(error).splitlines()[0].rpartition("] ")[2].split(". ")[0]
        raise RunError(
            f"another rank is gone ({reason}): see its message; with --max-restarts torchrun starts all ranks again, "
            "or continue with --resume"
        ) from None
