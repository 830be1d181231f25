"""What somnet doctor --gpu would find, with the CPU in the GPU's place."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from somnet.system.compute import choose_precision, placed
from somnet.training import gpu_check
from somnet.training.gpu_check import compare_method, measure_speed


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("somnet", ["init-cnn", "init-memory", "joint"]),
        ("linear-probe", ["fit"]),
        ("plain-roi", ["train"]),
    ],
)
def test_every_phase_is_compared(name: str, phases: list[str]) -> None:
    rows = compare_method(name, "cpu")
    assert [row.phase for row in rows] == phases
    assert {row.difference for row in rows} == {0.0}


def test_a_device_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([0.0, 0.5])

    def spoilt(module: nn.Module, device: str) -> nn.Module:
        with torch.no_grad():
            module.get_submodule("network.classifier").get_parameter("bias")[0] += next(given)
        return module

    monkeypatch.setattr(gpu_check, "placed", spoilt)
    (row,) = compare_method("plain", "cpu")
    assert row.difference > 0.01


def test_speed_is_told_beside_that_of_a_bare_loop(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "TIMED_STEPS", 1)
    ours, bare = measure_speed(tiny.config("plain"), "cpu")
    assert (ours.name, bare.name) == ("somnet, test_resnet", "bare timm, test_resnet")
    assert min(ours.images_per_second, bare.images_per_second) > 0


def test_without_a_gpu_doctor_says_so(cli: Callable[..., Any]) -> None:
    if torch.cuda.is_available():
        return
    done = cli("doctor", "--gpu")
    assert done.code != 0
    assert "no such GPU" in done.err + done.out


def test_auto_is_bf16_where_a_gpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_precision("auto", "cpu") == "fp32"
    assert choose_precision("fp16", "cuda") == "fp16"
    for capability, expected in (((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert choose_precision("auto", "cuda:0") == expected


def test_weights_are_laid_out_anew_on_cuda_alone() -> None:
    layer = nn.Conv2d(3, 4, 3)
    assert placed(layer, "cpu") is layer
    assert layer.weight.is_contiguous()
