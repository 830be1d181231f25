"""Some arrays of a checkpoint, read without torch, which takes seconds and half a gigabyte to load."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from somnet.errors import RunError


class Checksum:
    """Of all that a checkpoint says: a bit that a disk has changed would give another network, and no error."""

    def __init__(self, state: str) -> None:
        self._digest = hashlib.blake2b(state.encode(), digest_size=16)

    def add(self, name: str, kind: str, shape: tuple[int, ...], content: NDArray[np.uint8]) -> None:
        """The next array as bytes, in the order of their names; its kind as torch calls it."""
        self._digest.update(f"{name} {kind} {shape}".encode())
        self._digest.update(content.data)

    def text(self) -> str:
        """As it stands in the file."""
        return self._digest.hexdigest()


def load_arrays(file: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that a checkpoint has; the whole of it is checked, as `load_checkpoint` does."""
    found: dict[str, NDArray[Any]] = {}
    try:
        with safe_open(file, framework="numpy") as reader:
            about = reader.metadata() or {}
            checksum = Checksum(about["state"])
            for name in sorted(reader.keys()):
                array = reader.get_tensor(name)
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                checksum.add(name, f"torch.{array.dtype}", array.shape, content)
                if name in names:
                    found[name] = array
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{file} is not a somnet checkpoint ({error}): train again with --overwrite") from None
    if about.get("checksum", checksum.text()) != checksum.text():  # older ones have none
        raise RunError(f"{file} is damaged: bring back a copy of it, or train again with --overwrite")
    if bad := [name for name, array in found.items() if not np.isfinite(array).all()]:
        raise RunError(f"{file} contains NaN or infinite values in {bad[0]}: train again with --overwrite")
    return found
