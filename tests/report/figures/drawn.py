"""What the figures are drawn of in these tests, and their pixels."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from somnet.report.figures.bag_figure import BagView


def plain(width: int = 40, height: int = 30, colour: str = "#3060c0") -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def pixels(image: Image.Image) -> NDArray[np.int64]:
    return np.asarray(image).astype(np.int64)  # (H, W, 3)


def near(image: Image.Image, colour: tuple[int, int, int], within: int = 40) -> NDArray[np.bool_]:
    return np.asarray(np.abs(pixels(image) - colour).max(axis=-1) <= within)  # (H, W)


def memory(
    side: int, classes: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(1.0, (side * side, classes)) + 1
    d = counts / counts.sum(axis=1, keepdims=True)  # (L, C)
    r = (counts / counts.sum(axis=0)).T  # (C, L)
    return counts, d, r


def bag(label: str = "suit", notes: tuple[str, ...] = ("one", "two")) -> BagView:
    boxes = np.array([[0, 0, 40, 30], [10, 5, 30, 25]], float)
    weights = [np.array([0.0, 1.0]), np.array([0.0, 0.0])]
    return BagView(label, [plain(), plain()], [boxes, boxes], weights, 0.3, notes)
