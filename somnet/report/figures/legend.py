"""The legend of a figure: which colour is which class."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from somnet.report.figures.canvas import Canvas
from somnet.report.figures.colours import GREY, Colour


class Legend:
    """Classes and their colours in columns; where there are too many, the most frequent ones."""

    COLUMN, ROW, MOST_ROWS = 150, 22, 7

    def __init__(
        self, classes: Sequence[str], colours: Sequence[Colour], frequency: NDArray[np.generic], width: float
    ) -> None:
        self.columns = max(1, int(width // self.COLUMN))
        room = self.columns * self.MOST_ROWS
        often = np.argsort(-np.asarray(frequency, np.float64), kind="stable")  # (C,)
        shown = sorted(often[: room if len(classes) <= room else room - 1].tolist())
        self.entries: list[tuple[str, Colour | None]] = [(classes[i], colours[i]) for i in shown]
        if len(shown) < len(classes):
            self.entries.append((f"and {len(classes) - len(shown)} more", None))
        self.height = math.ceil(len(self.entries) / self.columns) * self.ROW

    def draw(self, canvas: Canvas, x: float, y: float) -> None:
        for number, (name, colour) in enumerate(self.entries):
            left, middle = x + number % self.columns * self.COLUMN, y + (number // self.columns + 0.5) * self.ROW
            if colour is None:
                canvas.text(left, middle, name, 13, GREY, anchor="lm", width=self.COLUMN - 12)
            else:
                canvas.rounded(left, middle - 7, 14, 14, 3, colour)
                canvas.text(left + 21, middle, name, 13, anchor="lm", width=self.COLUMN - 33)
