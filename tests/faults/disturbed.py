"""`somnet` in real processes that meet a fault at a chosen moment.

A moment is a number of events within a stage: calls and returns of Python's functions and of C's, as the profiler
counts them. An undisturbed run tells how many each stage has, so a random one of them can be drawn, and reproduced.
The processes are forked from one that has loaded torch, so that a test can afford many.
"""

import ctypes
import errno
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import somnet

PACKAGE = str(Path(somnet.__file__).parent)
STAGES = {  # function: the stage that it is
    "scan": "proposals",
    "begin": "begin",
    "make_views": "features",
    "inspect_images": "scoring",
    "write_issues": "scoring",
    "write_report": "report",
    "_carry": "renames",
    "_swap": "renames",
}
PHASE_PARTS = {"Trainer._enter", "Trainer._epoch", "Trainer._leave"}  # their stage has the name of the phase
CHECKPOINT = "Trainer._save"
BALLAST = "ballast"  # file that fills a disk

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["somnet.cli.main", "somnet.training.train", __name__])


LONGEST = 1800  # seconds, of a process that takes a few on a machine that is not busy
LATEST = 0.95  # share of a stage's events; waiting for processes may take a few more or less
BEFORE_WRITING = 0.5  # the same for faults that need a write to come


@dataclass(frozen=True)
class Moment:
    """When: the number of an event in a stage."""

    stage: str
    event: int


@dataclass(frozen=True)
class Signal:
    """A signal of this number."""

    number: signal.Signals
    latest = LATEST

    def strike(self) -> None:
        os.kill(os.getpid(), self.number)


@dataclass(frozen=True)
class TornWrite:
    """The kernel kills the process in the middle of a write, when a file grows beyond so many bytes."""

    size: int
    latest = BEFORE_WRITING

    def strike(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


@dataclass(frozen=True)
class FullDisk:
    """The file system of a place has no byte left."""

    place: Path
    latest = BEFORE_WRITING

    def strike(self) -> None:
        with (self.place / BALLAST).open("wb", buffering=0) as file:
            for size in (2**16, 2**12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def undo(self) -> None:
        (self.place / BALLAST).unlink()


@dataclass(frozen=True)
class ReadOnly:
    """Nothing can be created below a place, not even by root."""

    place: Path
    latest = BEFORE_WRITING

    def strike(self) -> None:
        for folder in self._folders():
            folder.chmod(0o555)
        obey_permissions()

    def undo(self) -> None:
        for folder in self._folders():
            folder.chmod(0o755)

    def _folders(self) -> list[Path]:
        return [self.place, *(path for path in self.place.rglob("*") if path.is_dir())]


@dataclass(frozen=True)
class DamagedCache:
    """Some bits of a file of the cache are others."""

    place: Path
    seed: int
    latest = LATEST

    def strike(self) -> None:
        rng = random.Random(self.seed)
        files = sorted(file for file in self.place.rglob("*") if file.is_file() and file.stat().st_size)
        if files:
            file = rng.choice(files)
            content = bytearray(file.read_bytes())
            for _ in range(rng.randint(1, 8)):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            with file.open("r+b") as stream:  # in place, as a disk does it
                stream.write(content)


@dataclass(frozen=True)
class SwappedFiles:
    """Two files have each other's content, and the times and sizes that they had."""

    one: Path
    other: Path
    latest = LATEST

    def strike(self) -> None:
        contents = [file.read_bytes() for file in (self.one, self.other)]
        for file, content in zip((self.other, self.one), contents, strict=True):
            status = file.stat()
            file.write_bytes(content)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@dataclass(frozen=True)
class DeletedCache:
    """Files of the cache are gone: some, or all."""

    place: Path
    seed: int
    latest = LATEST

    def strike(self) -> None:
        rng = random.Random(self.seed)
        files = sorted(file for file in self.place.rglob("*") if file.is_file())
        for file in files if rng.random() < 0.3 else rng.sample(files, min(len(files), 2)):
            file.unlink()


@dataclass(frozen=True)
class BrokenImage:
    """A file is not what it was: gone, cut off, empty, a folder, or a pipe."""

    file: Path
    seed: int
    latest = LATEST

    def strike(self) -> None:
        content = self.file.read_bytes()
        self.file.unlink()
        kind = random.Random(self.seed).choice(("gone", "cut", "empty", "folder", "pipe"))
        if kind == "folder":
            self.file.mkdir()
        elif kind == "pipe":
            os.mkfifo(self.file)
        elif kind != "gone":
            self.file.write_bytes(content[: len(content) // 2] if kind == "cut" else b"")


@dataclass(frozen=True)
class FullFiles:
    """No file can have more bytes, as where a quota ends; the error comes from the write."""

    size: int
    latest = BEFORE_WRITING

    def strike(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


Fault = Signal | TornWrite | FullDisk | ReadOnly | DamagedCache | SwappedFiles | DeletedCache | BrokenImage | FullFiles


def obey_permissions() -> None:
    """Give up root's right to read and write what permissions forbid."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of <linux/capability.h>, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, of 64 capabilities
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.capget(header, sets)
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    failed = failed or libc.capset(header, sets)
    if failed:
        raise OSError(ctypes.get_errno(), "root's rights cannot be given up")


class Watcher:
    """A profiler that knows the stage, counts its events, and lets the fault strike at its moment."""

    def __init__(self, moment: Moment | None, fault: Fault | None, happened: Path) -> None:
        self.moment, self.fault, self.happened = moment, fault, happened
        self.counts: Counter[str] = Counter()
        self.stack: list[tuple[FrameType, str]] = []
        self.process = os.getpid()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if os.getpid() != self.process:  # a worker, which was forked with this profiler in it: its parent is watched
            sys.setprofile(None)
            return
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            name = self._stage(frame)
            if name is not None:
                self.stack.append((frame, name))
        if not self.stack:
            return
        stage = self.stack[-1][1]
        if event == "return" and frame is self.stack[-1][0]:
            self.stack.pop()
        self.counts[stage] += 1
        if self.moment is not None and (stage, self.counts[stage]) == (self.moment.stage, self.moment.event):
            assert self.fault is not None
            self.moment = None
            self.happened.write_text(str(time.time()))
            self.fault.strike()

    def _stage(self, frame: FrameType) -> str | None:
        function = frame.f_code.co_qualname
        if function in PHASE_PARTS:
            return str(frame.f_locals["phase"].name)
        if function == CHECKPOINT:
            trainer = frame.f_locals["self"]
            phase = self.stack[-1][1] if self.stack else trainer.plan[trainer.at.phase - 1].name
            return f"{phase}/checkpoint"
        if function in STAGES:
            return f"{self.stack[0][1]}/{STAGES[function]}" if self.stack else STAGES[function]
        return None


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    text: str  # what it said
    counts: Mapping[str, int]  # events of each stage; none after a kill
    megabytes: float  # most memory of the process itself
    seconds_left: float | None  # from the fault to the end; None: no fault happened


def somnet_process(
    words: Sequence[object],
    notes: Path,
    *,
    cache: Path,
    moment: Moment | None = None,
    fault: Fault | None = None,
    counted: bool = False,
) -> Ended:
    """`somnet WORDS` in a process of its own; its output and figures are kept in the folder `notes`.

    Events are counted if asked to, or to find the moment of a fault: that takes longer than the work itself.
    """
    notes.mkdir(parents=True, exist_ok=True)
    for old in notes.iterdir():
        old.unlink()
    arguments = ([str(word) for word in words], notes, cache, moment, fault, counted)
    process = PROCESSES.Process(target=_run, args=arguments)
    process.start()
    process.join(LONGEST)
    ended = time.time()
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"somnet did not end within {LONGEST} s:\n{(notes / 'said').read_text()}")
    figures: dict[str, Any] = {"counts": {}, "megabytes": 0.0}
    if (notes / "figures").is_file():
        figures = json.loads((notes / "figures").read_text())
    left = ended - float((notes / "happened").read_text()) if (notes / "happened").is_file() else None
    return Ended(process.exitcode, (notes / "said").read_text(errors="replace"), **figures, seconds_left=left)


def _run(words: list[str], notes: Path, cache: Path, moment: Moment | None, fault: Fault | None, counted: bool) -> None:
    os.environ["SOMNET_CACHE"] = str(cache)
    said = os.open(notes / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # A bound on the sizes of files is none on what is said: somebody else writes that.
    scribe = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=said) if isinstance(fault, FullFiles) else None
    _say_to(scribe.stdin.fileno() if scribe is not None and scribe.stdin is not None else said)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["somnet", *words]
    watcher = Watcher(moment, fault, notes / "happened")
    if fault is not None and moment is None:
        fault.strike()  # from the beginning
    os.register_at_fork(after_in_child=lambda: sys.setprofile(None))  # workers have no stages

    from somnet.cli.main import main

    if counted or moment is not None:
        sys.setprofile(watcher)
    try:
        main()
    finally:
        sys.setprofile(None)
        if isinstance(fault, FullFiles):
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
        if scribe is not None:
            _say_to(said)
            scribe.communicate(timeout=LONGEST)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if not isinstance(fault, FullDisk | ReadOnly):
            (notes / "figures").write_text(json.dumps({"counts": watcher.counts, "megabytes": megabytes}))


def _say_to(descriptor: int) -> None:
    """Standard output and standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def draw_moments(
    counts: Mapping[str, int], number: int, faults: Callable[[str, int], Fault]
) -> Iterator[tuple[Moment, Fault]]:
    """A random moment in each stage, in their order, with its fault; of stages within a phase one, each in its turn."""
    rng = random.Random(number)
    groups: dict[str, list[str]] = {}
    for stage in counts:
        groups.setdefault(stage.partition("/")[0], []).append(stage)
    for turn, stages in enumerate(groups.values()):
        stage = stages[(number + turn) % len(stages)]
        fault = faults(stage, number + turn)
        yield Moment(stage, rng.randint(1, max(1, int(fault.latest * counts[stage])))), fault
