"""A row of C numbers for each training image, in little memory."""

from collections.abc import Mapping

import torch
from torch import Tensor

from somnet.nn.tables import WithTables
from somnet.system.transfer import send

KEPT = 16  # entries of a row that are kept one by one


class SampleTable(WithTables):
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
        self.register_table("place", torch.arange(self.kept, dtype=kind).repeat(count, 1))
        self.register_table("value", torch.zeros(count, self.kept))
        self.register_table("rest", torch.zeros(count))

    def get(self, rows: Tensor, device: str | torch.device = "cpu") -> Tensor:
        """Whole rows (I, C), on a device."""
        place, value, rest = (send(table[rows], device) for table in (self.place, self.value, self.rest))
        return rest[:, None].repeat(1, self.classes).scatter(1, place.long(), value)

    def entries(self, dense: Tensor) -> dict[str, Tensor]:
        """What the table would keep of rows (I, C), wherever they are; no gradient is kept."""
        dense = dense.detach()
        if self.kept == self.classes:
            return {"value": dense}
        value, place = dense.topk(self.kept, dim=1)
        rest = (dense.sum(dim=1) - value.sum(dim=1)) / (self.classes - self.kept)
        return {"place": place.to(self.place.dtype), "value": value, "rest": rest}

    def put(self, rows: Tensor, dense: Tensor) -> None:
        """Replace rows by (I, C), both in main memory; no gradient is kept."""
        self.put_entries(rows, self.entries(dense))

    def put_entries(self, rows: Tensor, entries: Mapping[str, Tensor]) -> None:
        """The same by what the table keeps of them; there may be more in the mapping."""
        for name in ("value",) if self.kept == self.classes else ("place", "value", "rest"):
            self.get_buffer(name)[rows] = entries[name]
