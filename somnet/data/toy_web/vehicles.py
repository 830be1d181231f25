"""The vehicles of the toy web, of air and of water, each painted on a brush in unit coordinates."""

import math

import numpy as np

from somnet.data.toy_web.brush import Brush
from somnet.data.toy_web.shapes import mirror, oval, path, slab, smooth


def balloon(b: Brush) -> None:
    """A hot-air balloon with coloured gores over a wicker basket."""
    a = b.pick("e4452e", "2e78ab", "4f9a6b", "8a4f9a", hue=0.04)
    c = b.pick("f8e8c8", "f6c445", "f4a6a0", hue=0.02)
    wide = b.rng.uniform(0.72, 0.86)
    for x in (-0.13, 0.13):
        b.line([(x * 1.9, 0.36), (x, 0.78)], 0.025, b.tone("5c4632"))
    profile = path("0,-1 .55,-.88 1,-.4 .82,.08 .36,.46 .22,.5")
    body = b.fill(mirror(profile * (wide, 1)), a)
    gores = int(b.rng.integers(3, 5))
    for k in range(-gores, gores):
        if k % 2 == 0:
            edges = [math.sin(math.pi * q / (2 * gores)) for q in (k, k + 1)]
            left, right = (smooth(profile * (wide * e, 1), closed=False) for e in edges)
            b.fill(np.vstack([left, right[::-1]]), c, body)
    band = b.tone("7b2d43", 0.05) if b.rng.random() < 0.6 else c * 0.8
    y = b.rng.uniform(0.1, 0.2)
    b.curve([(-1, y - 0.06), (0, y + 0.06), (1, y - 0.06)], 0.11, band, body)
    b.shade(body, 0.75)
    basket = b.fill(slab(-0.17, 0.74, 0.17, 1.0, 0.03), b.tone("a8713c"))
    for y in (0.81, 0.88, 0.95):
        b.line([(-0.2, y), (0.2, y)], 0.02, b.tone("7a4d25"), basket)
    b.shade(basket, 0.5)
    b.line([(-0.18, 0.75), (0.18, 0.75)], 0.05, b.tone("8a5a2c"))


def sailboat(b: Brush) -> None:
    """A little boat under a striped sail."""
    white, stripe = b.tone("f8f1e2", 0.01, 0.03), b.pick("d23b3b", "2f6db5", "e0a030", "3f8f6d")
    hull_colour = b.pick("b0392f", "2b5c94", "8a5f3c", "3f6f5f")
    b.line([(0, -1), (0, 0.5)], 0.05, b.tone("6e4a2a"))
    billow = b.rng.uniform(0.08, 0.2)
    curve = smooth([(0.06, -0.92), (0.5 + billow / 2, -0.35), (0.8, 0.36)], closed=False)
    sail = b.fill(np.vstack([curve, [(0.4, 0.42), (0.06, 0.38)]]), white)
    count = int(b.rng.integers(3, 6))
    for y in np.linspace(-0.7, 0.36, count):
        b.curve([(0, y - 0.02), (0.4, y + 0.05), (0.95, y - 0.02)], 0.5 / count, stripe, sail)
    b.shade(sail, 0.5)
    jib = b.fill(path("-.05,-.85 -.2,-.54 -.37,-.24 -.57,.06 -.78,.36 -.4,.4 -.05,.3"), white * 0.97)
    b.shade(jib, 0.5)
    b.fill([(0, -1), (-0.26, -0.93), (0, -0.85)], stripe)
    hull = b.fill(path("-.98,.46 -.91,.62 -.8,.76 -.66,.86 -.5,.92 .52,.92 .68,.88 .8,.8 .87,.66 .92,.5"), hull_colour)
    b.line([(-1, 0.52), (1, 0.55)], 0.1, white, hull)
    for y in (0.68, 0.8):
        b.line([(-1, y), (1, y)], 0.02, hull_colour * 0.72, hull)
    b.shade(hull, 0.7)
    for x in (-0.35, 0.0, 0.35):
        b.fill(oval(x, 0.7, 0.06, 0.06), b.tone("f1d58a"))
