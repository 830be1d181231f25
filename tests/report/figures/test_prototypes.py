"""Prototypes: a row for each slot."""

import numpy as np

from somnet.report.figures.prototypes import Prototype, prototypes
from tests.report.figures.drawn import plain


def test_prototypes_has_a_row_for_each_slot_and_a_column_for_each_crop() -> None:
    rows = [Prototype(slot, 0.9, 0.1, np.array([0.9, 0.1]), [plain()] * 5) for slot in range(3)]
    one, three = prototypes("suit", rows[:1]), prototypes("suit", rows)
    assert three.width == one.width
    assert three.height - one.height == 2 * 148
    assert prototypes("suit", rows, ["suit", "coat"]).height == three.height + 22  # a legend
    wide = Prototype(0, 0.9, 0.1, np.array([1.0]), [plain()] * 7)
    assert prototypes("suit", [wide]).width == one.width + 2 * 136


def test_prototypes_without_slots_or_crops() -> None:
    prototypes("suit", [])
    prototypes("suit", [Prototype(0, 0.0, 0.0, np.zeros(3), [])], ["a", "b", "c"])
