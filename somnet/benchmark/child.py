"""Work in a process of its own: a run that dies or leaks takes nothing else with it."""

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

from somnet.errors import SomnetError, TrainingStopped
from somnet.system.parallel import die_with_parent, opencv_without_threads
from somnet.system.ranks import leave_ranks
from somnet.system.signals import StopFlag, stopping_signals

log = logging.getLogger("somnet")

LOOK_SECONDS = 0.2  # between two looks at a child and at signals
LONGEST_ERROR = 2000  # letters that a child reports


def in_a_child(work: Callable[[], None], stop: StopFlag) -> str | None:
    """Do some work in a process of its own; the error if it failed.

    A signal is handed on to the child, which saves what it has and ends; then it is obeyed here.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    stop.check()
    child = context.Process(target=_be_child, args=(work, sender, stop))
    with opencv_without_threads():  # the child keeps one thread, until it works on all cores
        child.start()
    sender.close()
    told = False
    while child.is_alive():
        child.join(LOOK_SECONDS)
        if stop.signal_number is not None and not told and child.is_alive():
            assert child.pid is not None
            os.kill(child.pid, stop.signal_number)
            told = True
    stop.check()
    if child.exitcode == 0:
        return None
    try:
        return receiver.recv_bytes().decode() if receiver.poll() else _how_it_died(child.exitcode)
    except EOFError:
        return _how_it_died(child.exitcode)
    finally:
        receiver.close()


def _how_it_died(code: int | None) -> str:
    how = f"exit code {code}" if code is None or code > 0 else signal.Signals(-code).name
    return f"its process died ({how}), killed from outside or out of memory: free some and --resume"


def _be_child(work: Callable[[], None], sender: "Connection[bytes, bytes]", stop: StopFlag) -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which hands it on once
    die_with_parent()
    leave_ranks()
    torch.set_num_threads(torch.get_num_threads())  # takes its pool anew: two threads that did so at once would fail
    for handler in log.handlers:
        handler.setLevel(logging.WARNING)  # train.log has the rest
    try:
        with stopping_signals():
            stop.check()  # one that came before the handlers were ours
            work()
    except TrainingStopped as stopped:
        _tell(sender, stopped.typed)
        sys.exit(stopped.exit_code)
    except SomnetError as error:
        _tell(sender, error.typed)
        sys.exit(1)
    except Exception as error:
        _tell(sender, f"{type(error).__name__}: {error}")
        raise  # the traceback goes to the screen


def _tell(sender: "Connection[bytes, bytes]", message: str) -> None:
    sender.send_bytes(message[:LONGEST_ERROR].encode("utf-8", "backslashreplace"))
