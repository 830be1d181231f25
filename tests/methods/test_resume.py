"""A kill between any two steps changes nothing, and a step without a loss leaves no trace, whatever the method."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.core.types import BagBatch, Phase
from somnet.errors import SomnetError, TrainingStopped
from somnet.methods.base import Step
from somnet.methods.registry import METHODS
from somnet.runs.checkpoint import load_checkpoint
from somnet.system.folders import LAST
from somnet.training.loop import Trainer

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

pytestmark = pytest.mark.slow

SHORT = {"train.batch_size": 4, "somnet.memory.side": 2}
LONGER = {"divide-mix": {"train.epochs": 10}}  # enough to divide twice


def count_steps(patch: pytest.MonkeyPatch, made: "Toy", stop: int | None = None) -> list[str]:
    """The phase of each step that will be done; a signal comes during the step with the number `stop`."""
    step, done = made.method.step, list[str]()

    def wrapped(batch: BagBatch, phase: Phase) -> Step:
        done.append(phase.name)
        if len(done) == stop:
            signal.raise_signal(signal.SIGTERM)
        return step(batch, phase)

    patch.setattr(made.method, "step", wrapped)
    return done


def final_state(out: Path) -> dict[str, Tensor]:
    return load_checkpoint(out / LAST)[0]


def must_be_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


def count_passes(patch: pytest.MonkeyPatch, trainer: Trainer, stop: int | None = None) -> list[int]:
    """The bags of each pass over the images that the method asks for; a signal comes within the pass number `stop`."""
    bag_pass, passes = trainer.bag_pass, list[int]()

    def wrapped(images_per_bag: int) -> Iterator[BagBatch]:
        passes.append(0)
        for batch in bag_pass(images_per_bag):
            passes[-1] += 1
            yield batch
            if len(passes) == stop:
                signal.raise_signal(signal.SIGTERM)

    patch.setattr(trainer, "bag_pass", wrapped)
    return passes


@dataclass(frozen=True)
class LeftAlone:
    """A run that was left alone."""

    steps: list[str]  # the phase of each
    passes: list[int]  # the bags of each
    state: dict[str, Tensor]


@pytest.fixture(scope="module")
def left_alone(toy: "MakeToy", tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LeftAlone]:
    @cache
    def run(name: str) -> LeftAlone:
        made, out = toy(name, **SHORT, **LONGER.get(name, {})), tmp_path_factory.mktemp("whole")
        with pytest.MonkeyPatch.context() as patch:
            steps, trainer = count_steps(patch, made), made.trainer(out)
            passes = count_passes(patch, trainer)
            trainer.run()
        return LeftAlone(steps, passes, final_state(out))

    return run


def in_the_last_phase_but_one(done: list[str]) -> int:
    """The number of a step in its middle: what earlier phases have left must be kept, and what the last one needs."""
    phases = [len(list(steps)) for _, steps in groupby(done)]
    return sum(phases[:-2]) + (phases[-2:][0] + 1) // 2


def second(_: list[str]) -> int:
    return 2


def middle(done: list[str]) -> int:
    return len(done) // 2


def last_but_one(done: list[str]) -> int:
    return len(done) - 1


STOPS = [
    in_the_last_phase_but_one,
    *(pytest.param(stop, marks=pytest.mark.long) for stop in (second, middle, last_but_one)),
]


@pytest.mark.parametrize("choose", STOPS)
@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_run_ends_like_any_other(
    name: str,
    choose: Callable[[list[str]], int],
    left_alone: Callable[[str], LeftAlone],
    toy: "MakeToy",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, made = left_alone(name), toy(name, **SHORT, **LONGER.get(name, {}))
    count_steps(monkeypatch, made, choose(whole.steps))
    with pytest.raises(TrainingStopped):
        made.trainer(tmp_path).run()
    toy(name, **SHORT, **LONGER.get(name, {})).trainer(tmp_path).run(resume=True)
    must_be_equal(final_state(tmp_path), whole.state)


@pytest.mark.parametrize("choose", [max, pytest.param(min, marks=pytest.mark.long)])  # the last pass, or the first
@pytest.mark.parametrize("name", METHODS)
def test_a_signal_between_phases_is_obeyed_at_once(
    name: str,
    choose: Callable[[range], int],
    left_alone: Callable[[str], LeftAlone],
    toy: "MakeToy",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within what a method does before and after its phases, which may be a pass over a million images."""
    whole = left_alone(name)
    if not whole.passes:
        return
    assert max(whole.passes) > 1
    stop = choose(range(1, len(whole.passes) + 1))
    trainer = toy(name, **SHORT, **LONGER.get(name, {})).trainer(tmp_path)
    passes_until_stop = count_passes(monkeypatch, trainer, stop)
    with pytest.raises(TrainingStopped):
        trainer.run()
    assert (len(passes_until_stop), passes_until_stop[-1]) == (stop, 1)
    toy(name, **SHORT, **LONGER.get(name, {})).trainer(tmp_path).run(resume=True)
    must_be_equal(final_state(tmp_path), whole.state)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_signal_within_an_evaluation_is_obeyed_at_once(number: int, toy: "MakeToy", tmp_path: Path) -> None:
    def evaluation(out: Path, stop: int | None) -> list[int]:
        done = list[int]()

        def evaluate() -> float:
            done.append(len(done))
            if done[-1] == stop:
                signal.raise_signal(signal.SIGTERM)
                raise AssertionError("the evaluation continued")
            return 0.5

        toy("plain", **SHORT).trainer(out, evaluate).run(resume=True)
        return done

    epochs = len(evaluation(tmp_path / "whole", None))
    with pytest.raises(TrainingStopped):
        evaluation(tmp_path / "run", number)
    assert len(evaluation(tmp_path / "run", None)) == epochs - number
    must_be_equal(final_state(tmp_path / "run"), final_state(tmp_path / "whole"))
    first, second = (load_checkpoint(tmp_path / name / LAST)[1]["position"]["history"] for name in ("run", "whole"))
    assert [{**row, "seconds": 0} for row in first] == [{**row, "seconds": 0} for row in second]


@pytest.mark.parametrize("name", METHODS)
def test_a_step_without_a_loss_leaves_no_trace(
    name: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(name, **SHORT, **LONGER.get(name, {}))
    step = made.method.step
    nan = float("nan")

    def spoilt(batch: BagBatch, phase: Phase) -> Step:
        before = {key: tensor.clone() for key, tensor in made.method.state_dict().items()}
        result = step(batch, phase)
        after = made.method.state_dict()
        assert [key for key in before if not torch.equal(before[key], after[key])] == []
        return replace(result, losses={key: loss * nan for key, loss in result.losses.items()})

    monkeypatch.setattr(made.method, "step", spoilt)
    with pytest.raises(SomnetError, match="lower"):
        made.trainer(tmp_path).run()
