"""Tensors between main memory and a device, so that Python and a GPU wait for each other as seldom as can be."""

from collections.abc import Mapping

import torch
from torch import Tensor


def on_gpu(device: str | torch.device) -> bool:
    """Whether a device works through a queue, while Python goes on."""
    return torch.device(device).type not in ("cpu", "mps")


def send(tensor: Tensor, device: str | torch.device) -> Tensor:
    """A tensor of main memory on a device. Pinned first: else a GPU would finish all its work before it takes it."""
    if tensor.device.type == "cpu" and on_gpu(device):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def fetch(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in main memory, wherever they were: those of a device in one piece, so that it is waited for once."""
    away = {name: tensor.detach() for name, tensor in tensors.items() if tensor.device.type != "cpu"}
    if not away:
        return {name: tensor.detach() for name, tensor in tensors.items()}
    largest_first = sorted(away, key=lambda name: -away[name].element_size())  # so each begins where it may
    packed = torch.cat([as_bytes(away[name]) for name in largest_first]).cpu()
    sizes = [away[name].numel() * away[name].element_size() for name in largest_first]
    here = {
        name: piece.view(away[name].dtype).view(away[name].shape)
        for name, piece in zip(largest_first, torch.split(packed, sizes), strict=True)
    }
    return {name: here[name] if name in here else tensor.detach() for name, tensor in tensors.items()}


def as_bytes(tensor: Tensor) -> Tensor:
    """The content of a tensor (n,) as bytes. Copied first: one of a single number may have any stride."""
    return tensor.detach().reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)


def finish(device: str | torch.device) -> None:
    """Wait until a device has done all that it was given: a number that is asked for comes after it."""
    torch.zeros((), device=device).cpu()
