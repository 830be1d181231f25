"""The self-organizing memory module (Section 3.3): keys, discriminative and representative values.

Layout: keys (L, F) are kept at unit length; d (L, C) has a row per slot and r (C, L) a row per class, so that
what a step changes is always whole rows. Rows are fetched with sparse gradients: a step on 10,000 slots and
1,000 classes then touches the winners' neighbourhoods only.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from somnet.core.grid import neighbourhood

SMALLEST = 1e-6  # values stay positive, so that a slot once lost for a class can come back


def similarity(x: Tensor, keys: Tensor) -> Tensor:
    """cos(x, k_l) of each feature with each key; the keys have unit length."""
    return F.normalize(x, dim=-1) @ keys.T  # (B, L)


def winner(x: Tensor, keys: Tensor) -> Tensor:
    """Eq. 2: the slot z whose key is nearest to each feature."""
    return similarity(x, keys).argmax(dim=-1)  # (B,)


def two_nearest(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and slot of the winner of Eq. 2 and of the runner-up, (B, 2) each; a lone slot is both."""
    cosine, slot = similarity(x, keys).topk(min(2, len(keys)), dim=-1)
    return cosine.expand(-1, 2), slot.expand(-1, 2)


def key_loss(x: Tensor, winner_keys: Tensor) -> Tensor:
    """Eq. 3: pulls the winner's key towards the bag feature; Eq. 8 with radius 0."""
    return -F.cosine_similarity(x, winner_keys, dim=-1).sum()


def d_value_loss(d_winner: Tensor, label: Tensor) -> Tensor:
    """Eq. 4: -cos(y, d_z), pulls the winner's class distribution towards the bag's label.

    y is one-hot, so the cosine is the label's entry over the row's length.
    """
    cosine: Tensor = _entry(d_winner, label) / torch.linalg.vector_norm(d_winner, dim=1)
    return -cosine.sum()


def r_value_loss(r_label: Tensor, slot: Tensor) -> Tensor:
    """Eq. 6: -cos(z, r_y), pulls the class's distribution over slots towards the winner."""
    cosine: Tensor = _entry(r_label, slot) / torch.linalg.vector_norm(r_label, dim=1)
    return -cosine.sum()


def to_simplex(rows: Tensor) -> Tensor:
    """Eq. 5 and 7: non-negative rows that sum to 1, restored after each step."""
    positive = rows.clamp(min=SMALLEST)
    return positive / positive.sum(dim=-1, keepdim=True)


def som_key_loss(x: Tensor, neighbour_keys: Tensor, eta: Tensor) -> Tensor:
    """Eq. 8: Eq. 3 for the whole neighbourhood, each key weighted by eta."""
    cosine = F.cosine_similarity(x[:, None], neighbour_keys, dim=-1)  # (B, K)
    return -(eta * cosine).sum()


def memory_loss(
    x: Tensor, label: Tensor, slot: Tensor, neighbour_keys: Tensor, eta: Tensor, d_winner: Tensor, r_label: Tensor
) -> dict[str, Tensor]:
    """Eq. 9: the loss of the memory, as its three terms; the loop sums them."""
    return {
        "som_key": som_key_loss(x, neighbour_keys, eta),
        "d_value": d_value_loss(d_winner, label),
        "r_value": r_value_loss(r_label, slot),
    }


def prototypical_score(d_score: Tensor, r_score: Tensor) -> Tensor:
    """S = D o R: how much a slot is a prototype of a class (Section 3.4)."""
    return d_score * r_score


def exact_ratios(slot: Tensor, label: Tensor, slots: int, classes: int) -> tuple[Tensor, Tensor]:
    """The ratios d~ (L, C) and r~ (C, L) that D and R approximate, counted over a set of bags."""
    pair = slot * classes + label
    counts = torch.bincount(pair, minlength=slots * classes).view(slots, classes).float()  # (L, C) n_{y,l}
    d = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    r = (counts / counts.sum(dim=0, keepdim=True).clamp(min=1)).T
    return d, r.contiguous()


def _entry(rows: Tensor, column: Tensor) -> Tensor:
    return rows.gather(1, column[:, None]).squeeze(1)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index, table, sparse=True)


class SelfOrganizingMemory(nn.Module):
    """Holds K, D and R; all mathematics is in the functions above."""

    neighbours: Tensor
    eta: Tensor

    def __init__(self, side: int, width: int, classes: int, radius: int) -> None:
        super().__init__()
        slots = side * side
        self.side = side
        self.keys = nn.Parameter(F.normalize(torch.randn(slots, width), dim=1))  # (L, F)
        self.d = nn.Parameter(torch.full((slots, classes), 1.0 / classes))  # (L, C)
        self.r = nn.Parameter(torch.full((classes, slots), 1.0 / slots))  # (C, L)
        index, eta = neighbourhood(side, radius)
        self.register_buffer("neighbours", index, persistent=False)  # (L, K)
        self.register_buffer("eta", eta, persistent=False)  # (L, K)
        self.neighbours_in_memory = index  # the same as a table that stays in main memory

    def start_from(self, features: Tensor, generator: torch.Generator, real: Tensor | None = None) -> None:
        """Keys start as random ones of the features (..., F), of those that are real (...), all if none is given.

        Slots beyond their number start as noisy copies.
        """
        real = torch.ones(features.shape[:-1], dtype=torch.bool) if real is None else real
        slots, places = len(self.keys), real.flatten().nonzero().squeeze(1)
        order = torch.cat([torch.randperm(len(places), generator=generator) for _ in range(-(-slots // len(places)))])
        start = F.normalize(features.flatten(0, -2)[places[order[:slots]]].float(), dim=1)
        noise = torch.randn(start.shape, generator=generator) / start.shape[1] ** 0.5
        noise[: len(places)] = 0.0
        self.keys.data.copy_(F.normalize(start + 0.1 * noise, dim=1))

    def set_clusters(self, keys: Tensor, slot: Tensor, label: Tensor) -> None:
        """Take given cluster centres, and the exact ratios of the bags that belong to them (SOMNet+K-means)."""
        self.keys.data.copy_(F.normalize(keys, dim=1))
        d, r = exact_ratios(slot, label, len(self.keys), self.d.shape[1])
        self.d.data.copy_(to_simplex(d))
        self.r.data.copy_(to_simplex(r))

    @torch.no_grad()
    def nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Eq. 2: cosines and slots of the winner and the runner-up of bag features x (B, F), (B, 2) each."""
        return two_nearest(x, self.keys)

    def losses(self, x: Tensor, label: Tensor, slot: Tensor) -> dict[str, Tensor]:
        """The terms of Eq. 9 for bag features x (B, F), their labels (B,) and winners (B,)."""
        neighbour_keys = _rows(self.keys, self.neighbours[slot])  # (B, K, F)
        return memory_loss(x, label, slot, neighbour_keys, self.eta[slot], _rows(self.d, slot), _rows(self.r, label))

    def project(self, slot: Tensor, label: Tensor) -> None:
        """Restore the constraints after a step whose bags have these winners and labels (B,), both in main memory."""
        self.restore(*self.changed(slot, label))

    def changed(self, slot: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """The slots and the classes whose rows such a step has changed, each once."""
        return torch.unique(self.neighbours_in_memory[slot]), torch.unique(label)

    @torch.no_grad()
    def restore(self, slots: Tensor, classes: Tensor) -> None:
        """Unit keys and the constraints of Eq. 5 and 7, for the rows of some slots and classes."""
        self.keys[slots] = F.normalize(self.keys[slots], dim=1)
        self.d[slots] = to_simplex(self.d[slots])
        self.r[classes] = to_simplex(self.r[classes])

    @torch.no_grad()
    def scores(self, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Winner slot, d-score and r-score of features x (..., F) for labels (...)."""
        slot = winner(x, self.keys)
        return slot, self.d[slot, label], self.r[label, slot]
