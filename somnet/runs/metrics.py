"""Metrics: accuracy, noise detection where the truth is known, localisation where boxes are known."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def top_k(scores: NDArray[np.floating], labels: NDArray[np.int64], k: int) -> float:
    """Share of rows (n, C) whose label is among the k highest scores. With fewer than k classes all count."""
    k = min(k, scores.shape[1])
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    return float((best == labels[:, None]).any(axis=1).mean())


def per_class(scores: NDArray[np.floating], labels: NDArray[np.int64], classes: Sequence[str]) -> dict[str, float]:
    """Top-1 accuracy of each class that has images."""
    right = scores.argmax(axis=1) == labels
    return {name: float(right[labels == i].mean()) for i, name in enumerate(classes) if (labels == i).any()}


def auroc(score: NDArray[np.floating], clean: NDArray[np.bool_]) -> float | None:
    """How well a score (high for clean) tells clean from noisy; None where there is only one kind."""
    if clean.all() or not clean.any():
        return None
    from sklearn.metrics import roc_auc_score  # takes a second to load, and most commands do without

    return float(roc_auc_score(clean, score))


def iou(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.floating]:
    """Intersection over union of boxes (n, 4), xyxy, row by row."""
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, 2:], b[:, 2:])
    both = np.clip(high - low, 0, None).prod(axis=1)
    areas = (a[:, 2:] - a[:, :2]).prod(axis=1) + (b[:, 2:] - b[:, :2]).prod(axis=1)
    return np.asarray(both / np.maximum(areas - both, 1e-12))
