"""The loss of the classifier and the total."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def classification_loss(logits: Tensor, label: Tensor, weight: Tensor | None = None) -> Tensor:
    """Eq. 1: cross entropy of the bag features, as a mean over the batch so that lr does not depend on its size.

    The loss of each bag is multiplied by its weight (B,), if it has one.
    """
    if weight is None:
        return F.cross_entropy(logits, label)
    return weighted_mean(F.cross_entropy(logits, label, reduction="none"), weight)


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over the batch of losses (B,), each multiplied by its weight (B,): a weight of 0.5 pulls half as hard."""
    return losses.mean() if weight is None else (weight * losses).mean()


def scale_gradient(x: Tensor, bags: int) -> Tensor:
    """The same bag features (B, F), through which a sum over a batch of bags trains the CNN as strongly as a mean.

    Eq. 11 adds the memory's loss to the classifier's. Ours of the memory is a sum, so that its rates do not depend on
    the batch; into the CNN it must go as a mean, like Eq. 1.
    """
    return x.detach() + (x - x.detach()) / bags


def total_loss(losses: Mapping[str, Tensor]) -> Tensor:
    """Eq. 11: what a step minimises, in SOMNet's joint phase L_cls + L_memory."""
    return torch.stack(list(losses.values())).sum()
