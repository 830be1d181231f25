"""A row of C numbers for each training image, in little memory."""

import torch
from torch import Tensor, nn

KEPT = 16  # entries of a row that are kept one by one


class SampleTable(nn.Module):
    """Rows (n, C) of which the largest entries are kept one by one and the others as their mean.

    Sums over a row are exact, so that a distribution stays one; with up to 16 classes all of it is. At 1,000,000
    images of 1,000 classes it takes 100 MB, where a dense table takes 4 GB.
    """

    place: Tensor  # (n, K) classes of the kept entries
    value: Tensor  # (n, K)
    rest: Tensor  # (n,) mean of the others

    def __init__(self, count: int, classes: int, kept: int = KEPT) -> None:
        super().__init__()
        self.classes, self.kept = classes, min(kept, classes)
        kind = torch.int16 if classes <= torch.iinfo(torch.int16).max else torch.int32
        self.register_buffer("place", torch.arange(self.kept, dtype=kind).repeat(count, 1))
        self.register_buffer("value", torch.zeros(count, self.kept))
        self.register_buffer("rest", torch.zeros(count))

    def get(self, rows: Tensor) -> Tensor:
        """Whole rows (I, C)."""
        dense = self.rest[rows][:, None].repeat(1, self.classes)  # (I, C)
        return dense.scatter(1, self.place[rows].long(), self.value[rows])

    def put(self, rows: Tensor, dense: Tensor) -> None:
        """Replace rows by (I, C); no gradient is kept."""
        dense = dense.detach()
        if self.kept == self.classes:
            self.value[rows] = dense
            return
        value, place = dense.topk(self.kept, dim=1)
        self.place[rows], self.value[rows] = place.to(self.place.dtype), value
        self.rest[rows] = (dense.sum(dim=1) - value.sum(dim=1)) / (self.classes - self.kept)
