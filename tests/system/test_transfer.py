"""Tensors between main memory and a device; what a GPU makes of it: tests/gpu."""

import torch

from somnet.system.transfer import fetch, finish, on_gpu, send


def test_only_what_works_through_a_queue_is_a_gpu() -> None:
    assert [on_gpu(device) for device in ("cpu", "mps", "cuda", "cuda:1")] == [False, False, True, True]


def test_main_memory_is_left_alone() -> None:
    leaf, rows = torch.ones(3, requires_grad=True), torch.arange(4)
    found = fetch({"leaf": leaf, "rows": rows})
    assert found["leaf"].data_ptr() == leaf.data_ptr()
    assert not found["leaf"].requires_grad
    assert send(rows, "cpu") is rows
    finish("cpu")
