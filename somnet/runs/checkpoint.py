"""The whole state of a run in one safetensors file: tensors, and a JSON text in its header. Nothing can execute."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from somnet.errors import RunError
from somnet.methods.base import Method
from somnet.runs.checkpoint_arrays import Checksum
from somnet.system.files import atomic_path, parse_json

MOST_STATE = 50_000_000  # characters; one can become 25 bytes in memory
METHOD = "method."  # how the names of a method's tensors begin


def save_checkpoint(file: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write atomically: a kill leaves the old checkpoint or the new one."""
    with atomic_path(file) as temporary:
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            text = json.dumps(state)
            save_file(whole, temporary, metadata={"state": text, "checksum": _checksum(whole, text)})
        except SafetensorError as error:  # of a full disk, too
            raise OSError(str(error)) from error


def load_checkpoint(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint."""
    try:
        with safe_open(file, framework="pt") as reader:
            about = reader.metadata() or {}
            if len(about["state"]) > MOST_STATE:
                raise ValueError("its state is far too long")
            state = parse_json(about["state"])
            tensors = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{file} does not exist: train first, or give the folder of a run") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{file} is not a somnet checkpoint ({error}): train again with --overwrite") from None
    told = about.get("checksum")  # older ones have none
    if told is not None and told != _checksum(tensors, about["state"]):
        raise RunError(f"{file} is damaged: bring back a copy of it, or train again with --overwrite")
    if not isinstance(state, dict):
        raise RunError(f"{file} is not a somnet checkpoint: train again with --overwrite")
    if bad := [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]:
        raise RunError(f"{file} contains NaN or infinite values in {bad[0]}: train again with --overwrite")
    return tensors, state


def _checksum(tensors: Mapping[str, Tensor], state: str) -> str:
    checksum = Checksum(state)
    for name, tensor in sorted(tensors.items()):
        content = tensor.reshape(-1).view(torch.uint8).numpy()
        checksum.add(name, str(tensor.dtype), tuple(tensor.shape), content)
    return checksum.text()


def restore_method(method: Method, tensors: Mapping[str, Tensor]) -> None:
    """Give a method the state that a checkpoint has of it; ValueError where it does not match."""
    state = {name.removeprefix(METHOD): tensor for name, tensor in tensors.items() if name.startswith(METHOD)}
    for name, own in method.state_dict().items():
        if name in state and (state[name].dtype, state[name].shape) != (own.dtype, own.shape):
            raise ValueError(
                f"{name} is {state[name].dtype} {list(state[name].shape)}, not {own.dtype} {list(own.shape)}"
            )
    try:
        method.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from None
