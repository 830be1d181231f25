"""Boxes of other tools, worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.label_formats import Box, to_coco, to_fiftyone, to_label_studio

BOX: Box = (20.0, 10.0, 60.0, 40.0)  # of an image of 200 x 100


def test_coco_counts_pixels_from_the_corner() -> None:
    assert to_coco(BOX) == (20, 10, 40, 30)


def test_fiftyone_has_shares() -> None:
    assert to_fiftyone(BOX, 200, 100) == pytest.approx((0.1, 0.1, 0.2, 0.3))


def test_label_studio_has_percent() -> None:
    assert to_label_studio(BOX, 200, 100) == pytest.approx((10, 10, 20, 30))


@given(st.integers(8, 5000), st.integers(8, 5000), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_boxes_come_back(width: int, height: int, shares: list[float]) -> None:
    (x1, x2), (y1, y2) = sorted(shares[:2]), sorted(shares[2:])
    box: Box = (x1 * width, y1 * height, x2 * width, y2 * height)
    x, y, wide, high = to_coco(box)
    assert (x, y, x + wide, y + high) == pytest.approx(box)
    x, y, wide, high = to_fiftyone(box, width, height)
    assert (x * width, y * height, (x + wide) * width, (y + high) * height) == pytest.approx(box)
    assert to_label_studio(box, width, height) == pytest.approx([100 * value for value in (x, y, wide, high)])
