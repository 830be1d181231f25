"""The paper on which figures are drawn, and how pictures and figures are laid on it."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from somnet.report.figures.colours import GREY, INK, LINE, PAPER, WHITE, Colour
from somnet.report.figures.text import font_for, one_line, shortened

Floats = NDArray[np.floating]
Box = tuple[float, float, float, float]

FINE = 2  # everything is drawn at this multiple and scaled down, which smooths the edges
MARGIN = 36
HEADING = 68  # title and subtitle
CORNER = 8
SMALLEST_SHARE = 0.02  # smaller slices of a pie are one grey slice


class Canvas:
    """White paper. All lengths are pixels of the finished picture; the paper itself is FINE times as large."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = max(1, math.ceil(width)), max(1, math.ceil(height))
        self.paper = Image.new("RGB", (self.width * FINE, self.height * FINE), WHITE)
        self.pen = ImageDraw.Draw(self.paper)

    def finish(self) -> Image.Image:
        return self.paper.resize((self.width, self.height), Image.Resampling.LANCZOS)

    def text(
        self, x: float, y: float, text: str, size: int, colour: Colour = INK, *, anchor: str = "la", width: float = 1e9
    ) -> None:
        """A line of text, shortened to a width."""
        line = one_line(text)
        font = font_for(line, size * FINE)
        self.pen.text((x * FINE, y * FINE), shortened(line, font, width * FINE), colour, font, anchor)

    def heading(self, title: str, subtitle: str, width: float, margin: float = MARGIN) -> None:
        self.text(margin, margin, title, 22, width=width)
        self.text(margin, margin + 31, subtitle, 14, GREY, width=width)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        self.pen.rectangle(_corners(x, y, x + width, y + height), colour)

    def rounded(self, x: float, y: float, width: float, height: float, radius: float, colour: Colour) -> None:
        """A rectangle with round corners."""
        self.pen.rounded_rectangle(_corners(x, y, x + width, y + height), radius * FINE, colour)

    def frame(
        self, x: float, y: float, width: float, height: float, radius: float, colour: Colour, line: float
    ) -> None:
        """The border of a rectangle with round corners; its line lies inside."""
        corners = _corners(x, y, x + width, y + height)
        self.pen.rounded_rectangle(corners, radius * FINE, outline=colour, width=round(line * FINE))

    def polygon(self, points: Iterable[tuple[float, float]], colour: Colour) -> None:
        self.pen.polygon([(x * FINE, y * FINE) for x, y in points], colour)

    def outline(self, box: Floats, colour: Colour, line: float = 1.5) -> None:
        """The outline of a box (4,), with a dark seam on both sides that keeps it visible on any picture."""
        x1, y1, x2, y2 = np.asarray(box, np.float64).tolist()
        if x2 <= x1 or y2 <= y1:
            return
        for half, shade in ((line / 2 + 0.5, INK), (line / 2, colour)):
            corners = _corners(x1 - half, y1 - half, x2 + half, y2 + half)
            self.pen.rectangle(corners, outline=shade, width=round(2 * half * FINE))

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        self.pen.ellipse(_corners(x - radius, y - radius, x + radius, y + radius), colour)

    def pie(self, x: float, y: float, radius: float, shares: Floats, colours: Sequence[Colour]) -> None:
        """Slices clockwise from the top, largest first; those too small to see are one grey slice."""
        self.disc(x, y, radius, LINE)
        slices = visible_shares(shares)  # (C,)
        corners = _corners(x - radius, y - radius, x + radius, y + radius)
        order = np.argsort(-slices, kind="stable")[: int((slices > 0).sum())]  # (S,)
        ends = np.cumsum(slices[order])  # (S,)
        for number, end in zip(order.tolist(), ends.tolist(), strict=True):
            start = end - float(slices[number])
            self.pen.pieslice(corners, 360 * start - 90, 360 * end - 90, colours[number])
        if radius < 12 or slices.max(initial=0) > 0.995:
            return
        for turn in (0.0, *ends.tolist()):
            tip = x + radius * math.sin(2 * math.pi * turn), y - radius * math.cos(2 * math.pi * turn)
            self.pen.line((x * FINE, y * FINE, tip[0] * FINE, tip[1] * FINE), WHITE, FINE)

    def picture(
        self, image: Image.Image, x: float, y: float, width: float, height: float, radius: float = 0, fade: float = 0.0
    ) -> None:
        """A picture, stretched to a size."""
        size = max(1, round(width * FINE)), max(1, round(height * FINE))
        fitted = rgb(image).resize(size, Image.Resampling.LANCZOS, reducing_gap=3)
        if fade:
            fitted = Image.blend(fitted, Image.new("RGB", size, WHITE), fade)
        self.paper.paste(fitted, (round(x * FINE), round(y * FINE)), _rounded_mask(size, round(radius * FINE)))


def _corners(x1: float, y1: float, x2: float, y2: float) -> Box:
    """On the paper, at least a pixel; Pillow's right and bottom edges are part of the shape."""
    left, top = round(x1 * FINE), round(y1 * FINE)
    return left, top, max(left, round(x2 * FINE) - 1), max(top, round(y2 * FINE) - 1)


@lru_cache(16)
def _rounded_mask(size: tuple[int, int], radius: int) -> Image.Image:
    mask = Image.new("L", size, 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] - 1, size[1] - 1), radius, 255)
    return mask


def stack(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures below each other. They are finished already: a long sheet at FINE size would take much memory."""
    gap = 28
    width = max((picture.width for picture in pictures), default=0)
    height = sum(picture.height + gap for picture in pictures) - (gap if pictures else 0)
    sheet = Image.new("RGB", (width + 2 * MARGIN, height + 2 * MARGIN), WHITE)
    y = MARGIN
    for picture in pictures:
        sheet.paste(picture, (MARGIN, y))
        y += picture.height + gap
    return sheet


def rgb(image: Image.Image) -> Image.Image:
    """RGB, at least a pixel: a crop of a thin box may be empty."""
    return image.convert("RGB") if min(image.size) > 0 else Image.new("RGB", (1, 1), PAPER)


def fit(image: Image.Image, width: float, height: float) -> tuple[float, float]:
    """Size of an image that fits into a frame, its shape kept."""
    scale = min(width / max(1, image.width), height / max(1, image.height))
    return max(1.0, image.width * scale), max(1.0, image.height * scale)


def visible_shares(shares: Floats) -> NDArray[np.float64]:
    """Shares (C,) that sum to at most 1, without the ones too small to see."""
    positive = np.clip(np.nan_to_num(np.asarray(shares, np.float64), posinf=0, neginf=0), 0, None)  # (C,)
    normalised = positive / max(1e-12, float(positive.sum()))  # (C,)
    return np.where(normalised >= SMALLEST_SHARE, normalised, 0.0)  # (C,)
