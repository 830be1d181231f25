"""Outputs of a frozen trunk, computed once per image and kept on disk as float16, keyed by content and weights.

A chunk is an array file and a file of keys, written in this order: a chunk without keys does not count. Reading is
by memory map, so that a data set need not fit into memory.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.system.files import atomic_path, cache_folder

KEY_BYTES = 16


class MapStore:
    """Cached maps of one trunk."""

    def __init__(self, fingerprint: str, shape: tuple[int, ...]) -> None:
        self.folder = cache_folder() / "maps" / fingerprint
        self.shape = shape
        self._where: dict[bytes, tuple[int, int]] = {}
        self._chunks: list[NDArray[np.float16]] = []
        for keys_file in sorted(self.folder.glob("*.keys")):
            self._open(keys_file)

    def __contains__(self, key: bytes) -> bool:
        return key in self._where

    def __getitem__(self, key: bytes) -> Tensor:
        chunk, row = self._where[key]
        return torch.from_numpy(self._chunks[chunk][row].copy())

    def add(self, keys: list[bytes], maps: Tensor) -> None:
        """Keep the maps (n, ...) of some images."""
        name = hashlib.sha256(b"".join(keys)).hexdigest()[:16]
        with atomic_path(self.folder / f"{name}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, maps.to(torch.float16).cpu().numpy(), allow_pickle=False)
        with atomic_path(self.folder / f"{name}.keys") as temporary:
            temporary.write_bytes(b"".join(keys))
        self._open(self.folder / f"{name}.keys")

    def _open(self, keys_file: Path) -> None:
        raw = keys_file.read_bytes()
        keys = [raw[i : i + KEY_BYTES] for i in range(0, len(raw), KEY_BYTES)]
        try:
            maps = np.load(keys_file.with_suffix(".npy"), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return  # a damaged chunk is ignored
        if maps.shape != (len(keys), *self.shape):
            return
        self._where.update((key, (len(self._chunks), row)) for row, key in enumerate(keys))
        self._chunks.append(maps)
