"""A kill between any two steps changes nothing, and a step without a loss leaves no trace, whatever the method."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.errors import SomnetError, TrainingStopped
from somnet.methods.registry import METHODS
from somnet.training.checkpoint import LAST, load_checkpoint
from somnet.types import Bag, Losses, Phase

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

SHORT = {"train.batch_size": 4, "somnet.memory.side": 2}


def count_steps(patch: pytest.MonkeyPatch, made: "Toy", stop: int | None = None) -> list[str]:
    """The phase of each step that will be done; a signal comes during the step with the number `stop`."""
    step, done = made.method.step, list[str]()

    def wrapped(bag: Bag, phase: Phase) -> Losses:
        done.append(phase.name)
        if len(done) == stop:
            signal.raise_signal(signal.SIGTERM)
        return step(bag, phase)

    patch.setattr(made.method, "step", wrapped)
    return done


def final_state(out: Path) -> dict[str, Tensor]:
    return load_checkpoint(out / LAST)[0]


@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_ends_like_any_other(
    name: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(name, **SHORT)
    done = count_steps(monkeypatch, made)
    made.trainer(tmp_path / "whole").run()
    expected = final_state(tmp_path / "whole")
    for stop in (2, len(done) // 2, len(done) - 1):
        made, out = toy(name, **SHORT), tmp_path / str(stop)
        count_steps(monkeypatch, made, stop)
        with pytest.raises(TrainingStopped):
            made.trainer(out).run()
        toy(name, **SHORT).trainer(out).run(resume=True)
        found = final_state(out)
        assert found.keys() == expected.keys()
        different = [tensor for tensor in expected if not torch.equal(found[tensor], expected[tensor])]
        assert different == [], f"stopped after step {stop} of {done}"


@pytest.mark.parametrize("name", METHODS)
def test_a_step_without_a_loss_leaves_no_trace(
    name: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(name, **SHORT)
    step = made.method.step
    nan = float("nan")

    def spoilt(bag: Bag, phase: Phase) -> Losses:
        before = {key: tensor.clone() for key, tensor in made.method.state_dict().items()}
        losses = step(bag, phase)
        after = made.method.state_dict()
        assert [key for key in before if not torch.equal(before[key], after[key])] == []
        return {key: loss * nan for key, loss in losses.items()}

    monkeypatch.setattr(made.method, "step", spoilt)
    with pytest.raises(SomnetError, match="lower"):
        made.trainer(tmp_path).run()
