"""The containers that travel between the floors, and the legend of dimension letters.

B  bags in a batch             G  images in a bag (the paper's n_g)
P  boxes of an image: box 0 is the image itself, then n_p proposals
N  ROIs in a bag, G * P (the paper's n_b)
I  images in a batch, B * G    R  any number of ROIs
F  width of a feature          H, W  height and width of a feature map
L  memory slots                K  slots in a neighbourhood       C  classes
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

Losses = dict[str, Tensor]
"""Named scalars of one step; the loop sums them."""


@dataclass(frozen=True)
class Bag:
    """A batch of bags: G different images of one class each, with their boxes."""

    index: Tensor  # (B, G) which training images
    label: Tensor  # (B,)
    boxes: Tensor  # (B, G, P, 4) xyxy as shares of width and height; box 0 is the image
    mask: Tensor  # (B, G, P) False for padding, which never gets weight
    images: Tensor | None = None  # (I, 3, H, W) pixels or (I, F', H, W) cached maps; None where not needed

    def to(self, device: str) -> "Bag":
        """The same bags on another device."""
        images = None if self.images is None else self.images.to(device)
        return replace(
            self,
            index=self.index.to(device),
            label=self.label.to(device),
            boxes=self.boxes.to(device),
            mask=self.mask.to(device),
            images=images,
        )


@dataclass(frozen=True)
class Sighting:
    """What a step saw beside its losses, for the log; it costs a step next to nothing."""

    rows: Tensor | None = None  # (I,) training images, by number
    scores: Tensor | None = None  # (I,) what the method thinks of them now, 0 or more
    slots: Tensor | None = None  # (B, 2) the slots nearest to each bag feature, the winner first
    cosines: Tensor | None = None  # (B, 2) of bag feature and key
    memory_side: int = 0  # of the grid that the slots lie on

    def of_all(self, gather: Callable[[Tensor], Tensor]) -> "Sighting":
        """What all processes saw that share the step's batch."""
        seen = (self.rows, self.scores, self.slots, self.cosines)
        rows, scores, slots, cosines = (part if part is None else gather(part) for part in seen)
        return Sighting(rows, scores, slots, cosines, self.memory_side)


@dataclass(frozen=True)
class Phase:
    """One stretch of training, as data. Parameter groups that `lr` does not name stay as they are."""

    name: str
    epochs: int
    lr: Mapping[str, float]
    anneal: tuple[float, float] = (0.0, 0.0)  # the stretch of a falling half cosine that the phase covers
    keep: float | None = None  # the paper's p: share of ROIs that keep their weight
    images_per_bag: int = 1
    needs_images: bool = True  # False: the method works on features it has prepared
    passes: float = 1.0  # of its images through a network with gradient, an epoch; budgets are compared by them
    fresh: bool = False  # True: the optimiser's momentum starts anew, as for a new network


@dataclass(frozen=True)
class Inspection:
    """What a method thinks of I images and their P boxes after training."""

    probabilities: Tensor  # (I, C)
    label_score: Tensor  # (I,) 0 to 1, low is bad
    background_score: Tensor  # (I,) 0 to 1, low is bad
    weights: Tensor  # (I, P) sum to 1 over the real boxes of an image
    best: Tensor  # (I,) the box that shows the label best
    details: Mapping[str, Tensor] = field(default_factory=dict)  # (I, P) slot, d, r, a, ... where the method has them
