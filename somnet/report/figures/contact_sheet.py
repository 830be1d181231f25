"""Contact sheets: the images of a data set as thumbnails."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from somnet.report.figures.canvas import CORNER, Box, Canvas, fit, stack
from somnet.report.figures.colours import GREY, PAPER, RED, WHITE


@dataclass(frozen=True)
class Tile:
    """A thumbnail of a contact sheet."""

    image: Image.Image
    caption: str = ""
    box: Box | None = None  # xyxy, pixels of the image
    flag: bool = False  # marked as noise


def contact_sheet(groups: Sequence[tuple[str, Sequence[Tile]]], *, tile: int = 112, columns: int = 10) -> Image.Image:
    """Rows of thumbnails, a title above each group."""
    most = max((len(tiles) for _, tiles in groups), default=0)
    columns = max(1, min(columns, max(most, 4)))  # few thumbnails still leave room for a title
    return stack([_group(title, tiles, tile, columns) for title, tiles in groups])


def _group(title: str, tiles: Sequence[Tile], side: int, columns: int) -> Image.Image:
    """One group of a contact sheet."""
    gap, heading = 14, 36
    step = side + gap + (16 if any(tile.caption for tile in tiles) else 0)
    width = columns * (side + gap) - gap
    canvas = Canvas(width, heading + max(1, math.ceil(len(tiles) / columns)) * step)
    canvas.text(0, 2, title, 18, width=width - 60)
    canvas.text(width, 6, str(len(tiles)), 14, GREY, anchor="ra")
    for number, tile in enumerate(tiles):
        x, y = number % columns * (side + gap), heading + number // columns * step
        canvas.picture(thumbnail(tile, side), x, y, side, side, CORNER)
        canvas.text(x + side / 2, y + side + 5, tile.caption, 12, GREY, anchor="ma", width=side)
    return canvas.finish()


def thumbnail(tile: Tile, side: int) -> Image.Image:
    """The whole image in a square, at FINE size: what cropping removes may be what the box or the flag is about."""
    square = Canvas(side, side)
    square.rectangle(0, 0, side, side, PAPER)
    width, height = fit(tile.image, side, side)
    x, y = (side - width) / 2, (side - height) / 2
    square.picture(tile.image, x, y, width, height)
    if tile.box is not None:
        scale = width / max(1, tile.image.width), height / max(1, tile.image.height)
        box = np.array(tile.box) * [*scale, *scale] + [x, y, x, y]  # (4,)
        square.outline(np.clip(box, 2, side - 2), WHITE)
    if tile.flag:
        square.frame(0, 0, side, side, CORNER, RED, 2.5)
        square.polygon([(side - 22, 0), (side, 0), (side, 22)], RED)
    return square.paper
