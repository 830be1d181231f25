"""The evidence for a prediction is bright where it is."""

import numpy as np
import pytest

from somnet.report.figures.canvas import HEADING, fit
from somnet.report.figures.evidence_figure import evidence_figure
from tests.report.figures.drawn import pixels, plain


@pytest.mark.parametrize("size", [(300, 200), (60, 400)])
def test_evidence_is_bright_where_it_is(size: tuple[int, int]) -> None:
    evidence = np.full((4, 4), -3.0)
    evidence[3, 0] = 5.0  # bottom left
    figure = evidence_figure(plain(*size), evidence, "ash", 0.875, side=240)
    light = pixels(figure).sum(axis=2)  # (H, W)
    width, height = (round(length) for length in fit(plain(*size), 240, 240))
    left, top = 20 + max(width, 200) + 20, 20 + HEADING
    overlay = light[top : top + height, left : left + width]
    below, beside = overlay[int(0.85 * height), int(0.15 * width)], overlay[int(0.15 * height), int(0.85 * width)]
    assert below > beside + 150
    evidence_figure(plain(8, 900), -np.ones((2, 3)), "ash", 0.1, side=240)  # none at all
