"""One writer at a time: a lock that ends with its process, however it ends, and tells who holds it."""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from somnet.errors import RunError

log = logging.getLogger("somnet")

LOOK_SECONDS = 0.01  # between two looks at a lock that is waited for
NAMELESS_SECONDS = 2.0  # for who has just taken a lock to say its name

_held: set[int] = set()  # descriptors of this process


def _forget_locks() -> None:
    """A forked child has its parent's descriptors, and one that outlives its parent would keep the lock."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def one_writer(file: Path, target: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file while a target is written. Where another process holds it, that one is named and we refuse.

    `patience`: seconds to wait for the other one, where writing takes but a moment. The kernel ends a lock with the
    process that took it, so a file that a kill has left is free. Its text only says who it was.
    """
    descriptor = _lock(file, target, time.monotonic() + patience)
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not in a child that was forked within
            _held.remove(descriptor)
            with contextlib.suppress(OSError):
                file.unlink()
            os.close(descriptor)


def _lock(file: Path, target: Path, deadline: float) -> int:
    """An open and locked file of this name; that of an earlier writer may have been deleted while we opened it."""
    began = time.monotonic()
    while True:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Never through a link, nor waiting for somebody at the other end of a pipe.
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise RunError(
                f"cannot write {target}: {error.strerror}: choose a writable place with free space"
            ) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RunError(f"{file} is not a plain file: delete it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 500, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if time.monotonic() < max(deadline, began + (0 if holder else NAMELESS_SECONDS)):
                time.sleep(LOOK_SECONDS)
                continue
            raise RunError(
                f"{target} is being written by {holder or 'another process'}: wait until it ends, or give another --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                os.close(descriptor)
                raise RunError(f"cannot lock {file}: {error.strerror}: give another --out") from None
            log.warning("%s lies on a file system without locks: see that nobody else writes there", target)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                break
        os.close(descriptor)
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its text
        text = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    return descriptor
