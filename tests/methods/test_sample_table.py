"""Rows of many classes in few numbers."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.methods.sample_table import SampleTable


@given(classes=st.integers(1, 40), seed=st.integers(0, 1000))
def test_sums_and_large_entries_come_back(classes: int, seed: int) -> None:
    table = SampleTable(5, classes, kept=8)
    dense = torch.rand(3, classes, generator=torch.Generator().manual_seed(seed))
    rows = torch.tensor([4, 0, 2])
    table.put(rows, dense)
    back = table.get(rows)
    assert torch.allclose(back.sum(dim=1), dense.sum(dim=1), atol=1e-5)
    top = dense.topk(min(8, classes), dim=1)
    assert torch.equal(back.gather(1, top.indices), top.values)
    assert torch.equal(table.get(torch.tensor([1, 3])), torch.zeros(2, classes))


def test_few_classes_are_kept_exactly() -> None:
    table, dense = SampleTable(2, 10), torch.rand(2, 10)
    table.put(torch.tensor([0, 1]), dense)
    assert torch.equal(table.get(torch.tensor([0, 1])), dense)


def test_a_million_rows_of_a_thousand_classes_would_take_100_megabytes() -> None:
    table = SampleTable(1000, 1000)
    size = sum(buffer.numel() * buffer.element_size() for buffer in table.buffers())
    assert size == 1000 * (16 * (4 + 2) + 4)


def test_classes_beyond_16_bits() -> None:
    table, dense = SampleTable(1, 40_000), torch.zeros(1, 40_000)
    dense[0, 39_999] = 1.0
    table.put(torch.tensor([0]), dense)
    assert torch.equal(table.get(torch.tensor([0])), dense)
