"""A batch of bags, a phase of training, and the legend of dimension letters.

B  bags in a batch             G  images in a bag (the paper's n_g)
P  boxes of an image: box 0 is the image itself, then n_p proposals
N  ROIs in a bag, G * P (the paper's n_b)
I  images in a batch, B * G    R  any number of ROIs      V  views of an image
F  width of a feature          H, W  height and width of a feature map
L  memory slots                K  slots in a neighbourhood       C  classes
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from torch import Tensor

Losses = dict[str, Tensor]
"""Named scalars of one step; the loop sums them."""


@dataclass(frozen=True)
class BagBatch:
    """A batch of bags: G different images of one class each, with their boxes."""

    rows: Tensor  # (B, G) which training images, by number
    label: Tensor  # (B,)
    boxes: Tensor  # (B, G, P, 4) xyxy as shares of width and height; box 0 is the image
    mask: Tensor  # (B, G, P) False for padding, which never gets weight
    images: Tensor  # (I * V, 3, H, W) pixels or (I * V, F', H, W) cached maps; (0,) in a phase that needs none

    def to(self, device: str) -> "BagBatch":
        """The same bags on another device."""
        return BagBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


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
