"""The loop: losses that are NaN or infinite, the log, the learning rates, the checkpoints."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.core.types import BagBatch, Phase
from somnet.errors import RunError, SomnetError, TrainingStopped
from somnet.methods.base import Step
from somnet.methods.somnet import SomNet
from somnet.runs.checkpoint import load_checkpoint
from somnet.system.folders import LAST
from somnet.training.loop import Trainer

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def spoil_steps(patch: pytest.MonkeyPatch, toy: "Toy", bad: Callable[[int], bool]) -> None:
    """Make the loss of some steps NaN."""
    step, count = toy.method.step, 0

    def wrapped(batch: BagBatch, phase: Phase) -> Step:
        nonlocal count
        count += 1
        result = step(batch, phase)
        spoilt = {name: loss * float("nan") for name, loss in result.losses.items()}
        return replace(result, losses=spoilt) if bad(count - 1) else result

    patch.setattr(toy.method, "step", wrapped)


def test_losses_that_are_nan_are_skipped(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = toy("somnet")
    spoil_steps(monkeypatch, made, lambda step: step % 3 != 0)  # two in a row, again and again
    made.trainer(tmp_path).run()
    assert "skipped, its loss or gradient is NaN or infinite" in caplog.text
    assert all(torch.isfinite(value).all() for value in made.method.state_dict().values())
    method = made.method
    assert isinstance(method, SomNet)
    for values in (method.memory.d, method.memory.r):
        assert (values > 0).all()
        assert torch.allclose(values.sum(dim=1), torch.ones(len(values)), atol=1e-5)
    assert torch.allclose(method.memory.keys.norm(dim=1), torch.ones(9), atol=1e-5)


def test_a_skipped_step_changes_nothing(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("plain", **{"train.epochs": 1, "train.batch_size": 5})  # two steps
    before = {name: value.clone() for name, value in made.method.state_dict().items()}
    spoil_steps(monkeypatch, made, lambda step: True)
    made.trainer(tmp_path).run()
    assert all(torch.equal(before[name], value) for name, value in made.method.state_dict().items())


def test_three_in_a_row_stop_the_run(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("plain", **{"train.batch_size": 2})
    spoil_steps(monkeypatch, made, lambda step: step >= 1)
    with pytest.raises(SomnetError, match=r"3 times in a row.*lower train\.lr"):
        made.trainer(tmp_path).run()


def test_the_log_has_a_row_per_epoch(toy: "MakeToy", tmp_path: Path) -> None:
    made, asked = toy("somnet", **{"train.lr": 0.02}), []

    def evaluate() -> float:
        asked.append(made.method.training)
        return 0.5

    made.trainer(tmp_path, evaluate).run()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["phase"], row["epoch"]) for row in rows] == [
        ("init-cnn", 0),
        ("init-cnn", 1),
        ("init-memory", 0),
        ("init-memory", 1),
        ("joint", 0),
        ("joint", 0),
    ]
    assert asked == [False] * 4  # after epochs that count as passes over the images, in evaluation mode
    assert [row.get("test/top1") for row in rows] == [0.5, 0.5, None, None, 0.5, 0.5]
    assert [row.get("keep") for row in rows] == [None] * 4 + [0.25, 0.6]
    assert rows[0]["lr/network"] == pytest.approx(0.01)  # half of the half cosine of 0.02
    assert rows[4]["lr/network"] == pytest.approx(0.005)  # half of the half cosine of 0.01
    assert rows[5]["lr/network"] == pytest.approx(0.0)
    assert {name for name in rows[5] if name.startswith("loss/")} == {
        "loss/cls",
        "loss/som_key",
        "loss/d_value",
        "loss/r_value",
    }


def test_the_losses_of_a_row_are_means_over_its_steps(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy("plain", **{"train.epochs": 1, "train.batch_size": 4})  # 3 steps
    given = iter([1.0, 2.0, 6.0])
    weight = made.method.network.classifier.weight
    monkeypatch.setattr(made.method, "step", lambda batch, phase: Step({"cls": weight.sum() * 0 + next(given)}))
    position = made.trainer(tmp_path).run()
    assert position.history[0]["steps"] == 3
    assert position.history[0]["loss/cls"] == pytest.approx(3.0)


def test_training_learns(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("plain", **{"train.epochs": 8, "train.lr": 0.05})
    history = made.trainer(tmp_path).run().history
    assert history[-1]["loss/cls"] < 0.5 * history[0]["loss/cls"]


def test_images_count_by_their_weights(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("plain", **{"train.epochs": 1, "train.batch_size": 100})  # one step, on all images
    logits = torch.cat([made.method.predict(batch.images) for batch in made.bag_pass(1)]).detach()
    each = torch.nn.functional.cross_entropy(logits, torch.from_numpy(made.labels), reduction="none")  # (n,)
    weights = np.linspace(0, 2, len(made.labels), dtype=np.float32)
    images = replace(made.images(), weights=weights)
    images = replace(images, views=lambda: [images.inputs])  # the whole image, as above
    history = Trainer(made.method, made.config, images, tmp_path).run().history
    assert history[0]["loss/cls"] == pytest.approx(float((each * torch.from_numpy(weights)).mean()), rel=1e-4)


def test_a_frozen_trunk_does_not_move(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("somnet")
    before = {name: value.clone() for name, value in made.method.network.state_dict().items()}
    made.trainer(tmp_path).run()
    after = made.method.network.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert "classifier.weight" in moved
    assert any(name.startswith("tail.") for name in moved)
    assert not [name for name in moved if name.startswith("trunk.") or "running" in name]


def test_a_finished_plan_is_not_run_again(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy("plain").trainer(tmp_path).run()
    again = toy("plain")
    monkeypatch.setattr(again.method, "step", lambda batch, phase: pytest.fail("a step too many"))
    again.trainer(tmp_path).run(resume=True)
    saved = load_checkpoint(tmp_path / LAST)[0]
    assert torch.equal(again.method.network.classifier.weight, saved["method.network.classifier.weight"])


def test_a_signal_is_obeyed_after_the_step(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("plain", **{"train.batch_size": 4})
    step, done = made.method.step, list[Phase]()

    def wrapped(batch: BagBatch, phase: Phase) -> Step:
        if len(done) == 1:
            signal.raise_signal(signal.SIGTERM)
        done.append(phase)
        return step(batch, phase)

    monkeypatch.setattr(made.method, "step", wrapped)
    with pytest.raises(TrainingStopped) as stopped:
        made.trainer(tmp_path).run()
    assert stopped.value.exit_code == 143
    assert len(done) == 2
    position = load_checkpoint(tmp_path / LAST)[1]["position"]
    assert (position["phase"], position["epoch"], position["step"]) == (0, 0, 2)


@pytest.mark.parametrize(("signalled", "told"), [(True, "stopped by SIGTERM, what is done is kept"), (False, "gone")])
def test_a_signal_is_told_rather_than_the_rank_that_obeyed_it_first(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signalled: bool, told: str
) -> None:
    made = toy("plain")

    def step(batch: BagBatch, phase: Phase) -> Step:
        if signalled:
            signal.raise_signal(signal.SIGTERM)
        raise RunError("another rank is gone")  # as a reduction says it

    monkeypatch.setattr(made.method, "step", step)
    with pytest.raises(TrainingStopped if signalled else RunError, match=told):
        made.trainer(tmp_path).run()


def test_a_step_that_the_scaler_skips_changes_nothing(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp16: an overflow costs the step, and lowers the scale; it is no bad step."""
    made = toy("elr", **{"train.epochs": 1, "train.batch_size": 5})  # two steps
    trainer = made.trainer(tmp_path)
    trainer.stepper.scaler = trainer.state.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    made.method.network.classifier.weight.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
    before = {name: tensor.clone() for name, tensor in made.method.state_dict().items()}
    trainer.run()
    assert trainer.stepper.scaler.get_scale() == 256.0
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.method.state_dict().items())
    assert trainer.at.bad_steps == 0
    assert (trainer.watch.before < 0).all()
