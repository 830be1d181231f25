"""Whole pictures: a scene with clutter, and in it the object that the picture is about, if any."""

import math

import cv2
import numpy as np
from PIL import Image

from somnet.data.toy_web.brush import Array
from somnet.data.toy_web.categories import CATEGORIES, THINGS
from somnet.data.toy_web.clutter import CLUTTER
from somnet.data.toy_web.scenes import draw_scene
from somnet.data.toy_web.sprites import draw_sprite, paste, ready_sprite

Box = tuple[int, int, int, int]

SIZES = ((224, 224), (224, 224), (224, 224), (224, 224), (256, 192), (192, 256))
# Clouds belong to the sky.
_LITTER = tuple(name for name in CLUTTER if name != "cloud")


def draw_train(category: str | None, rng: np.random.Generator) -> tuple[Image.Image, Box | None]:
    """Draw a web-like picture: the object is small among clutter, or missing when ``category`` is None.

    Returns the picture and the object's tight box in pixels (x1, y1, x2, y2). The longest side of the box is
    25-55 % of the picture's side, for oblong pictures of the longer as well as of the shorter one.
    """
    width, height = SIZES[rng.integers(len(SIZES))]
    image = draw_scene(height, width, rng, rng.uniform(0.3, 1.2))
    if category is None:
        _litter(image, rng, int(rng.integers(9, 15)), 0.16, 0.5)
        return _photo(image, rng), None
    _litter(image, rng, int(rng.integers(8, 14)), 0.14, 0.42)
    least, most = math.ceil(0.25 * max(width, height)), int(0.55 * min(width, height))
    side = round(least + (most - least) * rng.beta(1, 1.6))
    sprite = draw_sprite(THINGS[category], side, rng)
    box = _spot(image, sprite, rng)
    others = [name for name in CATEGORIES if name != category]
    for _ in range(int(rng.choice((0, 1, 2), p=(0.4, 0.35, 0.25)))):
        small = round(min(width, height) * rng.uniform(0.11, 0.18))
        other = ready_sprite(str(rng.choice(others)), small, rng)
        at = _spot(image, other, rng)
        if _apart(at, box):
            paste(image, other, at[0], at[1], 0.4)
    paste(image, sprite, box[0], box[1], 0.5)
    _litter(image, rng, int(rng.integers(4, 10)), 0.1, 0.3, keep=box)
    return _photo(image, rng), box


def draw_test(category: str, rng: np.random.Generator) -> tuple[Image.Image, Box | None]:
    """Draw a clean picture: one large object (65-90 % of the side) in a soft scene; return its box too."""
    width = height = 224
    image = draw_scene(height, width, rng, rng.uniform(1.0, 2.5))
    _litter(image, rng, int(rng.integers(0, 4)), 0.1, 0.22)
    sprite = draw_sprite(THINGS[category], int(rng.integers(146, 202)), rng)
    box = _spot(image, sprite, rng)
    paste(image, sprite, box[0], box[1], 0.5)
    return _photo(image, rng), box


def _litter(
    image: Array, rng: np.random.Generator, count: int, low: float, high: float, keep: Box | None = None
) -> None:
    """Strew clutter, further objects first; where ``keep`` is given, nothing of it is covered."""
    height, width = image.shape[:2]
    # Few kinds to a picture, as in a real place.
    kinds = [_LITTER[k] for k in rng.permutation(len(_LITTER))[:5]]
    for depth in np.sort(rng.random(count)):
        side = round(min(height, width) * rng.uniform(low, high) * (0.75 + 0.5 * depth))
        x = round(rng.uniform(-0.3 * side, width - 0.7 * side))
        y = round(height * (0.1 + 0.85 * depth) - side / 2)
        if keep is None or _apart((x, y, x + side, y + side), keep):
            paste(image, ready_sprite(kinds[rng.integers(5)], side, rng), x, y, 0.4)


def _apart(a: Box, b: Box, margin: int = 3) -> bool:
    """Whether two boxes have at least ``margin`` pixels between them."""
    return a[2] + margin <= b[0] or b[2] + margin <= a[0] or a[3] + margin <= b[1] or b[3] + margin <= a[1]


def _spot(image: Array, sprite: Array, rng: np.random.Generator) -> Box:
    """Choose a place wholly inside the image; the box is tight, as the sprite is."""
    height, width = sprite.shape[:2]
    x = int(rng.integers(1, image.shape[1] - width))
    y = int(rng.integers(1, image.shape[0] - height))
    return x, y, x + width, y + height


def _photo(image: Array, rng: np.random.Generator) -> Image.Image:
    """Give the picture a camera's faults: white balance, vignette, a little blur and grain."""
    height, width = image.shape[:2]
    u = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    v = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    light = np.float32(rng.uniform(0.92, 1.12)) * (1 - np.float32(rng.uniform(0, 0.12)) * (u * u + v * v))
    image = image * cv2.merge([light * np.float32(k) for k in rng.uniform(0.95, 1.05, 3)])
    image = np.asarray(cv2.GaussianBlur(image, (0, 0), rng.uniform(0.2, 0.75)), dtype=np.float32)
    grain = rng.standard_normal((height, width), np.float32) * np.float32(rng.uniform(0.005, 0.018))
    return Image.fromarray((np.clip(image + cv2.merge([grain] * 3), 0, 1) * 255 + 0.5).astype(np.uint8))
