"""A toy web of drawn pictures with known truth, for the demo.

The train pictures have the two faults of images found on the web: label noise (a share of them shows another
category, or none at all) and background noise (the thing is small, among clutter). The test pictures are
clean. Every picture is drawn from its own seed, so the files do not depend on the number of workers.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from somnet.data.demo_things import CLUTTER, THINGS, Array, Brush, noise, tone
from somnet.data.sources.manifest import write_manifest
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

Box = tuple[int, int, int, int]

CATEGORIES: tuple[str, ...] = tuple(sorted(THINGS))
NOISE_SHARE = 0.4
# A search for one thing finds its relative: what a swapped picture shows.
_RELATIVES = (
    ("bee", "ladybird"),
    ("butterfly", "owl"),
    ("lemon", "pear"),
    ("mushroom", "strawberry"),
    ("sailboat", "balloon"),
    ("cactus", "clownfish"),
)
RELATED = {a: b for pair in _RELATIVES for a, b in (pair, pair[::-1])}
SIZES = ((224, 224), (224, 224), (224, 224), (224, 224), (256, 192), (192, 256))
# Clouds belong to the sky.
_LITTER = tuple(name for name in CLUTTER if name != "cloud")
_STOCK = 10
_SPLITS = ("train", "test")


# -------------------------------------------------------------------------------------------------- scenes


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
    height, width = image.shape[:2]
    image *= cv2.merge([1 + np.float32(strength) * noise(rng, height, width, rows, columns)] * 3)


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


def _scene(height: int, width: int, rng: np.random.Generator, blur: float) -> Array:
    image = _SCENES[rng.integers(len(_SCENES))](height, width, rng)
    _streaks(image, rng, 4, 4, 0.08)
    return np.asarray(cv2.GaussianBlur(image, (0, 0), blur), dtype=np.float32)


# ---------------------------------------------------------------------------------------------- composition


def _sprite(draw: Callable[[Brush], None], side: int, rng: np.random.Generator, tilt: float = 20.0) -> Array:
    """Draw a thing, larger than asked, and shrink it until its longest side has ``side`` pixels."""
    brush = Brush(round(side * (2.2 if side < 130 else 1.8)), rng, tilt)
    draw(brush)
    return _fit(brush.finish(), side)


def _fit(sprite: Array, side: int, how: int = cv2.INTER_AREA) -> Array:
    height, width = sprite.shape[:2]
    scale = side / max(height, width)
    size = (max(2, round(width * scale)), max(2, round(height * scale)))
    return np.asarray(cv2.resize(sprite, size, interpolation=how), dtype=np.float32)


@cache
def _stock(name: str) -> tuple[tuple[Array, ...], ...]:
    """Return ready-made sprites of a thing: drawing the small things anew for each picture would take long.

    Each comes in a few sizes, so that it is never shrunk much when it is used.
    """
    draw, sides = (THINGS[name], (42, 30)) if name in THINGS else (CLUTTER[name], (110, 70, 42, 26))
    number = zlib.crc32(name.encode())
    large = (_sprite(draw, sides[0], np.random.default_rng((number, k)), 30) for k in range(_STOCK))
    return tuple(tuple(_fit(sprite, side) for side in sides) for sprite in large)


def _small(name: str, side: int, rng: np.random.Generator) -> Array:
    """Take a ready-made sprite, at times mirrored, in a light of its own."""
    sizes = _stock(name)[rng.integers(_STOCK)]
    ready = next((sprite for sprite in reversed(sizes) if max(sprite.shape[:2]) >= side), sizes[0])
    sprite = _fit(ready, side, cv2.INTER_LINEAR)
    if rng.random() < 0.5:
        sprite = sprite[:, ::-1]
    light = rng.uniform(0.85, 1.0) * rng.uniform(0.95, 1.0, 3)
    return sprite * np.append(light, 1).astype(np.float32)


def _paste(image: Array, sprite: Array, x: int, y: int, shadow: float) -> None:
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


def _litter(
    image: Array, rng: np.random.Generator, count: int, low: float, high: float, keep: Box | None = None
) -> None:
    """Strew clutter, further things first; where ``keep`` is given, nothing of it is covered."""
    height, width = image.shape[:2]
    # Few kinds to a picture, as in a real place.
    kinds = [_LITTER[k] for k in rng.permutation(len(_LITTER))[:5]]
    for depth in np.sort(rng.random(count)):
        side = round(min(height, width) * rng.uniform(low, high) * (0.75 + 0.5 * depth))
        x = round(rng.uniform(-0.3 * side, width - 0.7 * side))
        y = round(height * (0.1 + 0.85 * depth) - side / 2)
        if keep is None or _apart((x, y, x + side, y + side), keep):
            _paste(image, _small(kinds[rng.integers(5)], side, rng), x, y, 0.4)


def _clouds(image: Array, rng: np.random.Generator) -> None:
    """Put up to three clouds in the upper part."""
    for _ in range(int(rng.integers(4))):
        side = int(rng.integers(30, 80))
        x, y = rng.uniform((-20, -10), (image.shape[1] - 20, 0.2 * image.shape[0]))
        _paste(image, _small("cloud", side, rng) * np.float32(0.9), int(x), int(y), 0.0)


def _apart(a: Box, b: Box, margin: int = 3) -> bool:
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


def draw_train(category: str | None, rng: np.random.Generator) -> tuple[Image.Image, Box | None]:
    """Draw a web-like picture: the object is small among clutter, or missing when ``category`` is None.

    Returns the picture and the object's tight box in pixels (x1, y1, x2, y2). The longest side of the box is
    25-55 % of the picture's side, for oblong pictures of the longer as well as of the shorter one.
    """
    width, height = SIZES[rng.integers(len(SIZES))]
    image = _scene(height, width, rng, rng.uniform(0.3, 1.2))
    if category is None:
        _litter(image, rng, int(rng.integers(9, 15)), 0.16, 0.5)
        return _photo(image, rng), None
    _litter(image, rng, int(rng.integers(8, 14)), 0.14, 0.42)
    least, most = math.ceil(0.25 * max(width, height)), int(0.55 * min(width, height))
    side = round(least + (most - least) * rng.beta(1, 1.6))
    sprite = _sprite(THINGS[category], side, rng)
    box = _spot(image, sprite, rng)
    others = [name for name in CATEGORIES if name != category]
    for _ in range(int(rng.choice((0, 1, 2), p=(0.4, 0.35, 0.25)))):
        small = round(min(width, height) * rng.uniform(0.11, 0.18))
        other = _small(str(rng.choice(others)), small, rng)
        at = _spot(image, other, rng)
        if _apart(at, box):
            _paste(image, other, at[0], at[1], 0.4)
    _paste(image, sprite, box[0], box[1], 0.5)
    _litter(image, rng, int(rng.integers(4, 10)), 0.1, 0.3, keep=box)
    return _photo(image, rng), box


def draw_test(category: str, rng: np.random.Generator) -> tuple[Image.Image, Box | None]:
    """Draw a clean picture: one large object (65-90 % of the side) in a soft scene; return its box too."""
    width = height = 224
    image = _scene(height, width, rng, rng.uniform(1.0, 2.5))
    _litter(image, rng, int(rng.integers(0, 4)), 0.1, 0.22)
    sprite = _sprite(THINGS[category], int(rng.integers(146, 202)), rng)
    box = _spot(image, sprite, rng)
    _paste(image, sprite, box[0], box[1], 0.5)
    return _photo(image, rng), box


# -------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True)
class _Item:
    split: str
    index: int
    file_name: str
    label: str
    truth: str | None


def _plan(seed: int, train_per_class: int, test_per_class: int) -> Iterator[_Item]:
    """List every picture; the noise is exact in each class and its place in the class is shuffled."""
    noisy = round(NOISE_SHARE * train_per_class)
    swapped = noisy // 2
    for k, label in enumerate(CATEGORIES):
        rng = np.random.default_rng((seed, len(_SPLITS), k))
        truths: list[str | None] = [RELATED[label]] * swapped
        truths += [None] * (noisy - swapped) + [label] * (train_per_class - noisy)
        for n, at in enumerate(rng.permutation(train_per_class)):
            yield _Item("train", k * train_per_class + n, f"train/{label}/{n:04d}.jpg", label, truths[at])
        for n in range(test_per_class):
            yield _Item("test", k * test_per_class + n, f"test/{label}/{n:04d}.jpg", label, label)


def _write(root: Path, seed: int, item: _Item) -> tuple[str, str, str, str, str]:
    rng = np.random.default_rng((seed, _SPLITS.index(item.split), item.index))
    if item.split == "test":
        image, box = draw_test(item.label, rng)
    else:
        image, box = draw_train(item.truth, rng)
    image.save(root / item.file_name, quality=90)
    corners = "" if box is None else " ".join(map(str, box))
    return item.file_name, item.label, item.split, item.truth or "none", corners


def write_demo(
    root: Path,
    *,
    seed: int = 0,
    train_per_class: int = 90,
    test_per_class: int = 84,
    workers: int | None = None,
) -> None:
    """Write the toy web to ``root/train/<label>`` and ``root/test/<label>``, then ``root/metadata.csv``.

    The folder is the label a picture was found under; the metadata tell what it truly shows and where.
    ``metadata.csv`` is written last: where it is present, the set is complete. The same seed gives the same
    bytes, with any number of workers.
    """
    items = list(_plan(seed, train_per_class, test_per_class))
    for split in _SPLITS:
        for label in CATEGORIES:
            (root / split / label).mkdir(parents=True, exist_ok=True)
    rows = []
    with track("drawing the toy web", len(items)) as advance:
        for chunk in on_all_cores(partial(_write, root, seed), items, workers):
            rows.extend(chunk)
            advance(len(chunk))
    write_manifest(root, rows)
