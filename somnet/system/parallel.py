"""Work on all cores, in processes; or in threads, where the work itself leaves Python."""

import contextlib
import ctypes
import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import cv2

from somnet.errors import SomnetError
from somnet.system.cores import own_cores

T = TypeVar("T")
R = TypeVar("R")

TASKS_AT_ONCE = 16  # handed to a process together, so that talking to it costs little


def on_all_cores(
    work: Callable[[T], R], tasks: Sequence[T], workers: int | None = None, *, in_order: bool = True
) -> Iterator[list[R]]:
    """Results of the tasks in chunks, from one process per core; `in_order=False` gives them as they are done."""
    count = own_cores() if workers is None else max(1, workers)
    start = "fork" if "fork" in multiprocessing.get_all_start_methods() else None  # scripts need no __main__ guard
    chunks = [tasks[i : i + TASKS_AT_ONCE] for i in range(0, len(tasks), TASKS_AT_ONCE)]
    context = multiprocessing.get_context(start)
    with opencv_without_threads(), ProcessPoolExecutor(count, context, initializer=_start_worker) as pool:
        each = _one_by_one if in_order else as_completed
        try:
            for future in each([pool.submit(_do_all, work, chunk) for chunk in chunks]):
                yield future.result()
        except BrokenProcessPool:
            raise SomnetError(
                "a worker process died, killed from outside or out of memory: run the same command again, with "
                "--workers 1 if memory is short; finished work is not repeated"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def opencv_without_threads() -> Iterator[None]:
    """Within this context a process may be forked: a child waits for ever to end threads that it only inherited."""
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(-1)  # OpenCV's own choice again


def in_threads(work: Callable[[T], R], tasks: Iterable[T], ahead: int, threads: int | None = None) -> Iterator[R]:
    """Results of the tasks in order, by default from one thread per core; at most `ahead` are started in advance.

    For work such as decoding, which holds no lock of Python's. Tasks are fetched, in order, by the caller's thread.
    """
    with ThreadPoolExecutor(own_cores() if threads is None else threads) as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(work, task))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def share_of(count: int, rank: int, ranks: int) -> range:
    """Which of `count` pieces of work are a rank's: neighbours, and as many as any other's or one more."""
    each, more = divmod(count, ranks)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))


def _one_by_one(futures: list[Future[R]]) -> Iterator[Future[R]]:
    """In order, and none is held once it is done with: the results of a million tasks would fill the memory."""
    waiting = deque(futures)
    futures.clear()
    while waiting:
        yield waiting.popleft()


def _do_all(work: Callable[[T], R], chunk: Sequence[T]) -> list[R]:
    return [work(task) for task in chunk]


def _start_worker() -> None:
    for told in (signal.SIGINT, signal.SIGHUP):  # Ctrl-C and a closed terminal are the parent's to handle
        signal.signal(told, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()


def die_with_parent() -> None:
    """A killed parent takes this process along, so that nothing runs on unnoticed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
