"""Places in which objects lie: the backgrounds of the pictures."""

import math
from itertools import pairwise

import cv2
import numpy as np

from somnet.data.toy_web.brush import Array, noise, tone
from somnet.data.toy_web.sprites import paste, ready_sprite


def _meadow(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "7db8dc"), tone(rng, "dcecef"), tone(rng, "dcecef"))
    _clouds(image, rng)
    level = rng.uniform(0.25, 0.5)
    for k, (near, far) in enumerate((("7ea46a", "a9c4a0"), ("88b350", "a5c265"), ("5f8f3a", "8fb54e"))):
        _ground(image, rng, level + 0.13 * k, 0.06, tone(rng, near, 0.03), tone(rng, far, 0.03))
    _streaks(image, rng, 60, 60, 0.06)
    return image


def _sea(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "8cc4e6"), tone(rng, "f6e3cf", 0.05))
    level = rng.uniform(0.3, 0.5)
    _clouds(image, rng)
    _ground(image, rng, level, 0.0, tone(rng, "1f7a9c", 0.04), tone(rng, "5fb3bf", 0.04))
    _streaks(image, rng, 70, 9, 0.09)
    _ground(image, rng, rng.uniform(0.75, 0.95), 0.04, tone(rng, "e8cf9a"), tone(rng, "f3e4c0"))
    return image


def _desert(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "f2b880", 0.04), tone(rng, "fbe6c8", 0.03))
    _clouds(image, rng)
    for k, (near, far) in enumerate((("d9a066", "e3b585"), ("c98648", "e0aa6a"), ("d8a05c", "edc78d"))):
        _ground(image, rng, 0.35 + 0.18 * k, 0.1, tone(rng, near), tone(rng, far))
    _streaks(image, rng, 40, 12, 0.04)
    return image


def _table(height: int, width: int, rng: np.random.Generator) -> Array:
    image = np.empty((height, width, 3), np.float32)
    wood = str(rng.choice(("b98556", "8a5f3f", "d2ab7a", "6f5a4c")))
    edges = np.linspace(0, height, int(rng.integers(4, 8))).astype(int)
    for top, bottom in pairwise(edges):
        board = image[top:bottom]
        board[:] = tone(rng, wood, 0.01, 0.12)
        _streaks(board, rng, 14, 3, 0.12)
        board[-2:] *= 0.6
    return np.ascontiguousarray(image.transpose(1, 0, 2)) if height == width and rng.random() < 0.4 else image


def _wall(height: int, width: int, rng: np.random.Generator) -> Array:
    colour = tone(rng, str(rng.choice(("c9d8d2", "e8cdbd", "b7c7dd", "e6d9b0", "a8b89a", "cbb6cf"))), 0.03, 0.12)
    image = _ramp(height, width, colour, colour * 0.9)
    stripe = rng.uniform(8, 26)
    waves = np.sin(np.arange(width, dtype=np.float32) * np.float32(math.pi / stripe))
    image *= 1 + np.float32(rng.uniform(0, 0.06)) * np.sign(waves)[None, :, None]
    level = rng.uniform(0.6, 0.85)
    floor = tone(rng, str(rng.choice(("9a7654", "7d6b62", "b89b78", "6c7a80"))), 0.02, 0.15)
    _ground(image, rng, level - 0.03, 0.0, np.ones(3, np.float32) * 0.93, np.ones(3, np.float32) * 0.93)
    _ground(image, rng, level, 0.0, floor, floor * 0.85)
    _streaks(image, rng, 24, 24, 0.03)
    return image


def _bokeh(height: int, width: int, rng: np.random.Generator) -> Array:
    base = tone(rng, str(rng.choice(("3f5b4a", "5c4a63", "35506e", "7a5a44", "6d7f5a"))), 0.05, 0.2)
    image = _ramp(height, width, base * 1.25, base * 0.8)
    for x, y in rng.uniform((0, 0), (width, height), (int(rng.integers(9, 18)), 2)):
        glow = image.copy()
        light = tone(rng, str(rng.choice(("ffe2a0", "ffc58a", "d9f0c0", "c5e3ff", "ffc4d6"))), 0.03)
        cv2.circle(glow, (int(x), int(y)), int(rng.integers(6, 30)), light.tolist(), -1, cv2.LINE_AA)
        cv2.addWeighted(glow, 0.3, image, 0.7, 0, image)
    return np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(1.5, 4)), dtype=np.float32)


def _night(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "1b2450", 0.04), tone(rng, "4a4f8c", 0.04), tone(rng, "b98aa5", 0.06))
    for x, y in rng.uniform((0, 0), (width, height * 0.6), (30, 2)):
        cv2.circle(image, (int(x), int(y)), int(rng.integers(0, 2)), (1.0, 0.96, 0.85), -1, cv2.LINE_AA)
    moon = (int(rng.uniform(0.1, 0.9) * width), int(rng.uniform(0.08, 0.3) * height))
    cv2.circle(image, moon, int(rng.integers(9, 18)), (0.98, 0.94, 0.8), -1, cv2.LINE_AA)
    for k in range(3):
        hill = tone(rng, "35406e", 0.04) * (1 - 0.22 * k)
        _ground(image, rng, 0.55 + 0.15 * k, 0.08, hill * 0.8, hill)
    return image


def _forest(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "c3d9b0", 0.04), tone(rng, "8fb08a", 0.04))
    for k in range(12):
        x, wide = int(rng.uniform(0, width)), int(rng.integers(5, 9 + k))
        trunk = tone(rng, "6c6a55", 0.04, 0.2) * np.float32(1.2 - 0.04 * k)
        cv2.line(image, (x, 0), (x + int(rng.integers(-8, 9)), height), trunk.tolist(), wide, cv2.LINE_AA)
    image = np.asarray(cv2.GaussianBlur(image, (0, 0), 2.0), dtype=np.float32)
    _ground(image, rng, rng.uniform(0.55, 0.75), 0.05, tone(rng, "5a4a32", 0.03), tone(rng, "7d8a4c", 0.03))
    _streaks(image, rng, 50, 50, 0.07)
    return image


def _snow(height: int, width: int, rng: np.random.Generator) -> Array:
    image = _ramp(height, width, tone(rng, "9fb8d0", 0.04), tone(rng, "e9e3ea", 0.04))
    _clouds(image, rng)
    for k in range(3):
        _ground(image, rng, 0.4 + 0.17 * k, 0.08, tone(rng, "cfdcea", 0.03, 0.04), tone(rng, "f4f6fa", 0.03, 0.02))
    return image


def _paper(height: int, width: int, rng: np.random.Generator) -> Array:
    a, b = (tone(rng, "dfc9b8", 0.5, 0.15) for _ in range(2))
    image = _ramp(height, width, a, b)
    return image * (1 + 0.12 * noise(rng, height, width, 4, 4) + 0.03 * noise(rng, height, width, 60, 60))[..., None]


_SCENES = (_meadow, _sea, _desert, _table, _wall, _bokeh, _night, _forest, _snow, _paper)


def draw_scene(height: int, width: int, rng: np.random.Generator, blur: float) -> Array:
    """Draw one of the scenes in uneven light, out of focus by ``blur``."""
    image = _SCENES[rng.integers(len(_SCENES))](height, width, rng)
    _streaks(image, rng, 4, 4, 0.08)
    return np.asarray(cv2.GaussianBlur(image, (0, 0), blur), dtype=np.float32)


def _ramp(height: int, width: int, *colours: Array) -> Array:
    """Return a vertical gradient through the colours."""
    stops = np.stack(colours)[:, None, :]
    column = cv2.resize(stops, (1, height), interpolation=cv2.INTER_LINEAR).reshape(height, 1, 3)
    return np.asarray(np.repeat(column, width, axis=1), dtype=np.float32)


def _ground(image: Array, rng: np.random.Generator, level: float, rough: float, near: Array, far: Array) -> None:
    """Paint rolling ground, below ``level`` (a share of the height), over the image."""
    height, width = image.shape[:2]
    ridge = (level + rough * noise(rng, 2, width, 2, int(rng.integers(3, 7)))[0]) * height
    top = max(int(ridge.min()), 0)
    below = np.clip(np.arange(top, height, dtype=np.float32)[:, None] - ridge[None, :], 0, 1)
    image[top:] += cv2.merge([below] * 3) * (_ramp(height, width, far, far, near)[top:] - image[top:])


def _streaks(image: Array, rng: np.random.Generator, rows: int, columns: int, strength: float) -> None:
    """Make the image lighter and darker in streaks, in place."""
    height, width = image.shape[:2]
    image *= cv2.merge([1 + np.float32(strength) * noise(rng, height, width, rows, columns)] * 3)


def _clouds(image: Array, rng: np.random.Generator) -> None:
    """Put up to three clouds in the upper part."""
    for _ in range(int(rng.integers(4))):
        side = int(rng.integers(30, 80))
        x, y = rng.uniform((-20, -10), (image.shape[1] - 20, 0.2 * image.shape[0]))
        paste(image, ready_sprite("cloud", side, rng) * np.float32(0.9), int(x), int(y), 0.0)
