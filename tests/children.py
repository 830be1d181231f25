"""Children of a test: one never goes on as a second pytest, and nobody waits for one for ever."""

import os
import signal
import time
import traceback
from collections.abc import Callable

LONGEST = 600  # seconds, of work that takes less than one on a machine that is not busy


def forked(work: Callable[[], object]) -> int:
    """The process number of a child that does some work and ends, with code 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def exit_code(child: int) -> int:
    """How a child ends: its code, or below zero the signal that has killed it."""
    deadline = time.monotonic() + LONGEST
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"a child did not end within {LONGEST} s")
        time.sleep(0.01)
