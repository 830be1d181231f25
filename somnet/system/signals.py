"""Ctrl-C, SIGTERM and a closed terminal: at once where nothing is lost, as before and after phases; between two steps
while training.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from somnet.errors import RunError, TrainingStopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONTINUE = "run the same command with --out and --resume to continue"
AGAIN = "run the same command again to continue"


class StopFlag:
    """Remembers that a signal came."""

    def __init__(self) -> None:
        self.signal_number: int | None = None

    def check(self, kept: str = "everything is saved") -> None:
        """Raise if a signal came."""
        if self.signal_number is not None:
            name = signal.Signals(self.signal_number).name
            raise TrainingStopped(f"stopped by {name}, {kept}: {CONTINUE}", self.signal_number)


@contextlib.contextmanager
def deferred_signals() -> Iterator[StopFlag]:
    """Within this context a signal only sets a flag, so that a step is never cut in two."""
    flag = StopFlag()

    def remember(number: int, _: FrameType | None) -> None:
        flag.signal_number = number

    with _handling(remember):
        yield flag


@contextlib.contextmanager
def told_by_others(flag: StopFlag) -> Iterator[None]:
    """A rank that obeys a signal a moment earlier is missed by this one: the signal is the reason to tell."""
    try:
        yield
    except RunError:
        flag.check("what is done is kept")
        raise


@contextlib.contextmanager
def stopping_signals(advice: str = CONTINUE) -> Iterator[None]:
    """Within this context a signal raises TrainingStopped at once: all work here is cached as it is done."""

    def stop(number: int, _: FrameType | None) -> None:
        raise TrainingStopped(f"stopped by {signal.Signals(number).name}, what is done is kept: {advice}", number)

    with _handling(stop):
        yield


@contextlib.contextmanager
def _handling(handler: object) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if before[signal.SIGHUP] == signal.SIG_IGN:  # by nohup: the work is to outlive its terminal
        del before[signal.SIGHUP]
    try:
        for number in before:
            signal.signal(number, handler)  # type: ignore[arg-type]
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
