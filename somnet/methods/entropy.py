"""For methods whose losses are made of the entropy and the divergence of predictions."""

from torch import Tensor

from somnet.core.losses import weighted_mean


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy H(p) of predictions, from logits (I, C)."""
    log_p = logits.log_softmax(dim=1)  # (I, C)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def divergence(logits: Tensor, other: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean KL(p || q) of the distributions p and q, from logits (I, C) of both, each times its weight (I,)."""
    log_p, log_q = logits.log_softmax(dim=1), other.log_softmax(dim=1)  # (I, C)
    return weighted_mean((log_p.exp() * (log_p - log_q)).sum(dim=1), weight)
