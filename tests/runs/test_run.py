"""A run that is interrupted anywhere and resumed ends exactly like one that was left alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import somnet
from somnet.cleaning.clean import clean
from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.errors import DataError, RunError, SomnetError, TrainingStopped
from somnet.methods.base import Step
from somnet.methods.plain import Plain, PlainRoi
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_plus import SomNetPlus
from somnet.runs.begin import next_run_folder
from somnet.runs.checkpoint import load_checkpoint
from somnet.runs.run import Run
from somnet.system.compute import choose_device
from somnet.system.folders import LAST
from somnet.system.signals import CONTINUE
from somnet.training.train import train_without_report

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

KINDS: dict[str, dict[str, Any]] = {
    "somnet+": {"method": "somnet+", "train.epochs": 6},
    "plain": {"method": "plain"},
    "plain-roi": {"method": "plain-roi"},
    "somnet": {"method": "somnet"},
    "somnet with K-means": {"method": "somnet", "somnet.memory.kmeans": True},
    "somnet, nothing frozen": {"method": "somnet", "model.freeze": "none", "train.epochs": 3},
}


class Crash(Exception):
    """Stands for a kill: nothing gets the chance to save."""


@dataclass(frozen=True)
class Result:
    """What a finished run left."""

    tensors: dict[str, torch.Tensor]
    issues: Any
    metrics: list[dict[str, Any]]

    @classmethod
    def of(cls, out: Path) -> "Result":
        lines = (out / "metrics.jsonl").read_text().splitlines()
        rows = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
        return cls(load_checkpoint(out / LAST)[0], pq.read_table(out / "issues.parquet"), rows)

    def must_equal(self, other: "Result") -> None:
        assert self.tensors.keys() == other.tensors.keys()
        different = [name for name, tensor in self.tensors.items() if not torch.equal(tensor, other.tensors[name])]
        assert different == []
        assert self.issues.equals(other.issues)
        assert self.metrics == other.metrics


@pytest.fixture(scope="module")
def uninterrupted(
    data: Path, tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Config, Result]]:
    known: dict[str, tuple[Config, Result]] = {}

    def reference(kind: str) -> tuple[Config, Result]:
        if kind not in known:
            config, out = tiny.config(**KINDS[kind]), tmp_path_factory.mktemp("whole") / "run"
            train_without_report(data, config, out=out, workers=0)
            known[kind] = config, Result.of(out)
        return known[kind]

    return reference


def before_each_step(patch: pytest.MonkeyPatch, act: Callable[[int, Phase], None]) -> None:
    """Call act(number of the step, phase) before every step of any method."""
    count = 0

    def wrap(step: Callable[[Any, BagBatch, Phase], Step]) -> Callable[[Any, BagBatch, Phase], Step]:
        def wrapped(self: Any, batch: BagBatch, phase: Phase) -> Step:
            nonlocal count
            count += 1
            act(count - 1, phase)
            return step(self, batch, phase)

        return wrapped

    for method in (Plain, PlainRoi, SomNet, SomNetPlus):
        patch.setattr(method, "step", wrap(method.step))


def train_to_the_end(data: Path, config: Config, out: Path) -> int:
    """Resume until the run is finished; returns how often it was interrupted."""
    for interruptions in range(50):
        try:
            train_without_report(data, config, out=out, workers=0)
        except (TrainingStopped, Crash):
            continue
        return interruptions
    raise AssertionError("the run does not get on")


@pytest.fixture
def ends_alike(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uninterrupted: Callable[[str], tuple[Config, Result]],
) -> Callable[..., int]:
    """Trains to the end with act() before every step; checks the result, returns how often it was interrupted."""

    def check(kind: str, act: Callable[[int, Phase], None], **settings: Any) -> int:
        config, expected = uninterrupted(kind)
        before_each_step(monkeypatch, act)
        interruptions = train_to_the_end(data, config.with_settings(settings), tmp_path / "run")
        Result.of(tmp_path / "run").must_equal(expected)
        return interruptions

    return check


@pytest.mark.parametrize("kind", KINDS)
def test_signals_between_any_steps_change_nothing(kind: str, ends_alike: Callable[..., int]) -> None:
    def act(step: int, _: Phase) -> None:
        if step in (2, 7, 9, 13):  # the last, a middle and the first step of an epoch, and in every phase
            signal.raise_signal(signal.SIGTERM if step % 2 else signal.SIGINT)

    assert ends_alike(kind, act) >= 3  # some kinds have 12 steps only


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_the_start_of_any_phase_changes_nothing(kind: str, ends_alike: Callable[..., int]) -> None:
    started = set()

    def act(_: int, phase: Phase) -> None:
        if (phase.name, phase.anneal) not in started:
            started.add((phase.name, phase.anneal))
            raise Crash

    assert ends_alike(kind, act) == len(started) > 0


@pytest.mark.parametrize(("kind", "minutes"), [("plain", 10.0), ("somnet", 10.0), ("somnet with K-means", 1e-9)])
def test_crashes_within_epochs_change_nothing(kind: str, minutes: float, ends_alike: Callable[..., int]) -> None:
    """With one checkpoint per epoch, and with one after every step."""

    def act(step: int, _: Phase) -> None:
        if step in (1, 5, 8, 14):
            raise Crash

    assert ends_alike(kind, act, **{"train.save_minutes": minutes}) == 4


KILLED = """
import os, sys
from somnet.cli.main import main
from somnet.methods.somnet_plus import SomNetPlus

number, step, count = int(sys.argv.pop(1)), SomNetPlus.step, 0

def wrapped(self, batch, phase):
    global count
    count += 1
    if count == 8:
        os.kill(os.getpid(), number)
    return step(self, batch, phase)

SomNetPlus.step = wrapped
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_a_killed_process_can_be_resumed(
    number: signal.Signals,
    code: int,
    data: Path,
    tiny: "Tiny",
    tmp_path: Path,
    uninterrupted: Callable[[str], tuple[Config, Result]],
) -> None:
    config, expected = uninterrupted("somnet+")
    words = ["train", data, "--out", tmp_path / "run", "--workers", 1, *tiny.flags(), "--epochs", 6]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(int(number)), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "summary.json").exists()
    with pytest.raises(RunError, match="--resume"):
        _ = Run(tmp_path / "run").summary
    train_without_report(data, config, out=tmp_path / "run", workers=0)
    Result.of(tmp_path / "run").must_equal(expected)
    assert (CONTINUE in done.stderr) is (number != signal.SIGKILL)


def test_the_seed_changes_the_weights(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    configs = [tiny.config("plain", seed=seed) for seed in (0, 1)]
    runs = [train_without_report(data, c, out=tmp_path / str(c.seed), workers=0) for c in configs]
    first, second = (run.model.classifier.weight for run in runs)
    assert not torch.equal(first, second)


def test_resume_refuses_changed_images(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = photos.fill(tmp_path / "web", train=3, test=1)
    config = tiny.config("plain")
    with monkeypatch.context() as patch:
        before_each_step(patch, lambda step, _: signal.raise_signal(signal.SIGINT) if step == 1 else None)
        with pytest.raises(TrainingStopped, match="--resume"):
            somnet.train(web, config, out=tmp_path / "run", workers=0)
    photos.picture(2, 99).save(web / "train" / "ash" / "0.png")
    with pytest.raises(RunError, match="are not those that"):
        somnet.train(web, config, out=tmp_path / "run", workers=0, resume=True)


def test_a_run_can_be_used_from_python(data: Path, tiny: "Tiny", photos: "Photos", tmp_path: Path) -> None:
    run = train_without_report(data, tiny.config(), out=tmp_path / "run", workers=0)
    assert run.classes == ("=birch", "ash", "oak, red")
    assert run.scores().num_rows == 18
    result = run.evaluate(data, workers=0)
    assert (result.top1, result.top5, result.n) == (run.summary["test"]["top1"], 1.0, 6)
    assert np.mean(list(result.per_class.values())) == pytest.approx(result.top1)  # classes of one size
    pixels = torch.from_numpy(np.asarray(photos.picture(0, 0)).copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        shares = run.model(run.model.prepare(pixels)).softmax(dim=1)[0]
    [found] = run.predict([data / "train" / "=birch" / "0.png"])
    assert found.labels[0] == run.classes[int(shares.argmax())]
    assert found.probabilities == pytest.approx(sorted(shares.tolist(), reverse=True), abs=1e-5)


def test_evaluate_leaves_out_unknown_classes(
    data: Path, tiny: "Tiny", photos: "Photos", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train_without_report(data, tiny.config("plain"), out=tmp_path / "run", workers=0)
    other = photos.fill(tmp_path / "other", names=("ash", "elm"), train=1, test=2)
    assert run.evaluate(other, workers=0).n == 2
    assert "elm" in caplog.text
    strange = photos.fill(tmp_path / "strange", names=("elm", "yew"), train=1, test=1)
    with pytest.raises(DataError, match="knows: =birch, ash, oak, red"):
        run.evaluate(strange, workers=0)


def test_evaluate_names_what_it_cannot_read(
    data: Path, trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(data, tmp_path / "web")
    (tmp_path / "web" / "test" / "ash" / "bad.jpg").write_text("no picture")
    assert Run(trained).evaluate(tmp_path / "web", workers=0).n == 6
    assert "left out: 1 unreadable file (test/ash/bad.jpg: not an image)" in caplog.text


@pytest.mark.parametrize("name", ["issues.parquet", "regions.parquet"])
def test_a_lost_table_comes_back_as_the_message_promises(
    data: Path, tiny: "Tiny", trained: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(trained, out)
    before = pq.read_table(out / name)
    (out / name).unlink()
    with pytest.raises(RunError, match="continue with somnet train --resume"):
        clean(out, tmp_path / "cleaned")
    somnet.train(data, tiny.config(), out=out, workers=0, resume=True)
    assert pq.read_table(out / name).equals(before)


def test_a_damaged_run_is_named(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    run = train_without_report(data, tiny.config("plain"), out=tmp_path / "run", workers=0)
    (run.path / LAST).write_bytes(b"damaged")
    with pytest.raises(RunError, match=r"last\.safetensors"):
        _ = Run(run.path).model
    (run.path / "data.json").write_text("{")
    with pytest.raises(RunError, match=r"data\.json.*another --out"):  # --overwrite would not take it for a run
        Run(run.path)


def test_a_run_that_was_killed_at_its_first_file_is_known_as_one(
    data: Path, tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(out: Path, data: object) -> None:
        raise Crash

    config, out = tiny.config("plain"), tmp_path / "run"
    monkeypatch.setattr("somnet.runs.begin.write_images", killed)
    with pytest.raises(Crash):
        train_without_report(data, config, out=out, workers=0)
    monkeypatch.undo()
    with pytest.raises(RunError, match="exists: add --resume"):
        somnet.train(data, config, out=out, workers=0)
    assert train_without_report(data, config, out=out, workers=0).summary


def test_the_first_free_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "3").mkdir()
    assert next_run_folder(tmp_path) == tmp_path / "2"


def test_a_gpu_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert choose_device("auto") == "cpu"
    with pytest.raises(SomnetError, match="cpu"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("device", "named"),
    [
        ("cuda:2", "cuda:0 to cuda:1"),
        ("cpu:3", "there is only cpu"),
        ("mps", "no such GPU"),
        ("meta", "there is no device 'meta'"),
        ("xpu", "there is no device 'xpu'"),
        ("gpu", "there is no device 'gpu'"),
        ("", "there is no device ''"),
    ],
)
def test_a_device_has_to_be_there(device: str, named: str) -> None:
    present = {"cpu": 1, "cuda": 2, "mps": 0}
    with pytest.raises(RunError, match=named):
        choose_device(device, present)
    assert [choose_device(name, present) for name in ("auto", "cuda:1", "cpu")] == ["cuda", "cuda:1", "cpu"]


def test_a_run_folder_inside_the_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="inside the data"):
        somnet.train(tmp_path, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_another_method_is_told_in_few_words(trained: Path, data: Path, tiny: "Tiny") -> None:
    with pytest.raises(RunError, match=r"\(method was somnet, now elr\)"):
        somnet.train(data, tiny.config("elr"), out=trained, resume=True)
