"""MixUp, for the methods that use it: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018."""

import torch
from torch import Tensor


def mix_up(images: Tensor, target: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Images and their targets (I, C), each mixed with those of a random other one, all in the same proportion.

    The proportion is drawn from Beta(alpha, alpha), and an image stays more itself than its partner.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    share = max(share, 1 - share)
    partner = torch.randperm(len(images), device=images.device)
    images = images.float()  # pixels too: 0 to 255
    return share * images + (1 - share) * images[partner], share * target + (1 - share) * target[partner]


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-<target, log p> of each image (I,), for targets (I, C) that are distributions."""
    return -(target * logits.log_softmax(dim=1)).sum(dim=1)
