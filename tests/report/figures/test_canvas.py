"""What is drawn on the canvas has the right size and place."""

import numpy as np

from somnet.report.figures.canvas import Canvas
from somnet.report.figures.colours import class_colours
from tests.report.figures.drawn import near


def test_pie_slices_are_in_proportion() -> None:
    canvas = Canvas(100, 100)
    colours = class_colours(3)
    canvas.pie(50, 50, 40, np.array([0.25, 0.7, 0.01]), colours)
    image = canvas.finish()
    area = np.array([near(image, colour, 10).sum() for colour in colours])
    np.testing.assert_allclose(area / (np.pi * 40**2), [0.25 / 0.96, 0.7 / 0.96, 0], atol=0.05)
    assert near(image, colours[1], 10)[50, 80]  # the largest comes first, clockwise from the top
