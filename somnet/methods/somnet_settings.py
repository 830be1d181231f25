"""The settings of SOMNet. Every ablation of the paper is a field here."""

from typing import Annotated

from pydantic import Field, model_validator

from somnet.methods.settings import Count, MethodSettings, Rate, Section, Share


class MemorySettings(Section):
    """The self-organizing memory, Eq. 2-9."""

    side: Annotated[int, Field(ge=1, le=1000)] = 12  # L = side * side slots
    radius: Annotated[int, Field(ge=0)] = 2  # 0 is "without SOM"
    key_lr: Rate = 0.5  # learning rate of the keys
    d_lr: Rate = 0.01  # of D
    r_lr: Rate = 0.001  # of R, lower: a row of R spreads over many slots, is short, and so has a steep cosine
    init_epochs: Count = 5  # over features that are computed once
    joint_lr: Rate = 0.1  # learning rates in the joint phase, relative to those above
    detach: bool = True  # False: the memory loss trains the CNN too, as in Eq. 11
    kmeans: bool = False  # True: K-means at the start of each joint epoch instead of the trained memory

    def rates(self, share: float = 1.0) -> dict[str, float]:
        """A share of the learning rates of K, D and R; K-means has none."""
        rates = {"keys": self.key_lr, "d": self.d_lr, "r": self.r_lr}
        return {} if self.kmeans else {name: share * rate for name, rate in rates.items()}


class WeightingSettings(Section):
    """ROI weights, Eq. 10, and the curriculum on p. Each flag is an ablation of the paper."""

    d_score: bool = True  # whether the discriminative score counts
    r_score: bool = True  # whether the representative score counts
    a_score: bool = False  # whether the area score counts: at full size a small region is seen as well as a large one
    rois: bool = True  # False: images only, no region proposals
    keep_first: Share = 0.25  # p in the first joint epoch; the paper has 0.1, of 21 ROIs per image
    keep_last: Share = 0.60  # p in the last; the paper has 0.4
    keep_step: Share = 0.05  # by which it grows

    @model_validator(mode="after")
    def _first_before_last(self) -> "WeightingSettings":
        if self.keep_first > self.keep_last:
            raise ValueError("keep_first must not exceed keep_last: for a fixed p set both to it")
        return self


class SomnetSettings(MethodSettings):
    """Bags of ROIs, weighted by a self-organizing memory."""

    images_per_bag: Count = 2  # the paper's n_g
    full_size: bool = True  # ROIs are the image and its views.proposals, each at full size; False: all, from one map
    init_share: Share = 0.25  # of the epochs, to initialise the CNN: a long one memorises noise the memory inherits
    init_lr: Rate = 3.0  # learning rate of the initialisation, relative to train.lr
    joint_lr: Rate = 1.0  # the same for the joint phase
    memory: MemorySettings = MemorySettings()
    weighting: WeightingSettings = WeightingSettings()
