"""The memory as a grid of all its slots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from somnet.report.figures.canvas import CORNER, HEADING, MARGIN, Canvas, Floats, rgb
from somnet.report.figures.colours import GREY, LINE, PAPER, WHITE, Colour, class_colours, faded
from somnet.report.figures.legend import Legend

MOST_PIXELS = 2400  # about the longest side of a memory grid
PIES_ONLY_ABOVE = 12  # slots per side
CARD_GAP, CARD_TEXT = 16, 52  # between slots, and below a slot's picture with its text


def memory_grid(
    side: int,
    counts: NDArray[np.integer] | Floats,
    d: Floats,
    r: Floats,
    exemplars: Mapping[int, Sequence[Image.Image]],
    classes: Sequence[str],
) -> Image.Image:
    """All slots of a memory (Figure 3 for every slot): counts and d are (L, C), r is (C, L)."""
    hits = np.asarray(counts, np.float64).sum(axis=1)  # (L,)
    top = np.asarray(d).argmax(axis=1)  # (L,)
    strength = np.log1p(hits) / max(1e-9, float(np.log1p(hits.max(initial=0))))  # (L,) a few slots win very often
    slots = [
        _Slot(
            hits=int(hits[slot]),
            strength=float(strength[slot]),
            shares=d[slot],
            best=int(best),
            name=classes[best],
            r_score=float(r[best][slot]),
            crop=next(iter(exemplars.get(slot, ())), None),
        )
        for slot, best in enumerate(top)
    ]
    room = MOST_PIXELS - 360  # for the grid itself, beside title, legend and margins
    if side <= PIES_ONLY_ABOVE:
        cell = min(160, room // side - CARD_TEXT)
        step_x, step_y, draw = cell + CARD_GAP, cell + CARD_TEXT, _card
        note = "Border: top class, paler where little was won. Number: times won."
    else:
        cell = step_x = step_y = min(64, room // side)
        draw = _bubble
        note = "The larger, the more the slot has won; dots have won nothing."
    width = max(side * step_x, 640)
    colours = class_colours(len(classes))
    legend = Legend(classes, colours, np.bincount(top[hits > 0], minlength=len(classes)), width)

    foot = MARGIN + HEADING + side * step_y + 8
    canvas = Canvas(width + 2 * MARGIN, foot + 34 + legend.height + MARGIN)
    won = f"{np.count_nonzero(hits)} of {len(hits)} slots have won at least once"
    canvas.heading(f"Memory of {side} x {side} slots", won, width)
    for number, slot in enumerate(slots):
        draw(canvas, MARGIN + number % side * step_x, MARGIN + HEADING + number // side * step_y, cell, slot, colours)
    canvas.text(MARGIN, foot, f"Pie: class shares (d). {note}", 13, GREY, width=width)
    legend.draw(canvas, MARGIN, foot + 34)
    return canvas.finish()


@dataclass(frozen=True)
class _Slot:
    """What a cell of the memory grid shows."""

    hits: int
    strength: float  # of its hits, 0 to 1
    shares: Floats  # (C,)
    best: int  # the class with the largest share
    name: str  # of that class
    r_score: float  # of that class
    crop: Image.Image | None


def _card(canvas: Canvas, x: float, y: float, side: float, slot: _Slot, colours: Sequence[Colour]) -> None:
    """A slot in a small grid: picture, pie, and text."""
    canvas.rounded(x, y, side, side, 12, faded(colours[slot.best], 0.75 * (1 - slot.strength)) if slot.hits else PAPER)
    canvas.rounded(x + 4, y + 4, side - 8, side - 8, CORNER, PAPER)
    if slot.crop is not None:
        square = ImageOps.fit(rgb(slot.crop), (320, 320))
        canvas.picture(square, x + 4, y + 4, side - 8, side - 8, CORNER, fade=0.0 if slot.hits else 0.75)
    if not slot.hits:
        canvas.text(x + 2, y + side + 6, "never won", 12, LINE, width=side)
        return
    radius = max(14.0, 0.17 * side)
    canvas.disc(x + side - radius - 3, y + side - radius - 3, radius + 3, WHITE)
    canvas.pie(x + side - radius - 3, y + side - radius - 3, radius, slot.shares, colours)
    canvas.text(x + 2, y + side + 6, slot.name, 12, width=side - 12 - 8 * len(str(slot.hits)))
    canvas.text(x + side - 2, y + side + 6, str(slot.hits), 12, GREY, anchor="ra")
    scores = f"d {slot.shares[slot.best]:.2f} · r {slot.r_score:.2f}"
    canvas.text(x + 2, y + side + 21, scores, 12, GREY, width=side)


def _bubble(canvas: Canvas, x: float, y: float, side: float, slot: _Slot, colours: Sequence[Colour]) -> None:
    """A slot in a large grid: a pie whose size tells the hits, as a faded one would not match the legend."""
    if slot.hits:
        canvas.pie(x + side / 2, y + side / 2, side * (0.18 + 0.28 * slot.strength), slot.shares, colours)
    else:
        canvas.disc(x + side / 2, y + side / 2, side * 0.06, LINE)
