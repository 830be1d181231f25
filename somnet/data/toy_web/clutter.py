"""What lies around in a picture and belongs to no category, each painted on a brush in unit coordinates."""

import math
from collections.abc import Callable

import numpy as np

from somnet.data.toy_web.brush import Array, Brush
from somnet.data.toy_web.plants import veined_leaf
from somnet.data.toy_web.shapes import leaf, mirror, oval, slab

_PALETTE = (
    "d9563b",
    "e9a23b",
    "f0d264",
    "7fae58",
    "3f8f7d",
    "4a86b8",
    "7a69a8",
    "c76b95",
    "efe3cc",
    "8c6a4f",
    "57606b",
)


def ball(b: Brush) -> None:
    """A toy ball with a band or dots."""
    body, mark = b.fill(oval(0, 0, 0.9, 0.9), _any(b)), _any(b)
    if b.rng.random() < 0.5:
        b.curve([(-1, -0.2), (0, 0.1), (1, -0.2)], b.rng.uniform(0.2, 0.5), mark, body)
    else:
        b.spots(b.rng.uniform(-0.8, 0.8, (7, 2)), 0.15, mark, body)
    b.shade(body, 0.9)
    b.gloss(-0.25, -0.4, 0.22, 0.14, -0.5, body)


def books(b: Brush) -> None:
    """A pile of books."""
    y = 0.7
    for _ in range(int(b.rng.integers(2, 5))):
        high, x, colour = b.rng.uniform(0.22, 0.36), b.rng.uniform(-0.12, 0.12), _any(b)
        cover = b.fill(slab(x - 0.8, y - high, x + 0.8, y), colour)
        b.fill(slab(x - 0.7, y - high * 0.8, x + 0.9, y - high * 0.2), b.tone("f3ead4"), cover)
        b.line([(x - 0.5, y - high), (x - 0.5, y)], 0.06, _any(b), cover)
        b.shade(cover, 0.5)
        y -= high


def bottle(b: Brush) -> None:
    """A glass bottle with a label."""
    wide = b.rng.uniform(0.24, 0.36)
    half = [(0.12, -0.86), (0.12, -0.4), (wide, -0.1), (wide, 0.5), (wide, 0.92), (0, 0.95)]
    body = b.fill(mirror(half), _any(b), opacity=0.95)
    b.fill(slab(-1, 0.12, 1, 0.62), b.tone("f4ead6"), body)
    b.line([(-1, 0.36), (1, 0.36)], 0.08, _any(b), body)
    b.shade(body, 0.85)
    b.fill(slab(-0.14, -1, 0.14, -0.82), _any(b), depth=0.6)
    b.gloss(-0.5 * wide, 0.2, 0.05, 0.5, 0.0, body)


def bush(b: Brush) -> None:
    """A round bush with berries or blossom."""
    green = b.tone("5d8f4a", 0.06, 0.25)
    for x, y in np.vstack([b.rng.uniform((-0.6, -0.4), (0.6, 0.4), (9, 2)), [(0, 0)]]):
        r = b.rng.uniform(0.28, 0.42)
        b.fill(oval(x, y, r, r * 0.9), green * b.rng.uniform(0.8, 1.1), depth=0.6)
    b.spots(b.rng.uniform((-0.6, -0.5), (0.6, 0.4), (int(b.rng.integers(0, 9)), 2)), 0.06, _any(b))


def button(b: Brush) -> None:
    """A sewing button."""
    colour = _any(b)
    b.fill(oval(0, 0, 0.9, 0.88), colour, depth=0.8)
    b.fill(oval(0, 0, 0.66, 0.64), colour * 0.88, depth=0.5)
    b.spots([(-0.2, -0.2), (0.2, -0.2), (-0.2, 0.2), (0.2, 0.2)], 0.11, colour * 0.4)


def cloud(b: Brush) -> None:
    """A small cloud."""
    white = b.tone("f6f3ee", 0.05, 0.05)
    for x, y, r in (
        (-0.6, 0.1, 0.3),
        (0.6, 0.12, 0.28),
        (-0.2, -0.12, 0.4),
        (0.25, -0.06, 0.36),
        (0, 0.16, 0.4),
    ):
        b.fill(oval(x, y + 0.06, r * 1.2, r), white * 0.9, soft=0.04)
        b.fill(oval(x, y, r * 1.15, r * 0.95), white, soft=0.06)


def cone(b: Brush) -> None:
    """A party hat or road cone."""
    body = b.fill([(-0.1, -0.95), (0.1, -0.95), (0.56, 0.75), (-0.56, 0.75)], _any(b))
    mark = _any(b)
    for y in (-0.4, 0.25):
        b.curve([(-1, y - 0.05), (0, y + 0.06), (1, y - 0.05)], 0.26, mark, body)
    b.shade(body, 0.8)
    b.fill(oval(0, 0.8, 0.82, 0.13), mark * 0.9, depth=0.5)


def crate(b: Brush) -> None:
    """A box in three sides, tied with a band."""
    colour, high = _any(b), b.rng.uniform(0.5, 0.9)
    b.fill([(-0.8, -0.3), (0.2, -0.1), (0.2, high), (-0.8, high - 0.25)], colour * 0.95, depth=0.4)
    b.fill([(0.2, -0.1), (0.85, -0.4), (0.85, high - 0.35), (0.2, high)], colour * 0.72, depth=0.3)
    b.fill([(-0.8, -0.3), (-0.1, -0.58), (0.85, -0.4), (0.2, -0.1)], np.minimum(colour * 1.15, 1), depth=0.3)
    if b.rng.random() < 0.6:
        b.line([(-0.3, high - 0.12), (-0.3, -0.2), (0.4, -0.5)], 0.13, _any(b), depth=0.2)


def cup(b: Brush) -> None:
    """A mug with a ring."""
    colour = _any(b)
    b.line(oval(0.62, 0.08, 0.3, 0.34), 0.13, colour * 0.85, depth=0.4, closed=True)
    body = b.fill(slab(-0.66, -0.6, 0.66, 0.75, b.rng.uniform(0.0, 0.16)), colour)
    b.line([(-1, 0.05), (1, 0.05)], b.rng.uniform(0.1, 0.3), _any(b), body)
    b.shade(body, 0.8)
    b.fill(oval(0, -0.6, 0.66, 0.15), np.minimum(colour * 1.1, 1), depth=0.2)
    b.fill(oval(0, -0.58, 0.55, 0.11), b.tone("4a2e1e", 0.03, 0.3))


def leaves(b: Brush) -> None:
    """A few fallen leaves."""
    colour = str(b.rng.choice(("c8702e", "b8892d", "7c9a3e", "a23f2c", "4f8a4a")))
    for _ in range(int(b.rng.integers(2, 5))):
        x, y = b.rng.uniform(-0.25, 0.25, 2)
        veined_leaf(b, x, y, b.rng.uniform(0.7, 1), b.rng.uniform(0, 2 * math.pi), colour)


def pine(b: Brush) -> None:
    """A small fir."""
    green = b.tone("3f7a5a", 0.05, 0.25)
    b.fill(slab(-0.1, 0.55, 0.1, 0.95), b.tone("6e4a30"), depth=0.5)
    for y, w in ((0.7, 0.66), (0.25, 0.52), (-0.2, 0.38)):
        b.fill(
            [(0, y - 0.75), (w, y), (w * 0.3, y - 0.06), (0, y + 0.05), (-w * 0.4, y - 0.05), (-w, y)],
            green,
            depth=0.5,
        )


def planks(b: Brush) -> None:
    """Crossed planks."""
    for turn in b.rng.uniform(-0.6, 0.6, int(b.rng.integers(2, 4))):
        c, s, y = math.cos(turn), math.sin(turn), b.rng.uniform(-0.3, 0.3)
        board = slab(-0.95, -0.13, 0.95, 0.13) @ np.array([[c, s], [-s, c]]) + (0, y)
        wood = b.tone("a9794e", 0.03, 0.25)
        body = b.fill(board, wood, depth=0.4)
        b.line([(-0.8 * c, -0.8 * s + y), (0.8 * c, 0.8 * s + y)], 0.02, wood * 0.75, body)


def stone(b: Brush) -> None:
    """A pebble with a vein."""
    t = np.linspace(0, 2 * math.pi, 8, endpoint=False)
    r = b.rng.uniform(0.7, 0.95, 8)
    body = b.blob(np.stack([r * np.cos(t), r * b.rng.uniform(0.6, 0.9) * np.sin(t)], 1), b.tone("8f8a84", 0.5, 0.2))
    b.curve(b.rng.uniform(-0.9, 0.9, (3, 2)), 0.04, b.tone("bdb6aa"), body)
    b.shade(body, 0.9)


def tuft(b: Brush) -> None:
    """Grass, some with small blossoms."""
    colour, blossom = b.tone("6f9a45", 0.06, 0.2), _any(b)
    for turn in np.linspace(-2.3, -0.85, 7) + b.rng.uniform(-0.12, 0.12, 7):
        length = b.rng.uniform(0.8, 1.5)
        x, y = length * math.cos(turn), 0.8 + length * math.sin(turn)
        b.fill(leaf(0.2 * math.cos(turn), 0.8, length, 0.16, turn), colour * b.rng.uniform(0.8, 1.15), depth=0.4)
        if b.rng.random() < 0.35:
            b.fill(oval(x, y, 0.13, 0.11), blossom, depth=0.5)


def _any(b: Brush) -> Array:
    """Return some colour of the palette, jittered."""
    return b.tone(str(b.rng.choice(_PALETTE)), 0.03, 0.2)


CLUTTER: dict[str, Callable[[Brush], None]] = {
    draw.__name__: draw
    for draw in (ball, books, bottle, bush, button, cloud, cone, crate, cup, leaves, pine, planks, stone, tuft)
}
