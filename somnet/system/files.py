"""Writing files so that a kill at any moment leaves the old one or the new one, never half of one."""

import contextlib
import json
import os
import resource
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from somnet.errors import SomnetError

LEFTOVER = ".somnet-part"  # how the name of a file ends that is being written; nobody else's does
LOCK = ".somnet-lock"  # the name of a lock, or how it ends
MOST_NAMED = 5  # of many, in a message; the tables name all
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # of what a spreadsheet takes for a formula


@contextlib.contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside the target; on success it is flushed to disk and takes the target's place."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=LEFTOVER)
        os.close(handle)
    except OSError as error:
        raise SomnetError(f"cannot write {target}: {error.strerror}: choose a writable place with free space") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        flush_to_disk(temporary)
        os.replace(temporary, target)
        flush_to_disk(target.parent)
    except OSError as error:
        raise SomnetError(f"cannot write {target}: {_reason(error)}: free some space and try again") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def is_leftover(file: Path) -> bool:
    """Whether a file is one that a killed process was writing."""
    return file.name.startswith(".") and file.name.endswith((LEFTOVER, LOCK))


def clear_leftovers(folder: Path, *, hours: float = 0.0) -> None:
    """Delete what killed processes have left below a folder; `hours` old, where others may be writing.

    Hidden folders are left to those who write them: one may be at it, and gone in a moment.
    """
    for place, folders, names in os.walk(folder):  # which does not mind what vanishes meanwhile
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(place, name) for name in names if name.startswith(".") and name.endswith(LEFTOVER)):
            with contextlib.suppress(OSError):  # somebody else was faster, or may not
                if file.is_file() and time.time() - file.stat().st_mtime >= hours * 3600:
                    file.unlink()


def _reason(error: OSError) -> str:
    """Why a write failed; libraries that write do not always tell the system's words."""
    return error.strerror or str(error)


def flush_to_disk(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def touch(file: Path) -> None:
    """Note that a file of the cache was of use: what was not for longest goes first when room is made."""
    with contextlib.suppress(OSError):
        os.utime(file)


def write_text(target: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(target: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(target, json_text(value))


def json_text(value: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def link_or_copy(source: Path | str, target: Path) -> None:
    """The same file under another name: a hard link, or a copy where the file system has none."""
    real = os.path.realpath(source)  # a link to a link could lead nowhere from its new place
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(real, target)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without hard links
            shutil.copy2(real, target)
    except OSError as error:
        raise SomnetError(
            f"cannot copy {source} to {target}: {error.strerror}: see that it can be read and space is free"
        ) from None


def parse_json(text: str) -> Any:
    """JSON of unknown origin; a ValueError for anything else."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def cache_folder() -> Path:
    """Where computed boxes and feature maps are kept: SOMNET_CACHE, or the user's cache folder."""
    if explicit := os.environ.get("SOMNET_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "somnet"


def allow_many_files() -> None:
    """Let this process have as many files open at once as the system allows: shells set a low limit by themselves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system that grants less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def display_name(name: bytes) -> str:
    """A file name as text: bytes that are not UTF-8 are shown as \\xNN, so that tables stay readable."""
    return name.decode("utf-8", errors="backslashreplace")


def some(items: list[str], between: str = ", ") -> str:
    """The first few of many, and how many more there are."""
    rest = len(items) - MOST_NAMED
    return between.join(items[:MOST_NAMED]) + (f"{between}and {rest} more" if rest > 0 else "")


def screen_text(text: str) -> str:
    """Text for a screen or a log: control characters, which could clear the one and forge lines of both, as \\xNN."""
    return "".join(f"\\x{ord(sign):02x}" if unicodedata.category(sign) == "Cc" else sign for sign in text)


def csv_text(cell: str) -> str:
    """The text of a cell that `csv_cell` wrote."""
    return cell[1:] if cell.startswith("'") and csv_cell(cell[1:]) == cell else cell


def csv_cell(text: str) -> str:
    """Text for a CSV cell that a spreadsheet will not take for a formula."""
    return "'" + text if text.startswith(FORMULA_STARTS) else text
