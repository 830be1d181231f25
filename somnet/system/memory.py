"""A bound on the memory that some work may take, set by the operating system."""

import contextlib
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

STATUS = Path("/proc/self/status")

_one_at_a_time = threading.Lock()  # the limit is the whole process's: two that overlap would leave it lowered


@contextlib.contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Within this context the process gets at most so many bytes more; then a MemoryError. Linux alone keeps to it.

    Other threads get no more either, so it is for short work that starts none.
    """
    with _one_at_a_time:
        before, taken = resource.getrlimit(resource.RLIMIT_DATA), _private_bytes()
        if taken is None or 0 <= before[0] <= taken + most:  # nobody tells, or the user allows less
            yield
            return
        resource.setrlimit(resource.RLIMIT_DATA, (taken + most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _private_bytes() -> int | None:
    """What this process has, as the limit counts it; None where the system does not tell."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmData:")), None)
