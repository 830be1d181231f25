"""No label breaks a figure."""

import numpy as np
import pytest

from somnet.report.figures.bag_figure import bag_figure
from somnet.report.figures.canvas import MARGIN
from somnet.report.figures.contact_sheet import Tile, contact_sheet
from somnet.report.figures.evidence_figure import evidence_figure
from somnet.report.figures.memory_grid import memory_grid
from somnet.report.figures.prototypes import Prototype, prototypes
from tests.report.figures.drawn import bag, memory, plain

ODD_LABELS = ("x" * 200, "שלום עולם", "🎈👩‍👩‍👧", "<img src=x>", "", "a\nb\0\ud800\u202ec", "日本語")


@pytest.mark.parametrize("label", ODD_LABELS)
def test_odd_labels(label: str) -> None:
    counts, d, r = memory(2, 2)
    usual = memory_grid(2, counts, d, r, {}, ["a", "b"]).size
    assert memory_grid(2, counts, d, r, {}, [label, label]).size == usual
    assert contact_sheet([(label, [Tile(plain(), label)])]).width == 2 * MARGIN + 4 * 126 - 14
    prototypes(label, [Prototype(1, 0.5, 0.5, d[0], [plain()])], [label, label])
    assert bag_figure([bag(label, (label, label))]).size == bag_figure([bag()]).size
    evidence_figure(plain(), np.ones((2, 2)), label, 0.5, side=100)
