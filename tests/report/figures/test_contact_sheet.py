"""Contact sheets: a place for each tile, boxes where they lie, noise in red."""

import numpy as np
import pytest
from PIL import Image

from somnet.report.figures.canvas import MARGIN, Box
from somnet.report.figures.colours import RED, WHITE
from somnet.report.figures.contact_sheet import Tile, contact_sheet
from tests.report.figures.drawn import near, plain


def test_contact_sheet_has_a_cell_for_each_tile() -> None:
    def size(tiles: int, caption: str = "", columns: int = 10) -> tuple[int, int]:
        return contact_sheet([("t", [Tile(plain(), caption)] * tiles)], tile=50, columns=columns).size

    assert size(5)[0] == 2 * MARGIN + 5 * 50 + 4 * 14
    assert size(25)[0] == size(10)[0]
    assert size(20)[1] - size(10)[1] == 50 + 14
    assert size(10, "caption")[1] == size(10)[1] + 16
    assert size(3, columns=1)[0] < size(3, columns=2)[0]


@pytest.mark.parametrize(("width", "height", "left", "top", "scale"), [(200, 100, 0, 25, 0.5), (50, 100, 25, 0, 1.0)])
def test_contact_sheet_draws_the_box_where_it_lies_on_the_letterboxed_image(
    width: int, height: int, left: int, top: int, scale: float
) -> None:
    box = (0.2 * width, 0.3 * height, 0.8 * width, 0.6 * height)
    sheet = contact_sheet([("t", [Tile(plain(width, height), box=box)])], tile=100)
    x, y = MARGIN, MARGIN + 36
    cell = sheet.crop((x, y, x + 100, y + 100))
    ring = near(cell, WHITE, 12)
    inside = np.zeros_like(ring)
    inside[top + 8 : 92 - top, left + 8 : 92 - left] = True  # without the frame and its rounded corners
    ring &= inside
    rows, columns = np.nonzero(ring)
    found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    expected = np.array(box) * scale + [left, top, left, top]
    np.testing.assert_allclose(found, expected, atol=1.5)
    assert not ring[(rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2]


def test_contact_sheet_marks_noise_in_red() -> None:
    clean = contact_sheet([("t", [Tile(plain())])])
    noise = contact_sheet([("t", [Tile(plain(), flag=True)])])
    assert not near(clean, RED).any()
    red = near(noise, RED)
    x, y = MARGIN, MARGIN + 36
    assert red[y + 5, x + 112 - 8]  # the corner
    assert red[y + 56, x + 1]  # the border
    assert red[y + 56, x + 111]
    assert not red[y + 56, x + 56]


@pytest.mark.parametrize("box", [(-50, -50, 500, 500), (10, 10, 10, 20), (30, 20, 5, 5), (100, 100, 120, 120)])
def test_contact_sheet_survives_boxes_outside_the_image(box: Box) -> None:
    contact_sheet([("t", [Tile(plain(), box=box)])])


def test_contact_sheet_of_nothing_and_of_odd_images() -> None:
    assert min(contact_sheet([]).size) > 0
    tiles = [
        Tile(plain(2000, 3)),
        Tile(Image.new("P", (9, 9))),
        Tile(Image.new("RGBA", (5, 8))),
        Tile(plain().crop((3, 3, 3, 9))),
    ]
    contact_sheet([("none", []), ("odd", tiles)])
