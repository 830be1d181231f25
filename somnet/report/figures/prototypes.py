"""The slots that matter to a class, with the ROIs nearest to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from somnet.report.figures.canvas import CORNER, HEADING, MARGIN, Canvas, Floats, visible_shares
from somnet.report.figures.colours import GREY, class_colours
from somnet.report.figures.contact_sheet import Tile, thumbnail
from somnet.report.figures.legend import Legend


@dataclass(frozen=True)
class Prototype:
    """A slot of the memory, seen from one class."""

    slot: int
    d_score: float
    r_score: float
    shares: Floats  # (C,) class distribution of the slot
    crops: Sequence[Image.Image]  # its nearest ROIs, nearest first


def prototypes(class_name: str, rows: Sequence[Prototype], classes: Sequence[str] = ()) -> Image.Image:
    """Slots, seen from one class (Figure 3); with the names of all classes it has a legend."""
    pie, crop, gap, step = 108, 124, 12, 148
    scores_x = MARGIN + pie + 28
    crops_x = scores_x + 136
    most = max([5, *(len(row.crops) for row in rows)])
    width = crops_x - MARGIN + most * (crop + gap) - gap
    shares = [visible_shares(row.shares) for row in rows]  # (C,) each
    colours = class_colours(max([len(classes), *(len(share) for share in shares)]))
    total = np.zeros(len(colours))  # (C,)
    for share in shares:
        total[: len(share)] += share
    shown = [i for i in np.argsort(-total, kind="stable").tolist() if i < len(classes) and total[i] > 0]
    legend = Legend([classes[i] for i in shown], [colours[i] for i in shown], np.ones(len(shown)), width)

    canvas = Canvas(width + 2 * MARGIN, HEADING + len(rows) * step + legend.height + 2 * MARGIN)
    canvas.heading(class_name, "Slots of the memory: class shares, scores for this class, and the nearest ROIs", width)
    for number, row in enumerate(rows):
        y = MARGIN + HEADING + number * step
        middle = y + crop / 2
        canvas.pie(MARGIN + pie / 2, middle, pie / 2, row.shares, colours)
        canvas.text(scores_x, middle - 30, f"Slot {row.slot}", 17, anchor="lm")
        for line, (name, score) in enumerate((("d-score", row.d_score), ("r-score", row.r_score))):
            canvas.text(scores_x, middle + 2 + 24 * line, name, 14, GREY, anchor="lm")
            canvas.text(scores_x + 98, middle + 2 + 24 * line, f"{score:.2f}", 14, anchor="rm")
        for place, image in enumerate(row.crops):
            canvas.picture(thumbnail(Tile(image), crop), crops_x + place * (crop + gap), y, crop, crop, CORNER)
    legend.draw(canvas, MARGIN, MARGIN + HEADING + len(rows) * step + 4)
    return canvas.finish()
