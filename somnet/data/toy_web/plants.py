"""The plants, fruit and fungi of the toy web, each painted on a brush in unit coordinates."""

import math

import numpy as np

from somnet.data.toy_web.brush import Brush
from somnet.data.toy_web.shapes import TICK, Points, leaf, mirror, oval, path, slab, smooth, staggered


def cactus(b: Brush) -> None:
    """A ribbed cactus with spines and a flower, in a clay pot."""
    green, spine = b.pick("4f9153", "7fa04a", "4f8f86"), b.tone("f4efd0")
    high = b.rng.uniform(0.62, 0.85)

    def column(x: float, top: float, bottom: float, r: float) -> None:
        crown = smooth(path("-1,1 -.7,.25 0,0 .7,.25 1,1") * r, closed=False)
        crown += (x, top)
        body = b.fill(np.vstack([crown, [(x + r, bottom), (x - r, bottom)]]), green)
        ribs = np.linspace(-0.68, 0.68, 5 if r > 0.2 else 3)
        lines = [smooth([(x + 0.3 * k * r, top), (x + k * r, top + r), (x + k * r, bottom)], False) for k in ribs]
        b.many(lines, green * 0.68, body, width=0.03)
        b.shade(body, 0.7)
        rows = np.arange(top + 0.6 * r, bottom - 0.03, 0.16)
        spots = [(x + k * r, y + b.rng.uniform(-0.03, 0.03)) for k in (ribs[1:] + ribs[:-1]) / 2 for y in rows]
        b.many([np.add(TICK * 0.5, spot) for spot in spots], spine, width=0.013)

    for side in (-1, 1) if b.rng.random() < 0.6 else (1,):
        y = b.rng.uniform(-0.35, 0.1)
        b.curve([(0, y + 0.2), (0.4 * side, y + 0.2), (0.5 * side, y + 0.02)], 0.24, green * 0.9, depth=0.4)
        column(0.5 * side, y - b.rng.uniform(0.2, 0.4), y + 0.15, 0.14)
    column(0, -high, 0.45, b.rng.uniform(0.28, 0.36))
    flower = b.tone("e85d9a", 0.04)
    for turn in np.linspace(-2.7, -0.44, 5):
        b.fill(leaf(0, -high + 0.06, 0.28, 0.17, turn), flower, depth=0.4)
    b.fill(oval(0, -high + 0.01, 0.07, 0.05), b.tone("f7d154"))
    pot = b.pick("c4693d", "5a86a8", "e4d8c4", "8a5a78")
    clay = b.fill(slab(-0.5, 0.5, 0.5, 1.0, 0.14), pot)
    if b.rng.random() < 0.5:
        b.curve([(-0.5, 0.78), (0, 0.82), (0.5, 0.78)], 0.07, b.tone("f0d9b5"), clay)
    b.shade(clay, 0.8)
    b.fill(slab(-0.57, 0.4, 0.57, 0.56, 0.02), pot * 1.06, depth=0.7)


def lemon(b: Brush) -> None:
    """A lemon with its leaf, sometimes with a cut slice before it."""
    yellow = b.pick("f5d327", "c9d23a", "f2c635", hue=0.015)
    veined_leaf(b, 0.85, -0.05, 0.66, b.rng.uniform(-2.3, -1.7), "4c8c3a")
    fat = b.rng.uniform(0.9, 1.1)
    outline = path("-1,0 -.84,-.16 -.5,-.5 0,-.6 .5,-.5 .8,-.16 .92,-.1 .92,.1 .8,.16 .5,.5 0,.6 -.5,.5 -.84,.16")
    body = b.blob(outline * (1, fat), yellow)
    b.spots(b.rng.uniform((-0.8, -0.5), (0.8, 0.5), (45, 2)), 0.02, yellow * 0.86, body)
    b.shade(body, 0.8)
    b.gloss(-0.2, -0.3, 0.26, 0.1, -0.2, body)
    b.fill(oval(0.92, 0, 0.05, 0.08), b.tone("7d8a3c"))
    if b.rng.random() < 0.5:
        x, y, r = b.rng.uniform(-0.5, 0.3), 0.42, b.rng.uniform(0.4, 0.5)
        rind = b.fill(oval(x, y, r, r), yellow * 0.97)
        b.fill(oval(x, y, r * 0.9, r * 0.9), b.tone("fdf6d8", 0.01, 0.03), rind)
        pieces = int(b.rng.integers(7, 10))
        turns = np.linspace(0, 2 * math.pi, pieces, endpoint=False)
        b.many([_wedge(x, y, r * 0.82, t, 2.5 / pieces) for t in turns], b.tone("f8e05a", 0.01))
        b.shade(rind, 0.35)


def _wedge(x: float, y: float, r: float, turn: float, half: float) -> Points:
    """Return a segment of a cut fruit with the centre (x, y)."""
    arc = np.linspace(turn - half, turn + half, 6)
    near = (x + 0.12 * r * math.cos(turn), y + 0.12 * r * math.sin(turn))
    return np.vstack([near, np.stack([x + r * np.cos(arc), y + r * np.sin(arc)], 1)])


def mushroom(b: Brush) -> None:
    """A fly agaric: red cap, white warts, a skirt on the stem."""
    cream, red = b.tone("f3e7cf", 0.02, 0.05), b.pick("cf2a27", "cf7a2c", "8f5638")
    wide, lean = b.rng.uniform(0.82, 0.98), b.rng.uniform(-0.1, 0.1)
    stem = path("-.17,-.1 .17,-.1 .2,.5 .32,.9 0,1 -.32,.9 -.2,.5")
    stem[2:, 0] += lean
    body = b.blob(stem, cream, depth=0.75)
    for y in (0.68, 0.78, 0.88):
        b.curve([(lean - 0.3, y), (lean, y + 0.05), (lean + 0.3, y)], 0.025, cream * 0.82, body)
    gills = b.fill(oval(0, -0.06, wide * 0.88, 0.19), cream * 0.86)
    folds = [[(x * 0.3, -0.12), (x * wide, 0.12)] for x in np.linspace(-0.85, 0.85, 15)]
    b.many(folds, cream * 0.68, gills, width=0.018)
    b.shade(gills, 0.3)
    b.blob(path("-.22,.12 .22,.12 .34,.34 .12,.3 0,.36 -.12,.3 -.34,.34"), cream, depth=0.5)
    tall = b.rng.uniform(0.8, 1.0)
    dome = path("-1,-.12 -.85,-.5 -.4,-.84 0,-.93 .4,-.84 .85,-.5 1,-.12 .5,-.02 0,.02 -.5,-.02")
    dome *= (wide, tall)
    cap = b.blob(dome, red)
    warts = path("0,-.62 -.42,-.48 .44,-.52 -.7,-.2 -.14,-.24 .28,-.2 .72,-.22 -.2,-.83 .24,-.84 -.42,-.14")
    warts = warts[: int(b.rng.integers(7, 11))]
    for x, y in warts * (wide, tall) + b.rng.normal(0, 0.03, warts.shape):
        r = b.rng.uniform(0.07, 0.13)
        b.fill(oval(x, y, r, r * 0.8), b.tone("fbf5e6", 0.01, 0.03), cap, depth=0.3)
    b.shade(cap, 0.75)
    b.gloss(-0.3, -0.66 * tall, 0.22, 0.08, -0.5, cap)


def pear(b: Brush) -> None:
    """A pear, green to golden with a blush and freckles."""
    skin = b.pick("b9c63f", "e0b63c", "d58a3e", hue=0.035)
    veined_leaf(b, 0.02, -0.78, 0.5, b.rng.uniform(-0.5, 0.2))
    neck, belly = b.rng.uniform(0.8, 1.1), b.rng.uniform(0.9, 1.12)
    b.curve([(0, -0.68), (0.02, -0.86), (0.1, -1)], 0.07, b.tone("6b4a2b"), depth=0.4)
    half = path("0,-.75 .24,-.68 .3,-.4 .47,-.02 .66,.4 .5,.82 0,.9")
    half[:, 0] *= np.array([1, neck, neck, belly, belly, belly, 1])
    body = b.fill(mirror(half), skin)
    side = b.rng.choice((-1, 1))
    b.fill(oval(0.55 * side, 0.3, 0.3, 0.4), b.tone("d9532c", 0.02), body, opacity=0.6, soft=0.15)
    b.spots(b.rng.uniform((-0.7, -0.6), (0.7, 0.85), (60, 2)), 0.016, skin * 0.75, body)
    b.shade(body, 0.85)
    b.gloss(-0.24, 0.18, 0.1, 0.26, 0.2, body)


def strawberry(b: Brush) -> None:
    """A strawberry with seeds and a green crown."""
    red, seed = b.pick("d81e34", "a31a35", "ea6a78"), b.tone("f6d36b")
    wide = b.rng.uniform(0.62, 0.76)
    b.curve([(0, -0.6), (0.03, -0.8), (0.13, -0.96)], 0.08, b.tone("6a9a3a"), depth=0.4)
    body = b.fill(mirror(path("0,-.58 .55,-.64 1,-.36 .9,.1 .45,.66 0,.9") * (wide, 1)), red)
    b.shade(body, 0.85)
    step = b.rng.uniform(0.2, 0.26)
    seeds = staggered(-0.42, 0.85, step)
    b.many([oval(x, y, 0.045, 0.06) for x, y in seeds], red * 0.62, body)
    b.many([oval(x, y + 0.012, 0.028, 0.045) for x, y in seeds], seed, body)
    b.gloss(-0.26, -0.3, 0.13, 0.2, 0.4, body)
    for turn in np.linspace(-0.35, math.pi + 0.35, int(b.rng.integers(6, 9))):
        green = b.tone("4f9a3a", 0.03, 0.15)
        b.fill(
            leaf(0, -0.62, 0.5 - 0.12 * math.sin(turn), 0.22, turn + b.rng.uniform(-0.1, 0.1)),
            green,
            depth=0.5,
        )


def veined_leaf(b: Brush, x: float, y: float, length: float, turn: float, colour: str = "5b9a3c") -> None:
    """Paint a leaf with its vein."""
    green = b.tone(colour, 0.03, 0.12)
    b.fill(leaf(x, y, length, length * 0.48, turn), green, depth=0.5)
    tip = (x + 0.85 * length * math.cos(turn), y + 0.85 * length * math.sin(turn))
    b.line([(x, y), tip], 0.025, green * 0.72)
