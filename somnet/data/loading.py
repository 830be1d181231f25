"""Batches on a device in time: put together by worker processes, or by threads where a GPU works meanwhile."""

import contextlib
import gc
import signal
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from somnet.core.types import BagBatch
from somnet.data.bags import BagBatches, BatchOrder, Boxes, Inputs, put_together
from somnet.errors import DataError
from somnet.system.parallel import in_threads
from somnet.system.transfer import on_gpu

AHEAD = 2  # batches that are put together while a GPU works


def load(batches: BagBatches, workers: int, skip: int = 0, device: str = "cpu") -> Iterator[BagBatch]:
    """The batches in order, from `skip` on, on a device, fetched by worker processes where there are any."""
    return Loader(workers, device).load(batches, skip)


class Loader:
    """Loads batches; its workers stay from one epoch to the next, as long as the images come from the same inputs."""

    def __init__(self, workers: int, device: str = "cpu") -> None:
        self.workers, self.device = workers, device
        self._serving: _Serving | None = None

    def load(self, batches: BagBatches, skip: int = 0) -> Iterator[BagBatch]:
        """The batches in order, from `skip` on, on the device.

        A GPU gets a batch while it works on the one before: pinned, so that nobody waits for the copy.
        """
        fetched = self._fetched(batches, range(skip, len(batches)))
        if not on_gpu(self.device):
            yield from (batch.to(self.device) for batch in fetched)
            return
        ahead: BagBatch | None = None
        for batch in fetched:
            sent = batch.to(self.device)
            if ahead is not None:
                yield ahead
            ahead = sent
        if ahead is not None:
            yield ahead

    def close(self) -> None:
        """Let the workers go."""
        self._serving = None

    def _fetched(self, batches: BagBatches, numbers: range) -> Iterator[BagBatch]:
        if self.workers == 0 or len(numbers) == 0:
            if on_gpu(self.device):  # beside the GPU's work
                yield from in_threads(lambda number: batches[number].pin_memory(), numbers, ahead=AHEAD)
            else:
                yield from (batches[number] for number in numbers)
            return
        if self._serving is None or not self._serving.serves(batches):
            self._serving = _Serving(batches, self.workers, pin=on_gpu(self.device))
        try:
            with named_worker_death():
                yield from self._serving.load(batches, numbers)
        except DataError as error:  # comes with the worker's traceback in its message
            raise DataError(str(error).strip().rsplit("DataError: ", 1)[-1]) from None


class _Serving:
    """Workers that put together what they are told."""

    def __init__(self, batches: BagBatches, workers: int, *, pin: bool) -> None:
        self.inputs, self.boxes, self.orders = batches.inputs, batches.boxes, _Orders(batches)
        self.loader = DataLoader(
            _Service(batches.inputs, batches.boxes),
            batch_size=None,
            sampler=self.orders,
            num_workers=workers,
            worker_init_fn=_start_worker,
            pin_memory=pin,
            persistent_workers=True,
        )

    def serves(self, batches: BagBatches) -> bool:
        return self.inputs is batches.inputs and self.boxes is batches.boxes

    def load(self, batches: BagBatches, numbers: range) -> Iterator[BagBatch]:
        self.orders.batches, self.orders.numbers = batches, numbers
        yield from self.loader


class _Orders(Sampler[BatchOrder]):
    """What torch asks for the next number has the next order instead, made when it is asked for."""

    def __init__(self, batches: BagBatches) -> None:
        self.batches, self.numbers = batches, range(0)

    def __iter__(self) -> Iterator[BatchOrder]:
        return map(self.batches.order, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


class _Service(Dataset[BagBatch]):
    """In a worker: an order becomes a batch."""

    def __init__(self, inputs: Inputs, boxes: Boxes | None) -> None:
        self.inputs, self.boxes = inputs, boxes

    def __getitem__(self, order: BatchOrder) -> BagBatch:
        return put_together(order, self.inputs, self.boxes)


@contextlib.contextmanager
def named_worker_death() -> Iterator[None]:
    """torch tells of a dead worker process at any moment, wherever its parent happens to be."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        what = str(error).splitlines()[0].rstrip(". ")
        raise DataError(
            f"a data worker died ({what}): continue with --resume, and with --workers 0 if memory is short"
        ) from None


def _start_worker(_: int) -> None:
    for told in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C and a closed terminal are the parent's to handle
        signal.signal(told, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    gc.freeze()  # a collection would write to all that the parent has made, and so copy it
