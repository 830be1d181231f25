"""ROI features: the mean of a feature map over a box, as one matrix product.

Averaging over a box is linear and separable: the share of cell (i, j) in a box is the share of row i times the
share of column j. So all boxes of an image are one product (P, HW) @ (HW, F): exact, differentiable, and with
no kernel of its own. The image is just a box.
"""

import torch
from torch import Tensor


def overlap(low: Tensor, high: Tensor, cells: int) -> Tensor:
    """Share of an interval [low, high] of the unit line that lies in each of its equal cells."""
    edges = torch.linspace(0, 1, cells + 1, device=low.device, dtype=low.dtype)
    length = torch.minimum(high[..., None], edges[1:]) - torch.maximum(low[..., None], edges[:-1])
    length = length.clamp(min=0)  # (..., cells)
    total = length.sum(dim=-1, keepdim=True)
    return length / total.where(total > 0, 1)


def pool_boxes(maps: Tensor, boxes: Tensor) -> Tensor:
    """Mean of each map over each of its boxes (xyxy, as shares of width and height); empty boxes give 0."""
    height, width = maps.shape[-2:]
    columns = overlap(boxes[..., 0], boxes[..., 2], width)  # (I, P, W)
    rows = overlap(boxes[..., 1], boxes[..., 3], height)  # (I, P, H)
    cells = (rows[..., :, None] * columns[..., None, :]).flatten(2)  # (I, P, HW)
    return torch.bmm(cells.to(maps.dtype), maps.flatten(2).transpose(1, 2))  # (I, P, F)


def pool_image(maps: Tensor) -> Tensor:
    """Mean (I, F) of each map: of the sum, as its backward pass writes no map."""
    return maps.sum(dim=(2, 3)) / (maps.shape[2] * maps.shape[3])
