"""Progress of long work: a bar with speed and time left in a terminal, plain lines elsewhere."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from somnet.system.files import screen_text

log = logging.getLogger("somnet")


class _Lasting:
    """A stream that may end before the work does: a closed terminal, or a full disk, must not stop it."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """As far as there is somebody to read it."""
        with _while_open(self.stream):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """The same."""
        with _while_open(self.stream):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def _while_open(stream: IO[str]) -> Iterator[None]:
    try:
        yield
    except OSError:
        pass
    except ValueError:
        if not stream.closed:
            raise


class _Screen(Console):
    @property
    def file(self) -> IO[str]:
        """Standard error, whatever that is now."""
        return cast(IO[str], _Lasting(super().file))

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file


console = _Screen(stderr=True)

Advance = Callable[..., None]
"""advance(count=1, note="") moves the bar; the note is shown behind it."""

LINE_SECONDS = 10.0  # without a terminal: a line at most this often


class LineFormatter(logging.Formatter):
    """A message is one line, whatever files are called."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line, with its time and level if they are asked for."""
        record.message = screen_text(record.message)
        return super().formatMessage(record)


class ConsoleHandler(logging.Handler):
    """Log lines as they are, above a progress bar if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


class _UnlessTold(ConsoleHandler):
    """The same, as long as the program has not said where its log goes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        if not logging.getLogger().handlers:
            super().emit(record)


def show_log() -> None:
    """Show what the command line shows, in a program or a notebook that has told the log nothing else."""
    if not log.handlers:
        log.addHandler(_UnlessTold())
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "", style="cyan")


@contextlib.contextmanager
def track(label: str, total: int) -> Iterator[Advance]:
    """Show the progress of `total` units of work."""
    spoken = log.level <= logging.INFO  # a log that is told to be quiet shows no bar either
    with _bar(label, total) if console.is_terminal and spoken else _lines(label, total) as advance:
        yield advance


@contextlib.contextmanager
def _bar(label: str, total: int) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Speed(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=total, note="")

        def advance(count: int = 1, note: str = "") -> None:
            progress.update(task, advance=count, note=note)

        yield advance


@contextlib.contextmanager
def _lines(label: str, total: int) -> Iterator[Advance]:
    start = last = time.monotonic()
    first: tuple[float, int] | None = None  # when a unit was done, and how many: what went before may be a preparation
    done = 0

    def advance(count: int = 1, note: str = "") -> None:
        nonlocal done, last, first
        done += count
        now = time.monotonic()
        if now - last >= LINE_SECONDS and done < total:
            last = now
            speed = 0.0 if first is None else (done - first[1]) / (now - first[0])
            left = f", {speed:.1f}/s, {duration((total - done) / speed)} left" if speed else ""
            log.info("%s: %d/%d%s %s", label, done, total, left, note)
        first = first or (now, done)

    yield advance
    seconds = time.monotonic() - start
    log.info("%s: %d/%d done in %s", label, done, total, duration(seconds))


def duration(seconds: float) -> str:
    """Seconds as text: 8 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class _LogFile(logging.FileHandler):
    """The screen has the same lines, so a disk that takes no more of them is not an error yet."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Continue without the line."""


@contextlib.contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Within this context the log is written to a file too."""
    handler = _LogFile(file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()
