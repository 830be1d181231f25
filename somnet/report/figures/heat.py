"""Heat maps: where the weight or the evidence of an image lies."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from somnet.report.figures.canvas import Floats, rgb
from somnet.report.figures.colours import inferno


def heat_map(boxes: Floats, weights: Floats, width: int, height: int) -> NDArray[np.float64]:
    """For each pixel the sum of the weights of the ROIs that its centre lies in."""
    box = np.asarray(boxes, np.float64).reshape(-1, 4, 1)  # (P, 4, 1)
    x, y = np.arange(width) + 0.5, np.arange(height) + 0.5  # (W,) and (H,)
    columns = (box[:, 0] <= x) & (x < box[:, 2])  # (P, W)
    rows = (box[:, 1] <= y) & (y < box[:, 3])  # (P, H)
    weighted = rows * np.asarray(weights, np.float64)[:, None]  # (P, H)
    return np.asarray(weighted.T @ columns, np.float64)  # (H, W)


def overlay(image: Image.Image, shade: Floats) -> Image.Image:
    """A heat map from 0 to 1 in colours; the image shows through as light and dark."""
    height, width = shade.shape
    grey = rgb(image).convert("L").resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)
    light = np.asarray(ImageOps.autocontrast(grey, cutoff=1), np.float64)[..., None] / 255  # (H, W, 1)
    lit = inferno(shade) * (0.5 + 0.5 * light) + 80 * light * (1 - shade[..., None])  # (H, W, 3)
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))


def colour_scale() -> Image.Image:
    """The colours of heat from 0 to 1, left to right, a pixel high."""
    return Image.fromarray(inferno(np.linspace(0, 1, 256)[None]))
