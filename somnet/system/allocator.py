"""glibc's allocator gives large blocks back to the kernel after each use, and training then spends a third of its
time fetching them again. Asked to keep them, the same training runs two to three times as fast on a CPU."""

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>
LARGEST = 2**31 - 1


def give_back_memory() -> None:
    """Give the kernel what is free now: after rare work that needs much more memory than all other."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc's
        ctypes.CDLL(None).malloc_trim(0)


def keep_memory() -> bool:
    """Tell the allocator of this process to keep what it has; False where it is not glibc's."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = ((M_MMAP_THRESHOLD, LARGEST), (M_TRIM_THRESHOLD, LARGEST), (M_TOP_PAD, 2**28))
    return all([mallopt(name, value) == 1 for name, value in settings])
