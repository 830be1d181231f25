"""Things as sprites (height x width x RGBA): drawn at a size, or taken ready-made, and laid over a picture."""

import zlib
from collections.abc import Callable
from functools import cache

import cv2
import numpy as np

from somnet.data.toy_web.brush import Array, Brush
from somnet.data.toy_web.categories import THINGS
from somnet.data.toy_web.clutter import CLUTTER

_STOCK = 10  # ready-made sprites of each object


def draw_sprite(draw: Callable[[Brush], None], side: int, rng: np.random.Generator, tilt: float = 20.0) -> Array:
    """Draw an object, larger than asked, and shrink it until its longest side has ``side`` pixels."""
    brush = Brush(round(side * (2.2 if side < 130 else 1.8)), rng, tilt)
    draw(brush)
    return _fit(brush.finish(), side)


def ready_sprite(name: str, side: int, rng: np.random.Generator) -> Array:
    """Take a ready-made sprite, at times mirrored, in a light of its own."""
    sizes = _stock(name)[rng.integers(_STOCK)]
    ready = next((sprite for sprite in reversed(sizes) if max(sprite.shape[:2]) >= side), sizes[0])
    sprite = _fit(ready, side, cv2.INTER_LINEAR)
    if rng.random() < 0.5:
        sprite = sprite[:, ::-1]
    light = rng.uniform(0.85, 1.0) * rng.uniform(0.95, 1.0, 3)
    return sprite * np.append(light, 1).astype(np.float32)


@cache
def _stock(name: str) -> tuple[tuple[Array, ...], ...]:
    """Return ready-made sprites of an object: drawing the small objects again for each picture would take long.

    Each comes in a few sizes, so that it is never shrunk much when it is used.
    """
    draw, sides = (THINGS[name], (42, 30)) if name in THINGS else (CLUTTER[name], (110, 70, 42, 26))
    number = zlib.crc32(name.encode())
    large = (draw_sprite(draw, sides[0], np.random.default_rng((number, k)), 30) for k in range(_STOCK))
    return tuple(tuple(_fit(sprite, side) for side in sides) for sprite in large)


def _fit(sprite: Array, side: int, how: int = cv2.INTER_AREA) -> Array:
    """Scale a sprite so that its longest side has ``side`` pixels."""
    height, width = sprite.shape[:2]
    scale = side / max(height, width)
    size = (max(2, round(width * scale)), max(2, round(height * scale)))
    return np.asarray(cv2.resize(sprite, size, interpolation=how), dtype=np.float32)


def paste(image: Array, sprite: Array, x: int, y: int, shadow: float) -> None:
    """Lay a sprite over the image, with a soft shadow below it; what is outside the image is cut."""
    pad = max(3, max(sprite.shape) // 8)
    soft = cv2.copyMakeBorder(sprite[..., 3], pad, pad, pad, pad, cv2.BORDER_CONSTANT, value=0)
    soft = cv2.blur(cv2.blur(soft, (pad | 1, pad | 1)), (pad | 1, pad | 1))
    dark = cv2.merge([soft * np.float32(-k * shadow) for k in (0.95, 0.9, 0.75)])
    for layer, left, top in ((dark, x - pad + pad // 4, y - pad + pad // 2), (sprite, x, y)):
        h, w = layer.shape[:2]
        x1, y1, x2, y2 = (
            max(left, 0),
            max(top, 0),
            min(left + w, image.shape[1]),
            min(top + h, image.shape[0]),
        )
        if x1 < x2 and y1 < y2:
            area, cut = image[y1:y2, x1:x2], layer[y1 - top : y2 - top, x1 - left : x2 - left]
            if layer is dark:
                area += area * cut
            else:
                area += cut[..., :3] - area * cv2.merge([cut[..., 3]] * 3)
