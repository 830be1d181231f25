"""The cache as a whole: how large it is, whether it is sound, and what may go. All of it can be computed again."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from somnet.data.checked_tables import TABLE, is_sound
from somnet.data.maps import ARRAY, KEYS, MapStore
from somnet.errors import ConfigError
from somnet.system.files import cache_folder, clear_leftovers

KINDS = {
    "maps": "feature maps of frozen trunks",
    "trunks": "frozen trunks for onnxruntime",
    "networks": "trained networks for onnxruntime",
    "proposals": "boxes, hashes and quality of images",
    "files": "which content each file has",
    "shards": "lists of the images in archives",
    "unpacked": "Arrow tables, unpacked",
}
_NAMES = {  # of their files, below the folder of their kind: SOMNET_CACHE may be a folder that has others, too
    "maps": r"[^/]+/[0-9a-f]{16}\.(sums|npy)",
    "trunks": r"[0-9a-f]{16}-[^/]+\.onnx",
    "networks": r"[0-9a-f]{16}-[^/]+\.npz",
    "proposals": r"[0-9a-f]{16}/[0-9a-f]{16}\.table",
    "files": r"[0-9a-f]{16}(-rank[0-9]+)?\.table",
    "shards": r"[0-9a-f]{16}\.parquet",
    "unpacked": r"[0-9a-f]{16}\.arrow",
}
LIMIT = "SOMNET_CACHE_GB"  # environment variable: at most so many GB are kept


@dataclass(frozen=True)
class Entry:
    """What is deleted together: a file, or the two files of a chunk of maps."""

    kind: str
    files: tuple[Path, ...]
    size: int
    used: float  # when, in seconds

    def delete(self) -> None:
        """The keys of a chunk first: without them its maps do not count."""
        for file in self.files:
            with contextlib.suppress(OSError):  # somebody else was faster, or may not
                file.unlink()


def entries() -> Iterator[Entry]:
    """All that the cache has; never anything that somnet does not call so."""
    for kind in KINDS:
        folder = cache_folder() / kind
        for file in sorted(folder.rglob("*")):
            if not re.fullmatch(_NAMES[kind], file.relative_to(folder).as_posix()):
                continue
            if kind == "maps" and file.suffix == ARRAY and file.with_suffix(KEYS).exists():
                continue  # comes with its keys
            files = (file, file.with_suffix(ARRAY)) if file.suffix == KEYS else (file,)
            with contextlib.suppress(OSError):
                found = [one.stat() for one in files if one.is_file() and not one.is_symlink()]
                if found:
                    yield Entry(kind, files, sum(one.st_size for one in found), max(one.st_mtime for one in found))


def sizes() -> dict[str, tuple[int, int]]:
    """Entries and bytes of each kind."""
    found = dict.fromkeys(KINDS, (0, 0))
    for entry in entries():
        count, total = found[entry.kind]
        found[entry.kind] = count + 1, total + entry.size
    return found


def verify() -> list[Path]:
    """Check what has checksums; the files that were damaged and are deleted.

    Trunks and networks are tried whenever they are opened, and pages of other tables are checked as they are read.
    """
    bad = []
    for folder in sorted((cache_folder() / "maps").glob("*")):
        bad += MapStore(folder.name).verify()
    for entry in entries():
        if entry.files[0].suffix == TABLE and not is_sound(entry.files[0].read_bytes()):
            entry.delete()
            bad.append(entry.files[0])
    return bad


def prune(most: int) -> int:
    """Delete what has not been of use for longest, until at most so many bytes are left; the bytes that went."""
    found = sorted(entries(), key=lambda entry: entry.used)
    excess = sum(entry.size for entry in found) - most
    freed = 0
    for entry in found:
        if freed >= excess:
            break
        entry.delete()
        freed += entry.size
    return freed


def clear_cache() -> None:
    """Clear away what killed processes have left, and what exceeds the limit of the user, if there is one."""
    for kind in KINDS:
        clear_leftovers(cache_folder() / kind, hours=1)
    if text := os.environ.get(LIMIT):
        prune(parse_gigabytes(text, LIMIT))


def parse_gigabytes(text: str, name: str) -> int:
    """Bytes, from a number of GB."""
    try:
        most = float(text) * 1e9
        if not 0 <= most < float("inf"):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{name}={text} is not a size: give a number of GB, as 20") from None
    return int(most)
