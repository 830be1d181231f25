"""What is watched during an epoch beside the losses: how the memory is used, and how steady the scores are."""

import torch
from torch import Tensor

from somnet.methods.base import Observation
from somnet.runs.map_quality import occupancy_entropy, quantisation_errors, rank_correlation, topographic_errors

UNSEEN = -1.0  # in place of the score of an image that was not used


class Watch:
    """Sums over an epoch. They are part of a checkpoint, so that a resumed epoch logs the same numbers.

    memory/...        of the bag features of the epoch, at the step in which they were used
    scores/stability  rank correlation of the images' scores with those that they had an epoch before
    """

    def __init__(self, images: int) -> None:
        self.wins = torch.zeros(0, dtype=torch.int64)  # (L,) empty where there is no memory
        self.quantisation, self.topographic = 0.0, 0.0  # sums of the errors
        self.before = torch.full((images,), UNSEEN)  # (n,)
        self.now = torch.full((images,), UNSEEN)  # (n,)

    def add(self, observed: Observation) -> None:
        """Take note of what a step saw, in main memory."""
        if observed.rows is not None and observed.scores is not None:
            self.now[observed.rows] = observed.scores.float()
        if observed.slots is not None and observed.cosines is not None:
            slots, side = observed.slots, observed.memory_side  # (B, 2)
            first, second = slots.unbind(1)  # (B,) each
            won = torch.bincount(first, minlength=side * side)  # (L,)
            self.wins = self.wins + won if len(self.wins) else won
            self.quantisation += float(quantisation_errors(observed.cosines[:, 0]).sum())
            self.topographic += float(topographic_errors(first, second, side).sum())

    def close_epoch(self) -> dict[str, float]:
        """The figures of the epoch that has ended."""
        figures: dict[str, float] = {}
        if bags := int(self.wins.sum()):
            figures |= {
                "memory/occupancy": occupancy_entropy(self.wins),
                "memory/quantisation": self.quantisation / bags,
                "memory/topographic": self.topographic / bags,
                "memory/dead": float((self.wins == 0).sum()),
            }
        both = (self.before >= 0) & (self.now >= 0)
        if (stability := rank_correlation(self.before[both], self.now[both])) is not None:
            figures["scores/stability"] = stability
        self.wins, self.quantisation, self.topographic = torch.zeros_like(self.wins), 0.0, 0.0
        self.before, self.now = self.now, torch.full_like(self.now, UNSEEN)
        return figures

    def forget_scores(self) -> None:
        """A phase of another kind begins, whose scores mean something else."""
        self.before, self.now = torch.full_like(self.before, UNSEEN), torch.full_like(self.now, UNSEEN)

    def state(self) -> dict[str, Tensor]:
        """All that a resume needs."""
        errors = torch.tensor([self.quantisation, self.topographic], dtype=torch.float64)
        return {"wins": self.wins, "errors": errors, "before": self.before, "now": self.now}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue where a checkpoint was made; one of an older version has nothing to tell."""
        if state:
            self.wins, self.before, self.now = (state[name].clone() for name in ("wins", "before", "now"))
            self.quantisation, self.topographic = state["errors"].tolist()
