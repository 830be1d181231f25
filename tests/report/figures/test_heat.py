"""Heat maps: every pixel has the weights of its boxes."""

import numpy as np

from somnet.report.figures.heat import heat_map


def test_heat_map_sums_the_weights_of_the_boxes_over_a_pixel() -> None:
    boxes = np.array([[0, 0, 4, 3], [1, 1, 3, 3], [2, 0, 4, 2]], float)
    weights = np.array([0.5, 0.3, 0.2])
    expected = [[0.5, 0.5, 0.7, 0.7], [0.5, 0.8, 1.0, 0.7], [0.5, 0.8, 0.8, 0.5]]
    np.testing.assert_allclose(heat_map(boxes, weights, 4, 3), expected)


def test_heat_map_counts_a_pixel_by_its_centre() -> None:
    boxes = np.array([[0.4, 0.0, 2.6, 1.0], [0.6, 0.0, 2.5, 1.0]])
    np.testing.assert_allclose(heat_map(boxes, np.array([1.0, 10.0]), 4, 1), [[1, 11, 1, 0]])


def test_heat_map_of_boxes_that_reach_out_or_are_padding() -> None:
    boxes = np.array([[-5, -5, 1, 9], [0, 0, 0, 0]], float)
    np.testing.assert_allclose(heat_map(boxes, np.array([0.6, 0.4]), 2, 2), [[0.6, 0], [0.6, 0]])
    assert heat_map(np.zeros((0, 4)), np.zeros(0), 3, 2).tolist() == [[0, 0, 0], [0, 0, 0]]
