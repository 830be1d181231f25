"""DRAE: Xia et al., "Learning Discriminative Reconstructions for Unsupervised Outlier Removal", 2015."""

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from somnet.config import Config
from somnet.core.types import Phase
from somnet.methods.base import BagPass
from somnet.methods.features import FEATURES, members, training_features
from somnet.methods.fresh import FreshStart
from somnet.methods.plain import TRAIN, Plain
from somnet.methods.settings import Count, MethodSettings, Share, Strength
from somnet.nn.backbones import Network

log = logging.getLogger("somnet")

LEAST = 2  # images of a class that are never dropped
BATCH = 128
RATE, DECAY = 1e-3, 5e-4  # of the autoencoder's Adam
SMALLEST = 1e-12  # stands for the spread of errors that are all the same


class DraeSettings(MethodSettings):
    """Reconstruction errors of one autoencoder per class tell outliers."""

    balance: Strength = 0.1  # of the separation h(k) against the reconstruction of the inliers
    epochs: Count = 30  # of the autoencoder, over features that are computed once
    init_share: Share = 0.15  # of the epochs, to train the features


def separation(error: Tensor) -> Tensor:
    """h(k), k = 1 .. R-1, of sorted errors (R,): how much of their spread is left within the first k and the others.

    h(k) = (SS(e_1..k) + SS(e_k+1..R)) / SS(e), SS the sum of squared deviations from the own mean; by cumulative sums.
    """
    error = error.double()
    error = error - error.mean()  # small numbers, so that the sums of squares keep their digits
    low = torch.arange(1, len(error), device=error.device)  # (R-1,) how many are on the low side
    squares, total, low_sum = (error**2).sum(), error.sum(), error.cumsum(dim=0)[:-1]
    within = squares - low_sum**2 / low - (total - low_sum) ** 2 / (len(error) - low)  # SS of both sides
    return within / squares.clamp(min=SMALLEST)


def discriminative_loss(error: Tensor, balance: float) -> Tensor:
    """Mean error of the inliers, and lambda h: errors (R,) that are small for most and apart for the others."""
    error = error.sort().values
    if len(error) == 1:
        return error.mean()
    h = separation(error)  # (R-1,)
    best = int(h.argmin())
    return error[: best + 1].mean() + balance * h[best]


def inliers(error: Tensor) -> Tensor:
    """Mask (R,) of the errors up to the best split; all of them if they are few or the same."""
    order = error.argsort(stable=True)
    ordered = error[order]
    if len(error) <= LEAST or ordered[0] == ordered[-1]:
        return torch.ones_like(error, dtype=torch.bool)
    count = max(LEAST, int(separation(ordered).argmin()) + 1)
    mask = torch.zeros_like(error, dtype=torch.bool)
    mask[order[:count]] = True
    return mask


def to_unit_range(features: Tensor) -> Tensor:
    """Each column of (R, F) from 0 to 1 over the images; a column that is constant is 0."""
    low, high = features.amin(dim=0), features.amax(dim=0)  # (F,)
    return (features - low) / (high - low).clamp(min=torch.finfo(features.dtype).eps)


class Autoencoder(nn.Module):
    """One hidden layer of a third of the width, sigmoids behind both."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, max(1, width // 3))
        self.decoder = nn.Linear(max(1, width // 3), width)
        for layer in (self.encoder, self.decoder):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)

    def errors(self, x: Tensor) -> Tensor:
        """e_i = ||x_i - xhat_i||^2 (R,) of features (R, F)."""
        again = self.decoder(self.encoder(x).sigmoid()).sigmoid()  # (R, F)
        errors: Tensor = (x - again).square().sum(dim=1)
        return errors


def reconstruction_errors(features: Tensor, epochs: int, balance: float, generator: torch.Generator) -> Tensor:
    """Errors (R,) of an autoencoder that is trained on these features (R, F) alone.

    It is not part of the network, so it has an optimiser of its own, which is gone afterwards.
    """
    x = to_unit_range(features)
    model = Autoencoder(x.shape[1], generator).to(x.device)
    parameters = list(model.parameters())
    adam = torch.optim.Adam(parameters, lr=RATE, weight_decay=DECAY)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), generator=generator), BATCH):
            with torch.enable_grad():
                loss = discriminative_loss(model.errors(x[rows.to(x.device)]), balance)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            adam.step()
    with torch.no_grad():
        return torch.cat([model.errors(chunk) for chunk in torch.split(x, BATCH)])


class Drae(Plain):
    """Drop the images of a class that its autoencoder cannot reconstruct, then train a fresh network on the rest.

    Deviations from the paper, which removes outliers from given features: they are those of this network after a short
    training, which is paid from the budget; the last images of a class are never dropped. A split always has two sides,
    so part of a clean class is dropped too. label_score is the classifier's: errors tell wrong labels less well.
    State: one byte per image (1 MB for a million), and the weights of the start; features of all images for a moment.
    """

    kept: Tensor  # (n,) what the final network is trained on

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(DraeSettings)
        self.beginning = FreshStart(network)
        self.register_table("kept", torch.ones(len(labels), dtype=torch.bool))

    def plan(self) -> tuple[Phase, ...]:
        """A short training for the features, then the final one."""
        train = self.config.train
        first = max(1, round(self.settings.init_share * train.epochs))
        lr = {"network": train.lr}
        return (
            Phase(FEATURES, first, lr, anneal=(0.0, 1.0)),
            Phase(TRAIN, train.epochs - first, lr, anneal=(0.0, 1.0), fresh=True),
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """The final network starts from the first weights."""
        if phase.name == TRAIN:
            self.beginning.restart(self.network)

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """Find the outliers of each class."""
        if phase.name != FEATURES:
            return
        settings, device = self.settings, self.network.mean.device
        features = training_features(self.network, bag_pass)  # (n, F)
        generator = torch.Generator().manual_seed(self.config.seed)
        for rows in members(self.labels.cpu()):
            x = features[rows].float().to(device)  # (R, F)
            error = reconstruction_errors(x, settings.epochs, settings.balance, generator)
            self.kept[rows] = inliers(error.cpu())
        log.info("DRAE drops %d of %d images", int((~self.kept).sum()), len(self.kept))

    def held_bytes(self) -> int:
        """Features as half floats."""
        return 2 * self.network.width

    def rows(self, phase: Phase) -> NDArray[np.int64] | None:
        """In the end what was kept."""
        return np.flatnonzero(self.kept.numpy()) if phase.name == TRAIN else None
