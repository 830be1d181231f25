"""From memory scores to ROI weights to the bag feature (Sections 3.2 and 3.4)."""

import torch
from torch import Tensor


def initial_weights(mask: Tensor) -> Tensor:
    """w-bar: at first the images of a bag share the weight evenly and proposals have none (Section 3.2)."""
    weights = torch.zeros(mask.shape, device=mask.device)  # (B, G, P)
    weights[..., 0] = mask[..., 0].float()
    return normalise(weights.flatten(1)).view(mask.shape)


def area_score(boxes: Tensor, mask: Tensor) -> Tensor:
    """sigma(x): 1 for the image, for a proposal its area over that of the image's largest proposal."""
    width_height = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)  # (..., P, 2)
    area = width_height.prod(dim=-1) * mask  # (..., P)
    proposals = area[..., 1:]
    score = area.new_ones(area.shape)
    if proposals.shape[-1]:
        largest = proposals.amax(dim=-1, keepdim=True).clamp(min=torch.finfo(area.dtype).tiny)
        score[..., 1:] = proposals / largest
    return score * mask


def roi_weight(prototypical: Tensor, area: Tensor) -> Tensor:
    """Eq. 10: weight of each ROI, its slot's prototypical score times its area score."""
    return prototypical * area


def keep_top(weights: Tensor, mask: Tensor, share: float) -> Tensor:
    """Keep the largest `share` (the paper's p) of a bag's weights, at least one, and set the others to 0."""
    weights = weights * mask  # (B, N)
    count = (share * mask.sum(dim=1)).round().clamp(min=1).long()  # (B,)
    rank = weights.argsort(dim=1, descending=True, stable=True).argsort(dim=1)  # (B, N)
    return torch.where(rank < count[:, None], weights, 0.0)


def normalise(weights: Tensor) -> Tensor:
    """Weights of each bag sum to 1."""
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def bag_feature(weights: Tensor, features: Tensor) -> Tensor:
    """x-bar: the weighted average of a bag's ROI features."""
    return torch.einsum("bn,bnf->bf", weights, features)  # (B, F)
