"""The optimiser and its learning rates."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import get_total_norm

from somnet.config import TrainConfig
from somnet.core.types import Phase
from somnet.methods.base import CLASSIFIER, Method


def make_optimizer(method: Method, config: TrainConfig) -> torch.optim.SGD:
    """SGD over the method's groups, which may have a momentum and weight decay of their own."""
    defaults = {"momentum": config.momentum, "weight_decay": config.weight_decay}
    return torch.optim.SGD([{**defaults, **group} for group in method.param_groups()], lr=config.lr)


def learning_rates(phase: Phase, progress: float) -> dict[str, float]:
    """Rate of each group when a share `progress` of the phase is done."""
    start, end = phase.anneal
    falling = 0.5 * (1 + math.cos(math.pi * (start + (end - start) * progress)))
    return {name: lr * falling for name, lr in phase.lr.items()}


def enter_phase(optimizer: torch.optim.Optimizer, phase: Phase) -> None:
    """Only the groups that the phase names are trained."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.requires_grad_(rate_name(group["name"]) in phase.lr)


def set_rates(optimizer: torch.optim.Optimizer, rates: dict[str, float]) -> None:
    """Put learning rates in force."""
    for group in optimizer.param_groups:
        group["lr"] = rates.get(rate_name(group["name"]), 0.0)


def set_classifier_decay(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Put a weight decay in force for classifiers alone."""
    for group in optimizer.param_groups:
        if group["name"].endswith(CLASSIFIER):
            group["weight_decay"] = decay


def rate_name(group: str) -> str:
    """The name by which a phase gives the rate of a group: `network` for `network.classifier`."""
    return group.removesuffix(CLASSIFIER)


def gradient_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Norm () of all that gradients are made of; NaN or infinite if any of it is.

    Rows of a sparse gradient that stand for the same row count one by one: to add them up would take a look at them.
    """
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return get_total_norm([grad._values() if grad.is_sparse else grad for grad in gradients])


def running_statistics(method: Method, phase: Phase) -> list[Tensor]:
    """What a forward pass alone changes in a phase: the statistics of batch normalisation."""
    if not phase.needs_images:
        return []
    layers = (layer for layer in method.modules() if isinstance(layer, _BatchNorm) and layer.training)
    return [statistic for layer in layers for statistic in layer.buffers(recurse=False)]


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others of the same kinds; a GPU does all of a kind at once."""
    for kind in {tensor.dtype for tensor in targets}:
        mine, theirs = ([tensor for tensor in tensors if tensor.dtype == kind] for tensors in (targets, sources))
        torch._foreach_copy_(mine, theirs)


def momentum_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Momentum of each parameter, by group and place."""
    return {
        f"{group['name']}.{place}": buffer
        for group in optimizer.param_groups
        for place, parameter in enumerate(group["params"])
        if (buffer := optimizer.state[parameter].get("momentum_buffer")) is not None
    }


def restore_momentum(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `momentum_tensors`."""
    for group in optimizer.param_groups:
        for place, parameter in enumerate(group["params"]):
            buffer = tensors.get(f"{group['name']}.{place}")
            if buffer is not None:
                optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
