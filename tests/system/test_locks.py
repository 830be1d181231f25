"""One writer at a time, whatever becomes of the others. Real processes: a lock is of no use within one."""

import contextlib
import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.errors import RunError
from somnet.system.locks import one_writer
from tests.children import LONGEST, exit_code, forked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Outcome, Tiny

    Cli = Callable[..., Outcome]

HELD = 1800  # seconds: longer than any test takes


@contextlib.contextmanager
def held(file: Path, *, with_child: bool = False) -> Iterator[int]:
    """Another process that holds a lock until it is killed; its number. Its own child is killed at the end."""
    reading, writing = os.pipe()

    def hold() -> None:
        os.setpgid(0, 0)
        with one_writer(file, file):
            if with_child:
                forked(lambda: time.sleep(HELD))
            os.write(writing, b"x")
            time.sleep(HELD)

    holder = forked(hold)
    os.close(writing)
    try:
        assert select.select([reading], [], [], LONGEST)[0]
        assert os.read(reading, 1) == b"x"
        yield holder
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(holder, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the test has waited for it
            exit_code(holder)


def kill(holder: int) -> None:
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    lock = tmp_path / "new" / "lock"
    with held(lock) as holder:
        named = f"out is being written by process {holder} on {re.escape(socket.gethostname())} since 2.*: wait"
        with pytest.raises(RunError, match=named), one_writer(lock, Path("out")):
            raise AssertionError("two writers")
    with one_writer(lock, Path("out")):
        assert f"process {os.getpid()} " in lock.read_text()
    assert not lock.exists()


def test_a_lock_ends_with_its_process_though_children_live_on(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock, with_child=True) as holder:
        kill(holder)
        assert lock.exists()
        with one_writer(lock, tmp_path):
            pass


def test_a_child_that_leaves_the_context_does_not_end_its_parents_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with one_writer(lock, tmp_path):

        def write_too() -> None:
            with pytest.raises(RunError, match="is being written by"), one_writer(lock, tmp_path):
                raise AssertionError("two writers")

        assert exit_code(forked(write_too)) == 0
        assert lock.exists()


def test_a_lock_is_not_looked_for_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / "lock").symlink_to(tmp_path / "thesis")
    with pytest.raises(RunError, match="cannot write"), one_writer(tmp_path / "lock", tmp_path):
        raise AssertionError("went on")
    assert (tmp_path / "thesis").read_text() == "years of work"


@pytest.mark.parametrize("words", [("train",), ("bench", "--methods", "plain"), ("clean",), ("export",)])
def test_every_verb_that_writes_a_folder_refuses_to_be_the_second(
    words: tuple[str, ...], data: Path, trained: Path, tiny: "Tiny", tmp_path: Path, cli: "Cli"
) -> None:
    out = tmp_path / "out"
    own = words[0] in ("train", "bench")
    about = [data, *tiny.flags()] if own else [trained]
    with held(out / ".somnet-lock" if own else tmp_path / ".out.somnet-lock") as holder:
        done = cli(words[0], *about, *words[1:], "--out", out)
        assert done.code == 2
        assert f"{out} is being written by process {holder} on" in done.err
        assert "Traceback" not in done.err
    assert [file.name for file in tmp_path.rglob("*") if "lock" not in file.name] == (["out"] if own else [])


def test_a_pipe_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(RunError, match="lock is not a plain file"), one_writer(tmp_path / "lock", tmp_path):
        raise AssertionError("went on")


def test_a_writer_may_wait_for_another(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held(lock) as holder:
        threading.Timer(0.3, os.kill, [holder, signal.SIGKILL]).start()
        with one_writer(lock, tmp_path, patience=60):
            assert f"process {os.getpid()} " in lock.read_text()
