"""What is logged beside the losses: by hand, the same after a kill, and next to free."""

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.types import BagBatch, Phase
from somnet.errors import TrainingStopped
from somnet.methods.base import Observation, Step
from somnet.training.watch import Watch

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

MEMORY = {"memory/occupancy", "memory/quantisation", "memory/topographic", "memory/dead"}


def bags(winners: list[int], seconds: list[int], cosines: list[float]) -> Observation:
    slots = torch.tensor([winners, seconds]).T
    return Observation(slots=slots, cosines=torch.tensor([cosines, cosines]).T, memory_side=3)


def scored(rows: list[int], scores: list[float]) -> Observation:
    return Observation(rows=torch.tensor(rows), scores=torch.tensor(scores))


def test_an_epoch_by_hand() -> None:
    watch = Watch(4)
    watch.add(bags([0, 0, 8], [1, 8, 4], [1.0, 0.5, 0.75]))
    watch.add(bags([8], [0], [0.75]))
    assert watch.close_epoch() == pytest.approx(
        {
            "memory/occupancy": math.log(2) / math.log(9),  # two slots won two bags each
            "memory/quantisation": 0.25,
            "memory/topographic": 0.5,  # 0 and 8 are opposite corners
            "memory/dead": 7.0,
        }
    )
    assert watch.close_epoch() == {}  # nothing was seen since


def test_stability_compares_the_images_of_two_epochs() -> None:
    watch = Watch(5)
    watch.add(scored([0, 1], [0.1, 0.2]))
    watch.add(scored([2, 3], [0.3, 0.0]))
    assert watch.close_epoch() == {}  # no epoch before
    watch.add(scored([3, 2, 1, 4], [0.0, 0.8, 0.9, 0.5]))  # image 0 was not due; image 4 had no score
    assert watch.close_epoch() == {"scores/stability": pytest.approx(0.5)}  # 1 and 2 have changed places
    watch.add(scored([1, 2, 3, 4], [9.0, 8.0, 0.0, 5.0]))
    watch.forget_scores()
    assert watch.close_epoch() == {}


def rows_of(out: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("method", ["somnet", "somnet+"])
def test_a_killed_epoch_logs_the_same(
    method: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"train.batch_size": 4}
    made = toy(method, **settings)
    steps = sum(row["steps"] for row in made.trainer(tmp_path / "whole").run().history)
    for stop in (steps // 2, steps - 1):
        made, out = toy(method, **settings), tmp_path / str(stop)
        step, done = made.method.step, 0

        def wrapped(
            batch: BagBatch, phase: Phase, step: Callable[[BagBatch, Phase], Step] = step, stop: int = stop
        ) -> Step:
            nonlocal done
            done += 1
            if done == stop:
                signal.raise_signal(signal.SIGTERM)
            return step(batch, phase)

        monkeypatch.setattr(made.method, "step", wrapped)
        with pytest.raises(TrainingStopped):
            made.trainer(out).run()
        toy(method, **settings).trainer(out).run(resume=True)
        assert rows_of(out) == rows_of(tmp_path / "whole"), f"stopped after step {stop}"


SCORES = {"scores/stability"}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("somnet", {"init-cnn": set[str](), "init-memory": MEMORY, "joint": MEMORY | SCORES}),
        ("somnet+", {"init-cnn": SCORES, "init-memory": MEMORY}),
    ],
)
def test_each_phase_logs_what_it_can(
    method: str, expected: dict[str, set[str]], toy: "MakeToy", tmp_path: Path
) -> None:
    toy(method, **{"train.epochs": 10}).trainer(tmp_path).run()
    seen = {name: set[str]() for name in expected}
    for row in rows_of(tmp_path):
        seen[str(row["phase"])] |= {name for name in row if name.startswith(("memory/", "scores/"))}
        assert all(math.isfinite(value) for name, value in row.items() if name != "phase")
        assert -1 <= row.get("scores/stability", 0) <= 1
        assert 0 <= row.get("memory/occupancy", 0) <= 1
    assert seen == expected


@pytest.mark.parametrize(
    "settings", [{"somnet.memory.kmeans": True, "somnet.memory.side": 2}, {"somnet.memory.side": 1}]
)
def test_other_memories_are_watched_too(settings: dict[str, object], toy: "MakeToy", tmp_path: Path) -> None:
    toy("somnet", **settings).trainer(tmp_path).run()
    assert set(rows_of(tmp_path)[-1]) >= MEMORY


def test_a_skipped_step_is_not_counted(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("plain", **{"train.epochs": 1, "train.batch_size": 5})  # two steps
    step = made.method.step
    monkeypatch.setattr(
        made.method, "step", lambda b, p: Step({k: v * float("nan") for k, v in step(b, p).losses.items()})
    )
    trainer = made.trainer(tmp_path)
    trainer.run()
    assert (trainer.watch.before < 0).all()


def test_a_run_of_an_older_version_is_resumed() -> None:
    watch = Watch(3)
    watch.add(scored([0], [0.5]))
    watch.restore({})
    assert float(watch.now[0]) == 0.5
