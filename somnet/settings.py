"""The sections of the config that belong to one rival each: what only that method needs.

Values are those of the method's paper or public code, unless a comment says otherwise.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Section(BaseModel):
    """A part of the config: frozen; unknown keys and numbers that are none are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class SukhbaatarConfig(Section):
    """A noise layer behind the softmax."""

    start: Share = 0.1  # of the epochs, after which the layer is trained: a pretrained network soon memorises
    decay: Annotated[float, Field(ge=0)] = 3.0  # of the layer, divided by the classes; up to 1 it can stay the identity
    lr: Rate = 3.0  # of the layer, relative to the network's


class DraeConfig(Section):
    """Reconstruction errors of an autoencoder a class tell outliers."""

    balance: Annotated[float, Field(ge=0)] = 0.1  # of the separation h(k) against the reconstruction of the inliers
    epochs: Count = 30  # of the autoencoder, over features that are computed once
    init_share: Share = 0.15  # of the epochs, to train the features


class AttendGroupsConfig(Section):
    """Attention over places, groups of images."""

    images_per_bag: Count = 2
    floor: Rate = 0.1  # added to the softplus: no place is ignored


class AdmilConfig(Section):
    """Gated attention over the ROIs of a bag."""

    images_per_bag: Count = 2
    width: Count = 128


class TanakaConfig(Section):
    """Soft labels from the network's own predictions, then a fresh network on them."""

    alpha: Annotated[float, Field(ge=0)] = 1.2  # of the prior: no class may swallow all
    beta: Annotated[float, Field(ge=0)] = 0.8  # of the entropy
    window: Count = 10  # predictions of at most so many epochs are averaged
    first_share: Share = 0.6  # of the epochs, to find the soft labels; the rest trains the fresh network
    start: Share = 0.35  # of the first step's epochs, after which labels are updated (70 of 200)


class CurriculumnetConfig(Section):
    """Three stages by density of the features."""

    init_share: Share = 0.15  # of the epochs, to train the features
    components: Count = 256  # of the PCA
    quantile: Share = 0.6  # of the distances within a class: the radius in which neighbours are counted
    noisy_weight: Share = 0.5  # of images that are not in the densest group


class SlConfig(Section):
    """Symmetric cross entropy."""

    alpha: Annotated[float, Field(ge=0)] = 0.1
    beta: Annotated[float, Field(ge=0)] = 1.0


class MlntConfig(Section):
    """Meta-learning: after a step on wrong labels the network must still agree with its teacher."""

    copies: Count = 2  # of the batch with synthetic labels a step; the paper takes 10, at five times the cost
    neighbours: Count = 10
    inner_lr: Rate = 0.02
    teacher: Annotated[float, Field(ge=0, lt=1)] = 0.99
    strength: Annotated[float, Field(ge=0)] = 5.0  # of the meta loss
    lr: Rate = 1.0
    init_share: Share = 0.15  # of the epochs by cross entropy alone


class PencilConfig(Section):
    """Label distributions that are trained along with the network."""

    alpha: Annotated[float, Field(ge=0)] = 0.4  # of the given label
    beta: Annotated[float, Field(ge=0)] = 0.1  # of the entropy
    label_lr: Rate = 3.0  # step of an image's label logits a visit; the paper's lambda / (classes * batch size)
    lr: Rate = 0.1  # of the network after the cross entropy, relative to the one before; the paper's 1 / C
    init_share: Share = 0.05  # of the epochs by cross entropy; the paper's 70 of 320 would memorise here
    last_share: Share = 0.4  # of the epochs with frozen label distributions, 120 of 320


class ElrConfig(Section):
    """Early-learning regularisation."""

    beta: Annotated[float, Field(ge=0, lt=1)] = 0.7  # of the moving average of predictions
    strength: Annotated[float, Field(ge=0)] = 3.0  # the paper's lambda


class DivideMixConfig(Section):
    """Two networks, each of which divides the data for the other."""

    init_share: Share = 0.1  # of the epochs by cross entropy
    threshold: Share = 0.5  # probability of a clean label from which on an image is labelled
    temperature: Rate = 0.5  # of the sharpening
    mix: Rate = 0.5  # of the Beta distribution of MixUp
    unlabelled: Annotated[float, Field(ge=0)] = 1.0  # weight of the unlabelled images' loss
    smallest_crop: Share = 0.6  # of the side, of the crops that augment


class MoproConfig(Section):
    """Momentum prototypes."""

    width: Count = 128  # of the projection
    temperature: Rate = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.99  # of prototypes and of the second encoder
    queue: Count = 512  # keys to contrast with; the paper takes 8192 for 1,000 classes
    smallest_crop: Share = 0.6  # of the side, of the crops that are an image's views
    threshold: Share = 0.8  # belief from which on an image is relabelled
    init_share: Share = 0.3  # of the epochs before labels are corrected


class ConfidentConfig(Section):
    """Confident learning: prune what out-of-fold predictions contradict."""

    folds: Annotated[int, Field(ge=2, le=255)] = 5
    fold_share: Share = 0.4  # of the budget, for all folds together; the rest trains on what is left
    fold_lr: Rate = 3.0  # relative to train.lr: the folds have few steps


class SomnetPlusConfig(Section):
    """SOMNet that looks again."""

    search_share: Share = 1 / 3  # of the epochs, for SOMNet to find the regions; the rest learns from them
    lr: Rate = 1 / 3  # of the second look, relative to train.lr
    near_best: Share = 0.8  # a region that shows the label this nearly as well as the best one is good enough
    regions: bool = True  # False: the second look sees whole images only
    strength: Annotated[float, Field(ge=0)] = 3.0  # of the early-learning term; 0 is plain cross entropy
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.7  # of the moving average of predictions
    handover: bool = True  # that average begins with what the search believed; False: with nothing
