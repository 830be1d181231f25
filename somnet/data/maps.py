"""Outputs of a frozen trunk, computed once per image and kept on disk as float16, keyed by content and weights.

A chunk is an array file and a file of keys, each with a checksum of its map, written in this order: a chunk without
keys does not count. Reading is by memory map, so that a data set need not fit into memory. Every map is checked when it
is looked for and when it is read: a chunk with a damaged one is deleted, and its maps are computed again.
"""

import contextlib
import errno
import hashlib
import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.errors import DataError
from somnet.system.files import allow_many_files, atomic_path, cache_folder, touch

log = logging.getLogger("somnet")

KEY_BYTES, SUM_BYTES = 16, 8
KEYS, ARRAY = ".sums", ".npy"  # how the names of a chunk's two files end


class MapStore:
    """Cached maps of one trunk; of any shape, if none is given."""

    def __init__(self, fingerprint: str, shape: tuple[int, ...] | None = None) -> None:
        self.folder = cache_folder() / "maps" / fingerprint
        self.shape = shape
        self._where: dict[bytes, tuple[int, int]] = {}
        self._chunks: list[tuple[Path, NDArray[np.float16], bytes]] = []  # file of keys, maps, content of the former
        self._checked: set[bytes] = set()
        self._used: set[int] = set()
        self.dropped: list[Path] = []  # chunks that were damaged
        allow_many_files()  # an open chunk is one
        for keys_file in sorted(self.folder.glob(f"{'[0-9a-f]' * 16}{KEYS}")):
            self._open(keys_file)

    def __contains__(self, key: bytes) -> bool:
        while (place := self._where.get(key)) is not None and key not in self._checked:
            if self._sound(key, *place):
                self._checked.add(key)
            else:
                self._drop(place[0])
        return place is not None

    def __getitem__(self, key: bytes) -> Tensor:
        if key not in self._where:
            raise DataError(f"the cache {self.folder} has lost a map that it was given: continue with --resume")
        chunk, row = self._where[key]
        found = self._chunks[chunk][1][row].copy()
        if _checksum(key, found) != self._checksum_of(chunk, row):
            raise DataError(
                f"the cache file {self._chunks[chunk][0].with_suffix(ARRAY)} was damaged while it was read: continue "
                "with --resume, which computes it again, and have the disk checked"
            )
        return torch.from_numpy(found)

    def add(self, keys: list[bytes], maps: Tensor) -> None:
        """Keep the maps (n, ...) of some images."""
        name = hashlib.sha256(b"".join(keys)).hexdigest()[:16]
        values = maps.to(torch.float16).cpu().numpy()
        with atomic_path(self.folder / f"{name}{ARRAY}") as temporary, temporary.open("wb") as file:
            np.save(file, values, allow_pickle=False)
        with atomic_path(self.folder / f"{name}{KEYS}") as temporary:
            sums = (_checksum(key, value) for key, value in zip(keys, values, strict=True))
            temporary.write_bytes(b"".join(key + own for key, own in zip(keys, sums, strict=True)))
        self._open(self.folder / f"{name}{KEYS}")

    def verify(self) -> list[Path]:
        """Check all maps; the chunks that were damaged and are deleted."""
        for key in list(self._where):
            _ = key in self
        return self.dropped

    def _open(self, keys_file: Path) -> None:
        step = KEY_BYTES + SUM_BYTES
        try:
            raw = keys_file.read_bytes()
            maps = np.load(keys_file.with_suffix(ARRAY), mmap_mode="r", allow_pickle=False)
        except (FileNotFoundError, ValueError, EOFError):
            maps = None
        except OSError as error:  # which says nothing about what is in it
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                limit = "sysctl vm.max_map_count=1000000" if error.errno == errno.ENOMEM else "ulimit -n 65536"
                raise DataError(
                    f"cannot open another file of the cache {self.folder}: {error.strerror}: raise the limit, as with "
                    f"{limit}"
                ) from None
            log.warning("the cache file %s cannot be read (%s): its maps are computed again", keys_file, error.strerror)
            return
        if maps is None or len(raw) % step or maps.dtype != np.float16 or len(maps) != len(raw) // step:
            self._delete(keys_file)
            return
        if self.shape is not None and maps.shape[1:] != self.shape:
            return
        self._chunks.append((keys_file, maps, raw))
        self._list(len(self._chunks) - 1)

    def _list(self, chunk: int) -> None:
        step, raw = KEY_BYTES + SUM_BYTES, self._chunks[chunk][2]
        self._where.update((raw[i : i + KEY_BYTES], (chunk, i // step)) for i in range(0, len(raw), step))

    def _checksum_of(self, chunk: int, row: int) -> bytes:
        end = (row + 1) * (KEY_BYTES + SUM_BYTES)
        return self._chunks[chunk][2][end - SUM_BYTES : end]

    def _sound(self, key: bytes, chunk: int, row: int) -> bool:
        if chunk not in self._used:
            self._used.add(chunk)
            touch(self._chunks[chunk][0])
        return _checksum(key, self._chunks[chunk][1][row]) == self._checksum_of(chunk, row)

    def _drop(self, chunk: int) -> None:
        self._delete(self._chunks[chunk][0])
        self._where, before = {}, self._where
        for number, (file, _, _) in enumerate(self._chunks):  # what it had may be in another one, too
            if file not in self.dropped:
                self._list(number)
        self._checked = {key for key in self._checked if self._where.get(key) == before[key]}

    def _delete(self, keys_file: Path) -> None:
        log.warning("the cache file %s is damaged: its maps are computed again", keys_file.with_suffix(ARRAY))
        self.dropped.append(keys_file)
        for file in (keys_file, keys_file.with_suffix(ARRAY)):
            with contextlib.suppress(OSError):  # a cache that one may only read
                file.unlink(missing_ok=True)


def _checksum(key: bytes, value: NDArray[np.float16]) -> bytes:
    """Of a map and of what it belongs to."""
    return hashlib.blake2b(key + value.tobytes(), digest_size=SUM_BYTES).digest()
