"""What stands for each class: the mean direction of its images, and how similar an image is to it.

Similar is a matter of the directions that count. Let x be unit vectors of all images, with mean m and covariance S.
Where S is large, images differ whatever they show (a dark or bright ground, close or far), and where it is small a
difference tells. So x is seen as

    L^-1 (x - m)   with   L L' = S + s I,   s the mean variance of the directions that images
                                                    differ in, which keeps the inverse tame,

of which cosines are those of Mahalanobis' product: `Whitening`. Without it, what is typical of all web photos counts
most. With it pictures of one kind, however few, are far from everything else and near to each other. So which images
are typical of a class is asked without it first: a class may hold many pictures of another kind, and they must not
stand for it. Typical are the three quarters of all images that are most similar to the mean of the typical ones, in
turns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

LEAST = 1e-6  # length
WIDEST = 2_048  # numbers of a vector that are whitened as they are
ALONE = 1e-3  # squared length of a prototype that nothing is left of
TYPICAL = 0.75  # share of all images that stand for their classes
UNTYPICAL = 0.05  # how far the others do, for a class that has no typical ones
TURNS = 4


@dataclass(frozen=True)
class Prototypes:
    """Sums of unit vectors of m images, in which each counts as far as it stands for a class."""

    share: NDArray[np.float32]  # (m, C) how far each image counts for each class
    sums: NDArray[np.float32]  # (C, F)

    def cosines(self, unit: NDArray[np.float32], place: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of unit vectors (b, F) to each class (b, C), without themselves: `place` (b,) is theirs among the m, or -1.

        A class that nothing is left of without the image is as similar as the most similar one.
        """
        share = np.where((place >= 0)[:, None], self.share[place], 0.0)  # (b, C)
        dots, own = unit @ self.sums.T, share * (unit**2).sum(axis=1, keepdims=True)  # (b, C)
        squares = (self.sums**2).sum(axis=1) - 2 * share * dots + share * own  # |sum without the image|^2
        alone = squares < ALONE
        cosines = np.where(alone, -1.0, (dots - own) / np.sqrt(np.where(alone, 1.0, squares)))
        return np.where(alone, cosines.max(axis=1, keepdims=True), cosines).astype(np.float32)


@dataclass(frozen=True)
class Whitening:
    """A view of features in which all directions count alike, however much images differ in them."""

    mean: NDArray[np.float32]  # (F,)
    inverse: NDArray[np.float32]  # (W, F) of L

    def __call__(self, unit: NDArray[np.float32]) -> NDArray[np.float32]:
        """Unit vectors (b, W) of unit vectors (b, F)."""
        return unit_vectors((unit - self.mean) @ self.inverse.T)


def prototypes_of(unit: NDArray[np.float32], share: NDArray[np.float32]) -> Prototypes:
    """Those of unit vectors (m, F), each of which counts for a class by its share (m, C)."""
    return Prototypes(share, share.T @ unit)


def whitening_of(unit: NDArray[np.float32]) -> Whitening:
    """The one in which unit vectors (m, F) have no direction of their own.

    The work grows with the third power of the width: of wider vectors as many random projections are taken, which
    hardly change a cosine.
    """
    mean, width = unit.mean(axis=0), unit.shape[1]
    away = unit - mean  # (m, W)
    if width > WIDEST:
        onto = np.random.default_rng(0).standard_normal((WIDEST, width), np.float32) / np.float32(WIDEST**0.5)  # (W, F)
        away = away @ onto.T
    else:
        onto = np.eye(width, dtype=np.float32)
    covariance = (away.T @ away / len(away)).astype(np.float64)  # (W, W)
    mean_variance = np.trace(covariance) / min(away.shape)
    covariance.flat[:: len(covariance) + 1] += max(mean_variance, LEAST)
    root = cholesky(covariance, lower=True, overwrite_a=True)
    return Whitening(mean, solve_triangular(root.astype(np.float32), onto, lower=True))


def typical_shares(unit: NDArray[np.float32], member: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far images (m, F) stand for their classes, which they are a `member` (m, C) of: fully if typical of them."""
    share, everybody = member, np.arange(len(unit))
    for _ in range(TURNS):
        similar = (prototypes_of(unit, share).cosines(unit, everybody) * member).sum(axis=1)  # (m,)
        typical = similar > np.quantile(similar, 1 - TYPICAL)
        share = member * np.where(typical, 1.0, UNTYPICAL).astype(np.float32)[:, None]
    return share


def unit_vectors(x: NDArray[np.floating]) -> NDArray[np.float32]:
    """Vectors (..., F) of length 1 in the directions of others."""
    unit: NDArray[np.float32] = (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), LEAST)).astype(np.float32)
    return unit
