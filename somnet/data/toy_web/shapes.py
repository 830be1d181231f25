"""Outlines of shapes as points, in unit coordinates: x to the right, y down, an object filling about -1..1."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Outline = Sequence[tuple[float, float]] | Points

CIRCLE = np.stack([np.cos(np.arange(40) * math.pi / 20), np.sin(np.arange(40) * math.pi / 20)], 1)
TICK = np.array([(-0.055, -0.05), (0, 0.03), (0.055, -0.05)])  # a small v: a feather, a pair of spines


def smooth(points: Outline, closed: bool = True, steps: int = 8) -> Points:
    """Return a Catmull-Rom curve through the points."""
    p = np.asarray(points, dtype=np.float64)
    p = np.vstack([p[-1], p, p[:2]]) if closed else np.vstack([2 * p[0] - p[1], p, 2 * p[-1] - p[-2]])
    t = np.linspace(0, 1, steps, endpoint=False)[None, :, None]
    a, b, c, d = (p[i : len(p) - 3 + i, None, :] for i in range(4))
    curve = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    return curve.reshape(-1, 2) if closed else np.vstack([curve.reshape(-1, 2), p[-2]])


def path(text: str) -> Points:
    """Return the points of a text such as ``"0,-1 0.5,0.2"``."""
    return np.array([point.split(",") for point in text.split()], dtype=np.float64)


def mirror(right: Outline) -> Points:
    """Close the right half of an outline (top to bottom) with its reflection, smoothly."""
    half = np.asarray(right, dtype=np.float64)
    left = half[half[:, 0] > 0][::-1] * (-1, 1)
    return smooth(np.vstack([half, left]))


def oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> Points:
    """Return an ellipse's outline, turned by ``turn`` radians."""
    c, s = math.cos(turn), math.sin(turn)
    return np.asarray(CIRCLE @ np.array([(rx * c, rx * s), (-ry * s, ry * c)]) + (x, y))


def leaf(x: float, y: float, length: float, width: float, turn: float) -> Points:
    """Return a pointed leaf that starts at (x, y) and grows in the direction ``turn``."""
    t = np.linspace(0, 1, 12)
    half = np.sin(math.pi * t**0.8) * width / 2
    u, v = np.concatenate([t, t[::-1]]) * length, np.concatenate([half, -half[::-1]])
    return np.stack([x + u * math.cos(turn) - v * math.sin(turn), y + u * math.sin(turn) + v * math.cos(turn)], 1)


def slab(x1: float, y1: float, x2: float, y2: float, taper: float = 0.0) -> Points:
    """Return a box whose bottom is narrower by ``taper`` on each side."""
    return np.array([(x1, y1), (x2, y1), (x2 - taper, y2), (x1 + taper, y2)], dtype=np.float64)


def staggered(top: float, bottom: float, step: float) -> list[tuple[float, float]]:
    """Return staggered places over the width of an object."""
    return [(step * (k + row % 2 / 2), y) for row, y in enumerate(np.arange(top, bottom, step)) for k in range(-4, 5)]
