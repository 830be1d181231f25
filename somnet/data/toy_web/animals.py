"""The animals of the toy web, each painted on a brush in unit coordinates."""

import math

import numpy as np

from somnet.data.toy_web.brush import Array, Brush
from somnet.data.toy_web.shapes import CIRCLE, TICK, leaf, mirror, oval, path, smooth, staggered


def bee(b: Brush) -> None:
    """A bumblebee seen from the side."""
    dark = b.tone("2b2220")
    for x in (-0.25, 0.0, 0.22):
        b.curve([(x, 0.35), (x - 0.05, 0.58), (x + 0.06, 0.72)], 0.05, dark)
    b.fill([(-0.85, 0.1), (-1.03, 0.2), (-0.85, 0.26)], dark)
    body = b.blob(
        path("-.92,.18 -.6,-.24 0,-.32 .4,-.1 .4,.3 0,.52 -.6,.5"),
        b.pick("f4b920", "e08a1e", "f2d75a", hue=0.015),
    )
    stripes = int(b.rng.integers(3, 5))
    for x in np.linspace(-0.78, 0.02, stripes):
        b.curve([(x, -0.6), (x + 0.1, 0.1), (x - 0.02, 0.7)], 0.48 / stripes, dark, body)
    b.shade(body, 0.75)
    fur = b.pick("f2c14e", "b9793a")
    t = np.linspace(0, 2 * math.pi, 44)
    tufts = (1 + 0.1 * (np.arange(44) % 2) + b.rng.uniform(-0.04, 0.04, 44))[:, None]
    for grow, tint in ((1.0, 0.8), (0.72, 0.95), (0.42, 1.1)):
        ruff = np.stack([0.25 * np.cos(t), 0.36 * np.sin(t)], 1) * tufts * grow + (0.28, 0.06)
        b.fill(ruff, np.minimum(fur * tint, 1), depth=0.4)
    head = b.fill(oval(0.63, 0.1, 0.27, 0.29), dark, depth=0.7)
    b.gloss(0.6, -0.05, 0.12, 0.07, 0.4, head)
    _eye(b, 0.71, 0.06, 0.1, b.tone("f5efe2"))
    for x in (0.62, 0.76):
        b.curve([(x, -0.1), (x + 0.06, -0.35), (x + 0.2, -0.45)], 0.035, dark)
        b.fill(oval(x + 0.2, -0.45, 0.05, 0.05), dark)
    spread = b.rng.uniform(-0.12, 0.12)
    for turn, length in ((-2.25, 0.9), (-1.7, 1.0)):
        wing = b.fill(leaf(0.12, -0.12, length, 0.58, turn + spread), b.tone("d8ecf5"), opacity=0.8)
        b.shade(wing, 0.3)
        for side in (-0.16, 0.1):
            a = turn + spread + side
            tip = (0.12 + 0.8 * length * math.cos(a), -0.12 + 0.8 * length * math.sin(a))
            b.line([(0.12, -0.12), tip], 0.015, b.tone("8fb2c4"), wing)


def butterfly(b: Brush) -> None:
    """A butterfly from above, dark margins with pale dots around bright panels."""
    base, dark = b.pick("ef7d22", "3f7fd0", "d8508a", "e8cf4a", hue=0.035), b.tone("2a1d2b")
    open_, drop = b.rng.uniform(0.88, 1.08), b.rng.uniform(-0.06, 0.1)
    upper = path(".04,-.2 .4,-.75 .85,-.9 1,-.65 .85,-.2 .5,.06 .05,.05")
    lower = path(".04,.0 .5,.05 .78,.3 .7,.7 .42,.85 .18,.55")
    lower[:, 1] += drop / 2
    for side in (-1, 1):
        for wing, hinge in ((lower, (0.04, 0.1)), (upper, (0.04, -0.1))):
            shape = wing * (side * open_, 1)
            outer = b.blob(shape, dark)
            centre = shape.mean(0)
            panel = b.blob((shape - centre) * 0.76 + centre * 0.96, base, outer)
            b.blob((shape - centre) * 0.4 + centre * 0.85, np.minimum(base * 1.25 + 0.08, 1), panel)
            veins = [[(hinge[0] * side, hinge[1]), tip * 0.98] for tip in shape[1:-1]]
            b.many(veins, dark, panel, width=0.028)
            rim = smooth((shape - centre) * 0.88 + centre)[6:-10:4]
            b.spots(rim, 0.032, b.tone("fbf3e0"), outer)
            b.shade(outer, 0.5, 0.2)
    b.fill(oval(0, 0.05, 0.075, 0.5), dark * 1.3, depth=0.7)
    b.fill(oval(0, -0.45, 0.09, 0.1), dark * 1.3, depth=0.6)
    for side in (-1, 1):
        b.curve([(0, -0.5), (0.12 * side, -0.8), (0.3 * side, -0.98)], 0.028, dark)
        b.fill(oval(0.3 * side, -0.98, 0.04, 0.04), dark)


def clownfish(b: Brush) -> None:
    """An orange reef fish with white bands edged in black."""
    orange, dark, white = b.pick("f26a1b", "c23a22", "f2a51f", hue=0.015), b.tone("241c1f"), b.tone("fbf6ec")
    fins = [
        path("-.6,0 -.98,-.36 -.9,0 -.98,.36"),
        path("-.4,-.35 -.2,-.68 .05,-.55 .3,-.62 .4,-.35"),
        path("-.4,.3 -.32,.64 -.08,.6 .05,.4"),
    ]
    for fin in fins:
        shape = smooth(fin)
        b.fill(shape, dark)
        centre = shape.mean(0)
        b.fill((shape - centre) * 0.84 + centre * 0.97, orange, depth=0.5)
    plump = b.rng.uniform(0.9, 1.12)
    outline = path("-.68,-.1 -.3,-.4 .25,-.46 .7,-.24 .86,.04 .7,.28 .25,.45 -.3,.37 -.68,.1")
    body = b.blob(outline * (1, plump), orange)
    for x, w in ((0.4, 0.2), (-0.08, 0.24), (-0.56, 0.12)):
        x, w, bow = x + b.rng.uniform(-0.03, 0.03), w * b.rng.uniform(0.8, 1.2), 0.12 if x > -0.3 else 0.0
        curve = smooth([(x - 0.02, -0.6), (x + bow, 0), (x - 0.02, 0.6)], closed=False)
        b.line(curve, w + 0.07, dark, body)
        b.line(curve, w, white, body)
    b.shade(body, 0.7)
    b.gloss(0.1, -0.26 * plump, 0.4, 0.07, 0.0, body)
    fin_shape = leaf(0.14, 0.1, 0.4, 0.3, 2.6)
    b.fill(fin_shape, dark)
    b.fill((fin_shape - fin_shape.mean(0)) * 0.78 + fin_shape.mean(0), orange * 0.97, depth=0.5)
    _eye(b, 0.66, -0.06, 0.095, b.tone("f9c784"))
    b.curve([(0.85, 0.1), (0.78, 0.14), (0.72, 0.12)], 0.025, dark)


def ladybird(b: Brush) -> None:
    """A ladybird from above."""
    dark = b.tone("221c1e")
    for side in (-1, 1):
        for y, out in ((-0.3, -0.16), (0.05, 0.0), (0.4, 0.2)):
            b.curve([(0.5 * side, y), (0.82 * side, y + out * 0.3), (0.95 * side, y + out + 0.12)], 0.06, dark)
        b.curve([(0.1 * side, -0.75), (0.2 * side, -0.95), (0.36 * side, -1)], 0.04, dark)
    head = b.fill(oval(0, -0.66, 0.32, 0.24), dark, depth=0.7)
    b.fill(oval(0, -0.5, 0.5, 0.24), dark, depth=0.6)
    for side in (-1, 1):
        b.fill(oval(0.34 * side, -0.54, 0.11, 0.09, 0.5 * side), b.tone("f7f1e3"))
        b.fill(oval(0.17 * side, -0.74, 0.06, 0.06), b.tone("f7f1e3"), head)
    red = b.pick("d62a1e", "ec8a1c", "e9bf35")
    body = b.fill(oval(0, 0.15, 0.75 * b.rng.uniform(0.92, 1.06), 0.72), red)
    b.fill([(-0.035, -0.7), (0.035, -0.7), (0.05, 1), (-0.05, 1)], dark, body)
    sides = [(0.36, -0.2), (0.52, 0.22), (0.22, 0.24), (0.32, 0.58)][: int(b.rng.integers(3, 5))]
    spots = [(x * side, y) for x, y in sides for side in (-1, 1)]
    b.spots(np.array(spots) + b.rng.normal(0, 0.02, (len(spots), 2)), b.rng.uniform(0.1, 0.14), dark, body)
    b.fill(oval(0, -0.5, 0.22, 0.16), dark, body)
    b.shade(body, 0.85)
    b.gloss(b.rng.choice((-0.3, 0.3)), -0.18, 0.2, 0.12, -0.4, body)


def owl(b: Brush) -> None:
    """An owl with ringed eyes and a feathered breast."""
    brown, pale = b.pick("8a5a36", "76757a", "a04f2c", "5a4638"), b.tone("ecd3a4", 0.02)
    for side in (-1, 1):
        b.fill(leaf(0.32 * side, -0.66, 0.44, 0.3, -math.pi / 2 + 0.45 * side), brown * 0.8, depth=0.4)
        for x in (0.16, 0.26, 0.36):
            b.line([(x * side, 0.85), (x * side * 1.1, 0.98)], 0.07, b.tone("e2952f"))
    body = b.fill(mirror(path("0,-.82 .42,-.76 .66,-.4 .64,.2 .52,.7 0,.92")), brown)
    b.shade(body, 0.7)
    breast = b.fill(mirror(path("0,-.1 .4,-.05 .46,.3 .36,.68 0,.84")), pale, body)
    feathers = [np.add(TICK, spot) for spot in staggered(0.04, 0.85, 0.16)]
    b.many(feathers, brown * 0.8, breast, width=0.03)
    b.shade(breast, 0.5, 0.3)
    for side in (-1, 1):
        wing = b.blob(path(".5,-.2 .76,0 .8,.4 .56,.8 .44,.4") * (side, 1), brown * 0.72)
        for y in (0.12, 0.3, 0.48):
            b.curve([(0.44 * side, y), (0.62 * side, y + 0.14), (0.8 * side, y)], 0.035, brown * 1.1, wing)
        b.shade(wing, 0.6)
    amber = b.tone("f2a81d", 0.03)
    for side in (-1, 1):
        x, y = 0.27 * side, -0.4
        b.fill(oval(x, y, 0.31, 0.31), pale, depth=0.4)
        rays = [CIRCLE[k : k + 1] * [[0.2], [0.28]] + (x, y) for k in range(0, 40, 3)]
        b.many(rays, brown * 0.9, width=0.02)
        _eye(b, x, y, 0.18, amber)
    b.blob([(-0.1, -0.28), (0, -0.34), (0.1, -0.28), (0, -0.02)], b.tone("e08a2b"), depth=0.6)


def _eye(b: Brush, x: float, y: float, r: float, iris: Array) -> None:
    """Paint a round eye with its pupil and a glint."""
    b.fill(oval(x, y, r, r), iris, depth=0.4)
    b.fill(oval(x, y, r * 0.62, r * 0.62), b.tone("1d1a20"))
    b.fill(oval(x - r * 0.2, y - r * 0.25, r * 0.22, r * 0.22), np.ones(3, np.float32))
