"""A batch of bags, a phase of training, and the legend of dimension letters.

B  bags in a batch             G  images in a bag (the paper's n_g)
P  boxes of an image: box 0 is the image itself, then n_p proposals
N  ROIs in a bag, G * P (the paper's n_b)
I  images in a batch, B * G    R  any number of ROIs      V  views of an image
F  width of a feature          H, W  height and width of a feature map
L  memory slots                K  slots in a neighbourhood       C  classes
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

Losses = dict[str, Tensor]
"""Named scalars of one step; the loop sums them."""


@dataclass(frozen=True)
class BagBatch:
    """A batch of bags: G different images of one class each, with their boxes."""

    rows: Tensor  # (B, G) which training images, by number; in main memory, as all that has a row per image
    label: Tensor  # (B,)
    boxes: Tensor  # (B, G, P, 4) xyxy as shares of width and height; box 0 is the image
    mask: Tensor  # (B, G, P) False for padding, which never gets weight
    images: Tensor  # (I * V, 3, H, W) pixels or (I * V, F', H, W) cached maps; (0,) in a phase that needs none
    weight: Tensor | None = None  # (B, G) how much each image counts in the losses; None: all the same
    whole: int = 0  # how many bags the ranks have together, which share a batch; 0: these are all
    source: "BagBatch | None" = None  # the same in main memory, if these bags are on a device

    @property
    def in_memory(self) -> "BagBatch":
        """The same bags in main memory, where a look at their values costs no waiting."""
        return self if self.source is None else self.source

    def to(self, device: str) -> "BagBatch":
        """The same bags on a device; from pinned memory they are copied while Python goes on."""
        moved = {name: part.to(device, non_blocking=True) for name, part in self._parts().items()}
        here = moved["label"].device == self.label.device
        return self if here else replace(self, source=self.in_memory, **moved)

    def pin_memory(self) -> "BagBatch":
        """The same bags in memory that a GPU can copy from by itself."""
        return replace(self, **{name: part.pin_memory() for name, part in self._parts().items()})

    def bag_weight(self) -> Tensor | None:
        """How much each bag counts (B,), the mean of its images; None: all the same."""
        if self.weight is None:
            return None
        real = self.mask[..., 0]  # (B, G)
        return (self.weight * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)

    def _parts(self) -> dict[str, Any]:
        """What a device is given."""
        parts = {name: getattr(self, name) for name in ("label", "boxes", "mask", "images", "weight")}
        return {name: part for name, part in parts.items() if part is not None}


@dataclass(frozen=True)
class Phase:
    """One stretch of training, as data. Parameter groups that `lr` does not name stay as they are."""

    name: str
    epochs: int
    lr: Mapping[str, float]
    anneal: tuple[float, float] = (0.0, 0.0)  # the stretch of a falling half cosine that the phase covers
    keep: float | None = None  # the paper's p: share of ROIs that keep their weight; None: no ROI is weighted
    images_per_bag: int = 1
    views: int = 1  # V, of each image that a step sees, drawn anew each time
    regions: bool = False  # True: a step sees the image and its first proposals, all of them, each at full size
    needs_images: bool = True  # False: the method works on features it has prepared
    passes: float = 1.0  # of its images through a network with gradient, an epoch; told beside every result
    fresh: bool = False  # True: the optimiser's momentum starts from zero, as for a new network
