"""A kill between any two steps changes nothing, and a step without a loss leaves no trace, whatever the method."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.errors import TrainingStopped
from somnet.methods.registry import METHODS
from somnet.training.checkpoint import LAST, load_checkpoint
from somnet.types import Bag, Losses, Phase

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

SHORT = {"train.batch_size": 4, "somnet.memory.side": 2}


def final_state(toy: "MakeToy", name: str, out: Path) -> dict[str, Tensor]:
    """All tensors of the last checkpoint, of a run that goes on where the last one stopped."""
    toy(name, **SHORT).trainer(out).run(resume=True)
    return load_checkpoint(out / LAST)[0]


def stop_after(patch: pytest.MonkeyPatch, made: "Toy", steps: int) -> list[Phase]:
    """Send a signal during a step; returns the phases of the steps so far."""
    step, done = made.method.step, list[Phase]()

    def wrapped(bag: Bag, phase: Phase) -> Losses:
        done.append(phase)
        if len(done) == steps:
            signal.raise_signal(signal.SIGTERM)
        return step(bag, phase)

    patch.setattr(made.method, "step", wrapped)
    return done


@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_ends_like_any_other(
    name: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = final_state(toy, name, tmp_path / "whole")
    plan = toy(name, **SHORT).method.plan()
    for stop in (2, 3, 6, 10):  # within an epoch, at its end, further on
        made, out = toy(name, **SHORT), tmp_path / str(stop)
        stop_after(monkeypatch, made, stop)
        with pytest.raises(TrainingStopped):
            made.trainer(out).run()
        found = final_state(toy, name, out)
        assert found.keys() == expected.keys()
        different = [tensor for tensor in expected if not torch.equal(found[tensor], expected[tensor])]
        assert different == [], f"stopped after {stop} steps of {[phase.name for phase in plan]}"
