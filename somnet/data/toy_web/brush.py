"""A small gouache brush that paints an object on a transparent canvas.

It turns and mirrors what it paints, and keeps the colours premultiplied by alpha, so that a sprite can be shrunk
without dark fringes.
"""

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from somnet.data.toy_web.shapes import Outline, Points, oval, smooth

Array = npt.NDArray[np.float32]

# The canvas is this many units wide, so that an object's corners stay inside however it is turned.
_WIDTH = 2.9


@dataclass(frozen=True)
class Mask:
    """Coverage (0..1) of a painted shape inside ``box`` (x1, y1, x2, y2) of the canvas."""

    cover: Array
    box: tuple[int, int, int, int]


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
        self._matrix = turn @ np.diag([flip * stretch, 1 / stretch]) * size / _WIDTH
        self._light = (rng.uniform(-0.5, 0.5), rng.uniform(-0.55, -0.3))
        self._depth = rng.uniform(0.8, 1.25)
        # Planes of red, green, blue and alpha: far faster to mix than interleaved channels.
        self._planes: Array = np.zeros((4, size, size), np.float32)

    def tone(self, colour: str, hue: float = 0.02, spread: float = 0.08) -> Array:
        """Return a ``rrggbb`` colour jittered in hue, saturation and value."""
        return tone(self.rng, colour, hue, spread)

    def pick(self, usual: str, *rarer: str, hue: float = 0.025) -> Array:
        """Return the usual colour, jittered, or for two objects in five one of the rarer ones."""
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
        painted = self._planes[3] > 0.02
        rows, columns = np.flatnonzero(painted.any(1)), np.flatnonzero(painted.any(0))
        planes = self._planes[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        h, w = planes.shape[1:]
        planes[:3] *= 1 + 0.05 * noise(self.rng, h, w, 5, 5) + 0.05 * noise(self.rng, h, w, 40, 14)
        np.clip(planes[:3], 0, planes[3], out=planes[:3])
        return np.ascontiguousarray(planes.transpose(1, 2, 0))

    def _place(self, points: Outline) -> Points:
        """Return the points in pixels of the canvas."""
        return np.asarray(np.asarray(points, dtype=np.float64) @ self._matrix.T + self.size / 2)

    def _box(self, points: Points, margin: int) -> tuple[int, int, int, int]:
        """Return the part of the canvas around the points."""
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
        unit = self.size / _WIDTH
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
