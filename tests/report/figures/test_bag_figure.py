"""Bags: kept regions, removed images, and histograms."""

import numpy as np

from somnet.report.figures.bag_figure import BagView, _histogram, bag_figure
from somnet.report.figures.canvas import HEADING, MARGIN, Canvas
from somnet.report.figures.colours import WHITE
from tests.report.figures.drawn import bag, near, pixels, plain


def test_bag_figure_draws_kept_rois_and_greys_out_what_is_removed() -> None:
    image = bag_figure([bag()])
    top = MARGIN + HEADING + 30
    row = 236 * 30 // 40 + 46
    columns = [MARGIN + i * (236 + 26) for i in range(4)]
    blue = near(image, (0x30, 0x60, 0xC0), 6)
    middles = [[bool(blue[top + i * row + 20, x + 20]) for x in columns] for i in range(2)]
    assert middles == [[True, True, False, False], [True, False, False, False]]
    warmth = pixels(image)[..., 0] - pixels(image)[..., 2]  # (H, W)
    assert warmth[top + 88, columns[2] + 118] > 40
    assert warmth[top + 88 + row, columns[2] + 118] <= 0


def test_bag_figure_histogram_has_the_shares_of_the_pixels() -> None:
    canvas = Canvas(320, 124)
    shade = np.array([[0.0, 0.0, 1.0, 0.5]])
    _histogram(canvas, 0, 0, 320, 124, shade, 0.8)
    drawn = ~near(canvas.finish(), WHITE, 20)[17:114]  # between label and axis
    heights = drawn[:, [4, 4 + 310, 4 + 160, 100]].sum(axis=0)
    np.testing.assert_allclose(heights, [97, 48, 48, 0], atol=3)


def test_bag_figure_with_all_zero_weights_and_missing_notes() -> None:
    view = bag(notes=())
    nothing = BagView("x", view.images, view.boxes, [np.zeros(2), np.zeros(2)], 0.1)
    assert bag_figure([nothing, view]).size[0] == bag_figure([view]).size[0]
    assert min(bag_figure([]).size) > 0
    bag_figure([BagView("x", [plain(5, 900)], [np.zeros((0, 4))], [np.zeros(0)], 0.1)])
