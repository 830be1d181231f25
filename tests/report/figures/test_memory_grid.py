"""The memory as a grid: bounded, and the more was won, the stronger."""

import numpy as np
import pytest

from somnet.report.figures.canvas import HEADING, MARGIN
from somnet.report.figures.colours import class_colours
from somnet.report.figures.memory_grid import CARD_TEXT, MOST_PIXELS, memory_grid
from tests.report.figures.drawn import memory, near, pixels, plain


@pytest.mark.parametrize("side", [1, 4, 12, 40])
def test_memory_grid_is_bounded(side: int) -> None:
    counts, d, r = memory(side, 5)
    image = memory_grid(side, counts, d, r, {0: [plain()]}, list("abcde"))
    assert max(image.size) <= MOST_PIXELS
    assert np.asarray(image)[0, 0].tolist() == [255, 255, 255]


def test_memory_grid_has_room_for_the_largest_memory_and_many_classes() -> None:
    counts, d, r = np.zeros((10_000, 200), np.int64), np.full((10_000, 200), 0.005), np.full((200, 10_000), 1e-4)
    counts[:50, 3] = 7
    image = memory_grid(100, counts, d, r, {}, [f"class {i}" for i in range(200)])
    assert max(image.size) <= MOST_PIXELS


@pytest.mark.parametrize("side", [2, 13])
def test_memory_grid_shows_colours_of_live_slots_only(side: int) -> None:
    slots = side * side
    d = np.tile([0.1, 0.9], (slots, 1))  # (L, C)
    r = np.full((2, slots), 1 / slots)  # (C, L)
    crops = {slot: [plain(colour="#808080")] for slot in range(slots)}
    alive, dead = np.zeros((slots, 2), int), np.zeros((slots, 2), int)
    alive[0] = 3, 20
    count = [
        int(near(memory_grid(side, counts, d, r, crops, ["a", "b"]), class_colours(2)[1]).sum())
        for counts in (alive, dead)
    ]
    assert count[0] > count[1] + 100


def test_memory_grid_border_is_stronger_where_more_was_won() -> None:
    counts, d, r = np.array([[1], [0], [3], [400]]), np.ones((4, 1)), np.full((1, 4), 0.25)
    image = pixels(memory_grid(2, counts, d, r, {}, ["a"]))
    left, first, second = MARGIN + 2, MARGIN + HEADING + 80, 160 + CARD_TEXT
    red = [image[first, left, 0], image[first + second, left, 0], image[first + second, left + 176, 0]]
    assert red[0] > red[1] > red[2] == class_colours(1)[0][0]


def test_memory_grid_survives_scores_that_are_no_numbers() -> None:
    memory_grid(1, np.ones((1, 3)), np.full((1, 3), np.nan), np.zeros((3, 1)), {0: []}, list("abc"))
