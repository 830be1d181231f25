"""Text in figures: one line that stays in its place."""

import numpy as np

from somnet.report.figures.canvas import Canvas
from somnet.report.figures.colours import WHITE
from somnet.report.figures.text import font_for, one_line, shortened
from tests.report.figures.drawn import near


def test_long_text_ends_with_an_ellipsis_and_stays_inside() -> None:
    canvas = Canvas(200, 40)
    canvas.text(10, 10, "w" * 200, 16, width=100)
    drawn = np.flatnonzero((~near(canvas.finish(), WHITE)).any(axis=0))
    assert 80 < drawn.max() <= 111
    font = font_for("w", 16)
    assert shortened("w" * 200, font, 100).endswith("w…")
    assert shortened("short", font, 100) == "short"


def test_text_is_one_line_without_control_characters() -> None:
    assert one_line("a\n b\tc\0\u202ed\ud800") == "a b c d"
