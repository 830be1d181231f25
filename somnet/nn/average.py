"""Networks that follow another one slowly."""

import torch
from torch import nn


def warm_momentum(momentum: float, steps: int) -> float:
    """Momentum of a moving average after `steps` steps: a plain mean at first, so that the start does not linger."""
    return min(momentum, 1 - 1 / (steps + 1))


@torch.no_grad()
def follow(average: nn.Module, module: nn.Module, momentum: float) -> None:
    """average <- momentum average + (1 - momentum) module, for all numbers of modules that are built alike."""
    theirs = module.state_dict()
    for name, mine in average.state_dict().items():
        if mine.is_floating_point():
            mine.lerp_(theirs[name], 1 - momentum)
        else:
            mine.copy_(theirs[name])  # counters
