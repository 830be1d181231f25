"""Drawn things for the demo's toy web: a small gouache brush, the categories and the clutter.

Every thing is a short function that paints on a :class:`Brush` in unit coordinates (x to the right, y down,
the thing filling about -1..1). The brush turns and mirrors them, and keeps the colours premultiplied by
alpha, so that a sprite can be shrunk without dark fringes.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Points = npt.NDArray[np.float64]
Outline = Sequence[tuple[float, float]] | Points


# The canvas is this many units wide, so that a thing's corners stay inside however it is turned.
_MARGIN = 2.9
_TICK = np.array([(-0.055, -0.05), (0, 0.03), (0.055, -0.05)])
_CIRCLE = np.stack([np.cos(np.arange(40) * math.pi / 20), np.sin(np.arange(40) * math.pi / 20)], 1)


@dataclass(frozen=True)
class Mask:
    """Coverage (0..1) of a painted shape inside ``box`` (x1, y1, x2, y2) of the canvas."""

    cover: Array
    box: tuple[int, int, int, int]


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
    return np.asarray(_CIRCLE @ np.array([(rx * c, rx * s), (-ry * s, ry * c)]) + (x, y))


def leaf(x: float, y: float, length: float, width: float, turn: float) -> Points:
    """Return a pointed leaf that starts at (x, y) and grows in the direction ``turn``."""
    t = np.linspace(0, 1, 12)
    half = np.sin(math.pi * t**0.8) * width / 2
    u, v = np.concatenate([t, t[::-1]]) * length, np.concatenate([half, -half[::-1]])
    return np.stack([x + u * math.cos(turn) - v * math.sin(turn), y + u * math.sin(turn) + v * math.cos(turn)], 1)


def slab(x1: float, y1: float, x2: float, y2: float, taper: float = 0.0) -> Points:
    """Return a box whose bottom is narrower by ``taper`` on each side."""
    return np.array([(x1, y1), (x2, y1), (x2 - taper, y2), (x1 + taper, y2)], dtype=np.float64)


def noise(rng: np.random.Generator, height: int, width: int, rows: int, columns: int) -> Array:
    """Return soft noise, about -1..1, with the given number of cells."""
    cells = rng.uniform(-1, 1, (max(rows, 2), max(columns, 2))).astype(np.float32)
    return np.asarray(cv2.resize(cells, (width, height), interpolation=cv2.INTER_CUBIC), dtype=np.float32)


def tone(rng: np.random.Generator, colour: str, hue: float = 0.02, spread: float = 0.08) -> Array:
    """Return a ``rrggbb`` colour jittered in hue, saturation and value."""
    h, s, v = colorsys.rgb_to_hsv(*(int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)))
    dh, ds, dv = rng.uniform(-1, 1, 3) * (hue, spread, spread)
    return np.array(colorsys.hsv_to_rgb((h + dh) % 1, min(s * (1 + ds), 1), min(v * (1 + dv), 1)), np.float32)


class Brush:
    """A transparent canvas with a fixed light, painted in unit coordinates."""

    def __init__(self, size: int, rng: np.random.Generator, tilt: float = 20.0) -> None:
        self.size, self.rng = size, rng
        angle = math.radians(rng.uniform(-tilt, tilt))
        flip = rng.choice((-1.0, 1.0))
        stretch = rng.uniform(0.9, 1.1)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        self._matrix = turn @ np.diag([flip * stretch, 1 / stretch]) * size / _MARGIN
        self._light = (rng.uniform(-0.5, 0.5), rng.uniform(-0.55, -0.3))
        self._depth = rng.uniform(0.8, 1.25)
        # Planes of red, green, blue and alpha: far faster to mix than interleaved channels.
        self._planes: Array = np.zeros((4, size, size), np.float32)

    def tone(self, colour: str, hue: float = 0.02, spread: float = 0.08) -> Array:
        """Return a ``rrggbb`` colour jittered in hue, saturation and value."""
        return tone(self.rng, colour, hue, spread)

    def pick(self, usual: str, *rarer: str, hue: float = 0.025) -> Array:
        """Return the usual colour, jittered, or for two things in five one of the rarer ones."""
        return self.tone(str(self.rng.choice(rarer)) if self.rng.random() < 0.4 else usual, hue, 0.12)

    def fill(
        self,
        outline: Outline,
        colour: Array,
        within: Mask | None = None,
        depth: float = 0.0,
        opacity: float = 1.0,
        soft: float = 0.0,
    ) -> Mask:
        """Paint a closed outline: modelled by the light when ``depth`` is above zero, blurred by ``soft``."""
        mask = self._stroke([outline], colour, within, opacity, soft=soft)
        if depth:
            self.shade(mask, depth)
        return mask

    def line(
        self,
        points: Outline,
        width: float,
        colour: Array,
        within: Mask | None = None,
        depth: float = 0.0,
        closed: bool = False,
    ) -> Mask:
        """Paint a round stroke of the given width along the points."""
        mask = self._stroke([points], colour, within, width=width, closed=closed)
        if depth:
            self.shade(mask, depth)
        return mask

    def many(self, outlines: Sequence[Outline], colour: Array, within: Mask | None = None, width: float = 0.0) -> None:
        """Fill many small shapes of one colour at once, or draw them as strokes of the given width."""
        if len(outlines):
            self._stroke(outlines, colour, within, width=width)

    def blob(
        self,
        points: Outline,
        colour: Array,
        within: Mask | None = None,
        depth: float = 0.0,
        opacity: float = 1.0,
    ) -> Mask:
        """Paint the smooth closed shape through the points."""
        return self.fill(smooth(points), colour, within, depth, opacity)

    def curve(
        self, points: Outline, width: float, colour: Array, within: Mask | None = None, depth: float = 0.0
    ) -> Mask:
        """Paint a round stroke along the smooth curve through the points."""
        return self.line(smooth(points, closed=False), width, colour, within, depth)

    def spots(self, centres: Outline, radius: float, colour: Array, within: Mask | None = None) -> None:
        """Paint a round spot, its size a little random, at each centre."""
        sizes = radius * self.rng.uniform(0.8, 1.2, (len(centres), 2))
        shapes = [oval(x, y, *size) for (x, y), size in zip(np.asarray(centres), sizes, strict=True)]
        self.many(shapes, colour, within)

    def shade(self, mask: Mask, depth: float = 0.5, rim: float = 0.5) -> None:
        """Model a shape as round: a warm light, a cool shadow and a darker soft rim."""
        x1, y1, x2, y2 = mask.box
        h, w = mask.cover.shape
        if h < 2 or w < 2:
            return
        u = np.linspace(-1, 1, w, dtype=np.float32)[None, :] - np.float32(self._light[0])
        v = np.linspace(-1, 1, h, dtype=np.float32)[:, None] - np.float32(self._light[1])
        far = cv2.sqrt(u * u + v * v) - np.float32(0.75)
        reach = max(3, int(0.16 * min(h, w))) | 1
        inner = cv2.blur(mask.cover, (reach, reach), borderType=cv2.BORDER_CONSTANT)
        depth *= self._depth
        dark = mask.cover * (np.maximum(far, 0) * np.float32(0.55 * depth) + np.float32(rim) * (1 - inner))
        lit = mask.cover * (np.maximum(-far, 0) * np.float32(0.5 * depth))
        area = self._planes[:, y1:y2, x1:x2]
        for plane, cool, warm in zip(area[:3], (0.85, 0.95, 0.75), (1.0, 0.97, 0.86), strict=True):
            plane *= 1 - np.minimum(dark, 1) * np.float32(cool)
            plane += lit * (area[3] * np.float32(warm) - plane)

    def gloss(self, x: float, y: float, rx: float, ry: float, turn: float, within: Mask) -> None:
        """Put a soft window of light on a shiny surface."""
        white = np.ones(3, np.float32)
        self.fill(oval(x, y, rx, ry, turn), white, within, opacity=0.6, soft=0.4 * min(rx, ry))

    def finish(self) -> Array:
        """Return the sprite (height x width x RGBA), with dry brush marks, cut to the painted part."""
        seen = self._planes[3] > 0.02
        rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
        planes = self._planes[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        h, w = planes.shape[1:]
        planes[:3] *= 1 + 0.05 * noise(self.rng, h, w, 5, 5) + 0.05 * noise(self.rng, h, w, 40, 14)
        np.clip(planes[:3], 0, planes[3], out=planes[:3])
        return np.ascontiguousarray(planes.transpose(1, 2, 0))

    def _place(self, points: Outline) -> Points:
        return np.asarray(np.asarray(points, dtype=np.float64) @ self._matrix.T + self.size / 2)

    def _box(self, points: Points, margin: int) -> tuple[int, int, int, int]:
        low, high, last = points.min(0), points.max(0), self.size - 1
        x1, y1 = (min(max(int(v) - margin, 0), last) for v in low)
        x2, y2 = (min(max(int(v) + 1 + margin, 1), self.size) for v in high)
        return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)

    def _stroke(
        self,
        shapes: Sequence[Outline],
        colour: Array,
        within: Mask | None,
        opacity: float = 1.0,
        *,
        width: float = 0.0,
        closed: bool = False,
        soft: float = 0.0,
    ) -> Mask:
        """Mix the colour into the planes where the shapes are, and return what was covered."""
        unit = self.size / _MARGIN
        thick, sigma = (max(1, round(width * unit)) if width else 0), soft * unit
        placed = [self._place(shape) for shape in shapes]
        box = self._box(np.vstack(placed), thick // 2 + 2 + int(2.5 * sigma))
        shape = np.zeros((box[3] - box[1], box[2] - box[0]), np.uint8)
        fixed = [np.round((points - box[:2]) * 16).astype(np.int32) for points in placed]
        if thick:
            cv2.polylines(shape, fixed, closed, 255, thick, cv2.LINE_AA, 4)
        else:
            # One by one: filled together, overlapping shapes would cancel each other.
            for points in fixed:
                cv2.fillPoly(shape, [points], 255, cv2.LINE_AA, 4)
        if sigma:
            cv2.GaussianBlur(shape, (0, 0), sigma, shape)
        if within is not None:
            x1, y1 = max(box[0], within.box[0]), max(box[1], within.box[1])
            x2, y2 = min(box[2], within.box[2]), min(box[3], within.box[3])
            if x1 >= x2 or y1 >= y2:
                return Mask(np.zeros((1, 1), np.float32), (0, 0, 1, 1))
            left, top = within.box[:2]
            shape, box = shape[y1 - box[1] : y2 - box[1], x1 - box[0] : x2 - box[0]], (x1, y1, x2, y2)
        cover = shape.astype(np.float32) * np.float32(1 / 255)
        if within is not None:
            cover *= within.cover[y1 - top : y2 - top, x1 - left : x2 - left]
        c = cover if opacity == 1 else cover * np.float32(opacity)
        for plane, value in zip(self._planes[:, box[1] : box[3], box[0] : box[2]], (*colour, 1.0), strict=True):
            plane += c * (np.float32(value) - plane)
        return Mask(cover, box)


# --------------------------------------------------------------------------------------------- categories


def _greens(b: Brush, x: float, y: float, length: float, turn: float, colour: str = "5b9a3c") -> None:
    """Paint a leaf with its vein."""
    green = b.tone(colour, 0.03, 0.12)
    b.fill(leaf(x, y, length, length * 0.48, turn), green, depth=0.5)
    tip = (x + 0.85 * length * math.cos(turn), y + 0.85 * length * math.sin(turn))
    b.line([(x, y), tip], 0.025, green * 0.72)


def _eye(b: Brush, x: float, y: float, r: float, iris: Array) -> None:
    b.fill(oval(x, y, r, r), iris, depth=0.4)
    b.fill(oval(x, y, r * 0.62, r * 0.62), b.tone("1d1a20"))
    b.fill(oval(x - r * 0.2, y - r * 0.25, r * 0.22, r * 0.22), np.ones(3, np.float32))


def _rows(top: float, bottom: float, step: float) -> list[tuple[float, float]]:
    """Return staggered places over the width of a thing."""
    return [(step * (k + row % 2 / 2), y) for row, y in enumerate(np.arange(top, bottom, step)) for k in range(-4, 5)]


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
        b.many([np.add(_TICK * 0.5, spot) for spot in spots], spine, width=0.013)

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


def lemon(b: Brush) -> None:
    """A lemon with its leaf, sometimes with a cut slice before it."""
    yellow = b.pick("f5d327", "c9d23a", "f2c635", hue=0.015)
    _greens(b, 0.85, -0.05, 0.66, b.rng.uniform(-2.3, -1.7), "4c8c3a")
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
    feathers = [np.add(_TICK, spot) for spot in _rows(0.04, 0.85, 0.16)]
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
        rays = [_CIRCLE[k : k + 1] * [[0.2], [0.28]] + (x, y) for k in range(0, 40, 3)]
        b.many(rays, brown * 0.9, width=0.02)
        _eye(b, x, y, 0.18, amber)
    b.blob([(-0.1, -0.28), (0, -0.34), (0.1, -0.28), (0, -0.02)], b.tone("e08a2b"), depth=0.6)


def pear(b: Brush) -> None:
    """A pear, green to golden with a blush and freckles."""
    skin = b.pick("b9c63f", "e0b63c", "d58a3e", hue=0.035)
    _greens(b, 0.02, -0.78, 0.5, b.rng.uniform(-0.5, 0.2))
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


def strawberry(b: Brush) -> None:
    """A strawberry with seeds and a green crown."""
    red, seed = b.pick("d81e34", "a31a35", "ea6a78"), b.tone("f6d36b")
    wide = b.rng.uniform(0.62, 0.76)
    b.curve([(0, -0.6), (0.03, -0.8), (0.13, -0.96)], 0.08, b.tone("6a9a3a"), depth=0.4)
    body = b.fill(mirror(path("0,-.58 .55,-.64 1,-.36 .9,.1 .45,.66 0,.9") * (wide, 1)), red)
    b.shade(body, 0.85)
    step = b.rng.uniform(0.2, 0.26)
    seeds = _rows(-0.42, 0.85, step)
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


THINGS: dict[str, Callable[[Brush], None]] = {
    thing.__name__: thing
    for thing in (
        balloon,
        bee,
        butterfly,
        cactus,
        clownfish,
        ladybird,
        lemon,
        mushroom,
        owl,
        pear,
        sailboat,
        strawberry,
    )
}


# ------------------------------------------------------------------------------------------------- clutter

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


def _any(b: Brush) -> Array:
    return b.tone(str(b.rng.choice(_PALETTE)), 0.03, 0.2)


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
        _greens(b, x, y, b.rng.uniform(0.7, 1), b.rng.uniform(0, 2 * math.pi), colour)


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


CLUTTER: dict[str, Callable[[Brush], None]] = {
    thing.__name__: thing
    for thing in (
        ball,
        books,
        bottle,
        bush,
        button,
        cloud,
        cone,
        crate,
        cup,
        leaves,
        pine,
        planks,
        stone,
        tuft,
    )
}
