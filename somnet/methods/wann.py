"""WANN: Di Salvo et al., "An Embedding is Worth a Thousand Noisy Labels", 2024."""

import torch
from torch import Tensor

from somnet.config import Config
from somnet.methods.base import of_label
from somnet.methods.features import AT_ONCE, most_similar
from somnet.methods.frozen import FrozenFeatures
from somnet.methods.settings import Count, MethodSettings
from somnet.nn.backbones import Network
from somnet.nn.tables import WithTables
from somnet.system.transfer import send

CELLS = 1 << 24  # similarities that are held at a time
TINY = 1e-6  # share of the vote of a class that nobody votes for: its logarithm is finite


class WannSettings(MethodSettings):
    """A vote of the nearest images, as many as the place needs, each weighted by how reliable its label is."""

    smallest: Count = 11  # neighbourhood in which a label is looked for
    largest: Count = 51  # the same; a label that is not found there counts as found in this one


def neighbourhood_sizes(near: Tensor, label: Tensor, classes: int, smallest: int, largest: int) -> Tensor:
    """The smallest k (R,) at which most of the k nearest others have the image's own label (R,); else the largest.

    `near` (R, K) are the labels of the others, the nearest first. k grows by 2. Of classes with as many votes the
    first one wins.
    """
    largest = min(largest, near.shape[1])
    smallest = min(smallest, largest)
    votes = torch.zeros(len(near), classes, dtype=torch.int64, device=near.device)
    sizes = torch.full_like(label, largest)
    counted, order = 0, torch.arange(classes, device=near.device)
    for size in range(smallest, largest, 2):
        more = near[:, counted:size]
        votes.scatter_add_(1, more, torch.ones_like(more))
        counted = size
        winner = (votes * classes - order).argmax(dim=1)  # without ties
        sizes = torch.where((winner == label) & (sizes == largest), size, sizes)
    return sizes


def vote(near: Tensor, label: Tensor, size: Tensor, classes: int) -> Tensor:
    """Shares (Q, C) of the vote of the nearest training images (Q, K), by number, the nearest first.

    As many have a vote as the nearest one has for its neighbourhood `size` (n,); its weight is the reliability of its
    own label (n,), 1 / size.
    """
    sizes = size[near]  # (Q, K)
    inside = torch.arange(near.shape[1], device=near.device) < sizes[:, :1]
    none = torch.zeros(near.shape[0], classes, device=near.device)  # not len(), which an export would take for fixed
    votes = none.scatter_add(1, label[near], inside / sizes)
    return votes / votes.sum(dim=1, keepdim=True)


class WeightedVote(WithTables):
    """A classifier that remembers all training images: features (..., F) to the logarithm of the vote (..., C)."""

    mean: Tensor  # (F,) of the features
    spread: Tensor  # (F,) their standard deviation
    points: Tensor  # (n, F) features of the training images, standardised
    label: Tensor  # (n,)
    size: Tensor  # (n,) of the neighbourhood in which the label is found

    def __init__(self, label: Tensor, width: int, classes: int, settings: WannSettings) -> None:
        super().__init__()
        self.classes, self.settings = classes, settings
        self.out_features = classes  # as a linear layer calls it
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        many = len(label) * width > AT_ONCE  # then they are only lent to a device, some at a time
        (self.register_table if many else self.register_buffer)("points", torch.zeros(len(label), width))
        self.register_buffer("label", label.clone())
        self.register_buffer("size", torch.ones_like(label))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Tensor:
        """Remember features (n, F), find out how reliable each label is; its share (n,) in the vote of the others."""
        features, settings = features.to(self.points), self.settings
        spread, mean = torch.std_mean(features, dim=0, correction=0)
        spread = torch.where(spread > 0, spread, 1.0)
        self.mean.copy_(mean)
        self.spread.copy_(spread)
        self.points.copy_((features - mean) / spread)
        device = self.mean.device
        blocks = torch.split(torch.arange(len(self.points), device=device), self._block())
        others = torch.cat(
            [self._nearest(send(self.points[rows.to(self.points.device)], device), own=rows).int() for rows in blocks]
        )  # (n, K)
        for rows in blocks:
            near = self.label[others[rows]]
            self.size[rows] = neighbourhood_sizes(
                near, self.label[rows], self.classes, settings.smallest, settings.largest
            )
        shares = (vote(others[rows].long(), self.label, self.size, self.classes) for rows in blocks)
        return torch.cat([of_label(share, self.label[rows]) for share, rows in zip(shares, blocks, strict=True)])

    def forward(self, features: Tensor) -> Tensor:
        """Logits whose softmax is the vote."""
        flat = ((features - self.mean) / self.spread).flatten(0, -2)  # (Q, F)
        if torch.compiler.is_compiling():  # an export, where the number of rows is open
            logits = self._logits(flat)
        else:
            logits = torch.cat([self._logits(some) for some in torch.split(flat, self._block())])
        return logits.reshape(*features.shape[:-1], self.classes)

    def _logits(self, flat: Tensor) -> Tensor:
        return (vote(self._nearest(flat), self.label, self.size, self.classes) + TINY).log()

    def _block(self) -> int:
        return max(1, CELLS // len(self.points))

    def _nearest(self, flat: Tensor, own: Tensor | None = None) -> Tensor:
        """Numbers (Q, K) of the images nearest to (Q, F), by Euclidean distance, without the queries' own."""
        count = min(self.settings.largest, len(self.points) - (own is not None))
        return most_similar(flat, self.points, max(1, count), own=own, euclidean=True)


class Wann(FrozenFeatures):
    """The nearest training images vote for a class: as many as the place needs, weighted by how reliable they are.

    A training image's k is the smallest neighbourhood, of 11, 13, .. 51, in which most others have its label, and its
    reliability is 1 / k. A test image takes the k of the training image that is nearest to it; its k nearest vote, each
    with its reliability. Features are standardised, distances Euclidean, as in the public code; nothing is trained.

    Deviations from the paper: features are those of this network, not of DINOv2; without its reduction of dimensions.
    label_score is the share of the label in the vote of the other images. The classifier is not linear: its maps of
    evidence are votes for each cell, and it cannot be exported to timm. State: N x F numbers, which are part of the
    network; all distances are computed, N x N of them for the training images, in blocks.
    """

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        network.add_module("classifier", WeightedVote(labels, network.width, classes, config.of(WannSettings)))
        super().__init__(config, network, labels, classes)

    def held_bytes(self) -> int:
        """Once more, while they are standardised."""
        return super().held_bytes() + 4 * self.network.width

    def fit(self, features: Tensor) -> Tensor:
        """Remember all images."""
        classifier = self.network.get_submodule("classifier")
        assert isinstance(classifier, WeightedVote)
        return classifier.fit(features)
