"""CurriculumNet: Guo et al., "CurriculumNet: Weakly Supervised Learning from Large-Scale Web Images", 2018."""

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Step
from somnet.methods.features import FEATURES, members, training_features
from somnet.methods.fresh import FreshStart
from somnet.methods.plain import Plain
from somnet.methods.settings import Count, MethodSettings, Share
from somnet.nn.backbones import Network
from somnet.system.transfer import send

log = logging.getLogger("somnet")

STAGES = ("clean", "noisy", "all")  # stage s trains on the groups 0 .. s, the densest first
SAMPLE = 2000  # images of a class whose distances give the cutoff
BLOCK = 512  # images whose distances to the others are held at a time
LEAST = 10  # images of a class that can be told apart by density
UNIFORM = 0.05  # densities that differ by a smaller share of the class say nothing
ROUNDING = 1e-3  # distances below this share of the largest one are those of equal images


class CurriculumnetSettings(MethodSettings):
    """Three stages by density of the features."""

    init_share: Share = 0.15  # of the epochs, to train the features
    components: Count = 256  # of the PCA
    quantile: Share = 0.6  # of the distances within a class: the radius in which neighbours are counted
    noisy_weight: Share = 0.5  # of images that are not in the densest group


def principal(points: Tensor, components: int) -> Tensor:
    """Points (R, F) by their first principal components; as they are, but centred, where all of them are kept."""
    points = points - points.mean(dim=0)
    if min(points.shape) <= components:
        return points  # a rotation would change no distance
    _, axes = torch.linalg.eigh(points.T @ points)  # (F, F), ascending
    rotated: Tensor = points @ axes[:, -components:]
    return rotated


def cutoff_distance(points: Tensor, quantile: float, generator: torch.Generator) -> float:
    """The distance that a share `quantile` of the pairs of points (R, F) does not exceed, from a sample if many."""
    if len(points) > SAMPLE:
        points = points[torch.randperm(len(points), generator=generator)[:SAMPLE].to(points.device)]
    distance = torch.pdist(points)
    return max(float(distance.quantile(quantile)), ROUNDING * float(distance.max()))


def densities(points: Tensor, cutoff: float) -> Tensor:
    """How many of the points (R, F) are nearer to each than the cutoff, itself included (R,)."""
    return torch.cat([(torch.cdist(block, points) < cutoff).sum(dim=1) for block in torch.split(points, BLOCK)])


def density_groups(density: Tensor) -> Tensor:
    """0 for the densest, 1, 2 for the least dense: K-means of densities (R,). All 0 if these are few or uniform."""
    values = density.cpu().numpy().astype(np.float64)
    distinct = np.unique(values)
    if len(values) < LEAST or len(distinct) < 3 or np.ptp(values) < UNIFORM * len(values):
        return torch.zeros(len(values), dtype=torch.uint8)
    start = distinct[[0, len(distinct) // 2, -1]]
    fit = KMeans(3, init=start[:, None], n_init=1).fit(values[:, None])
    group_of_cluster = np.argsort(np.argsort(-fit.cluster_centers_[:, 0]))
    return torch.from_numpy(group_of_cluster[fit.labels_].astype(np.uint8))


class CurriculumNet(Plain):
    """Train on the densest images of each class first, then add the others, with less weight.

    Deviations from the paper: features come from a short training of this network, which is paid from the budget, and
    the stages start from a fresh one and share what is left of the epochs evenly; one cosine over all stages instead of
    a tenth of the learning rate from stage to stage, which in a short training leaves the later stages next to
    nothing. A class of fewer than 10 images or of uniform densities is clean as a whole. label_score is the
    classifier's: densities tell wrong labels less well. State: one byte per image (1 MB for a million), and the weights
    of the start; features of all images for a moment; distances in blocks.
    """

    group: Tensor  # (n,) 0 clean, 1 noisy, 2 highly noisy

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(CurriculumnetSettings)
        self.beginning = FreshStart(network)
        self.register_table("group", torch.zeros(len(labels), dtype=torch.uint8))

    def plan(self) -> tuple[Phase, ...]:
        """A short training for the features, then three stages, over which the learning rate falls in one cosine."""
        train = self.config.train
        first = max(1, round(self.settings.init_share * train.epochs))
        left = train.epochs - first
        lr = {"network": train.lr}
        plan, done = [Phase(FEATURES, first, lr, anneal=(0.0, 1.0))], 0
        for stage, name in enumerate(STAGES):
            epochs = (left + 2 - stage) // 3
            stretch = (done / max(1, left), (done + epochs) / max(1, left))
            plan.append(Phase(name, epochs, lr, anneal=stretch, fresh=stage == 0))
            done += epochs
        return tuple(plan)

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """The stages start with a fresh network."""
        if phase.name == STAGES[0]:
            self.beginning.restart(self.network)

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """Divide each class by density."""
        if phase.name != FEATURES:
            return
        settings, device = self.settings, self.network.mean.device
        features = training_features(self.network, bag_pass)  # (n, F)
        generator = torch.Generator().manual_seed(self.config.seed)
        for rows in members(self.labels.cpu()):
            if len(rows) < LEAST:
                continue
            points = principal(features[rows].float().to(device), settings.components)  # (R, components)
            density = densities(points, cutoff_distance(points, settings.quantile, generator))
            self.group[rows] = density_groups(density)
        log.info("CurriculumNet: %s images are clean, noisy, highly noisy", self.group.bincount(minlength=3).tolist())

    def held_bytes(self) -> int:
        """Features as half floats."""
        return 2 * self.network.width

    def rows(self, phase: Phase) -> NDArray[np.int64] | None:
        """The groups that a stage trains on."""
        if phase.name not in STAGES:
            return None
        return np.flatnonzero(self.group.numpy() <= STAGES.index(phase.name))

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy, in which images that are not clean count less."""
        clean = send(self.group[batch.rows[:, 0]], batch.label.device) == 0  # (I,)
        weight, given = torch.where(clean, 1.0, self.settings.noisy_weight), batch.bag_weight()
        weight = weight if given is None else weight * given
        return Step({"cls": classification_loss(self.predict(batch.images), batch.label, weight)})
