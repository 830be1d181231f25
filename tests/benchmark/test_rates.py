"""The choice of learning rates: the rule, what is held back, and real searches that are killed and go on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from somnet.benchmark.bench import run_bench
from somnet.benchmark.paper_tables import Entry
from somnet.benchmark.rates import (
    CHOICES,
    DEFAULT_RATES,
    choose_rate,
    hold_back,
    parse_rates,
    searched_names,
    write_choices,
    write_held_back,
)
from somnet.benchmark.trials import Benchmark, RateSearch, Trial
from somnet.config import Config
from somnet.data.noise import NoiseRecipe, write_noisy
from somnet.data.sources import open_source
from somnet.errors import DataError, RunError
from somnet.methods.plain import PlainRoi
from somnet.system.compute import Compute
from somnet.training.loop import DIVERGED
from tests.benchmark.conftest import Finished, before_each_step, lasting, rows_of

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]

SEARCH = RateSearch((0.001, 0.1))


def test_rates_are_read() -> None:
    assert parse_rates("0.03, 0.003,1e-2,0.03") == (0.003, 0.01, 0.03)
    assert parse_rates("auto") == DEFAULT_RATES


@pytest.mark.parametrize(
    ("accuracies", "rate"),
    [
        ({0.003: 0.5, 0.01: 0.7, 0.03: 0.6}, 0.01),  # the highest accuracy
        ({0.03: 0.7, 0.01: 0.7, 0.003: 0.6}, 0.01),  # of equals the lower rate, however they are ordered
        ({0.01: 0.0, 0.003: None}, 0.01),  # one that diverged is below all others
        ({0.03: None, 0.01: None}, 0.01),
        ({0.1: 0.2}, 0.1),
    ],
)
def test_the_rule(accuracies: dict[float, float | None], rate: float) -> None:
    assert choose_rate(accuracies) == rate


# --- what is held back


def test_the_same_share_of_each_class_is_held_back() -> None:
    labels = np.repeat([0, 1, 2, 3], [100, 50, 3, 1])
    alone = np.full(len(labels), -1)
    held = hold_back(labels, alone, 0.2, np.random.default_rng(0))
    assert np.bincount(labels[held], minlength=4).tolist() == [20, 10, 1, 0]  # a single image is trained on
    other = hold_back(labels, alone, 0.2, np.random.default_rng(1))
    assert (held != other).any()


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_a_picture_stay_together(seed: int) -> None:
    labels = np.tile([0, 1], 20)
    groups = np.full(40, -1)
    groups[:12] = np.repeat([0, 1, 2], 4)  # three groups of four, two of each class
    groups[12:26] = 3  # more than may be held back
    held = hold_back(labels, groups, 0.2, np.random.default_rng(seed))
    for group in range(4):
        assert len(set(held[groups == group].tolist())) == 1
    assert not held[groups == 3].any()
    assert np.bincount(labels[held]).tolist() == [4, 4]


def test_no_test_image_and_no_copy_is_seen(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", train=10, test=2)
    for label, name in enumerate(("=birch", "ash", "oak, red")):
        photos.picture(label, 3).save(web / "train" / name / "copy.png")  # of 3.png
    for file in web.glob("test/*/*"):
        file.write_bytes(b"nobody opens it")
    for again in range(2):  # the second finds what a kill has left, and hard links among it
        write_held_back(web, tmp_path / "held", SEARCH, tiny.config(), Compute(workers=0))
        if not again:
            (tmp_path / "held" / "metadata.csv").unlink()
    index = open_source(tmp_path / "held")
    assert len(index) == 33
    splits = np.array(index.column("split"))
    contents = [(tmp_path / "held" / os.fsdecode(name)).read_bytes() for name in index.column("file_name")]
    assert b"nobody opens it" not in contents
    train = {content for content, split in zip(contents, splits, strict=True) if split == "train"}
    held = {content for content, split in zip(contents, splits, strict=True) if split == "test"}
    assert train.isdisjoint(held)
    assert np.bincount(index.labels()[splits == "test"]).tolist() == [2, 2, 2]  # 20 % of 11
    assert index.column("true_label") == [None] * 33


def test_what_is_held_back_is_as_wrong_as_the_rest(tiny: "Tiny", tmp_path: Path) -> None:
    """The same seed draws the noise and what is held back: the one must not follow the other."""
    rng = np.random.default_rng(0)
    for number in range(180):  # no two alike, so that none are grouped
        folder = tmp_path / "source" / "train" / "abc"[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize((48, 48)).save(folder / f"{number}.png")
    write_noisy(tmp_path / "source", tmp_path / "web", NoiseRecipe(flip=0.4), seed=SEARCH.seed, workers=0)
    web = open_source(tmp_path / "web").of_split("train")
    wrong = web.labels() != [web.classes.index(str(name)) for name in web.column("true_label")]
    write_held_back(tmp_path / "web", tmp_path / "held", SEARCH, tiny.config(), Compute(workers=0))
    held = np.array(open_source(tmp_path / "held").column("split")) == "test"
    assert (wrong.sum(), held.sum()) == (72, 36)
    assert wrong[held].mean() == pytest.approx(0.4, abs=0.2)  # two and a half standard errors


def test_too_few_images_are_named(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", train=1, test=1)
    with pytest.raises(DataError, match="too few training images"):
        write_held_back(web, tmp_path / "held", SEARCH, tiny.config(), Compute(workers=0))


# --- who is searched


def test_who_has_no_rate_to_choose_is_left_out(plain: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (Entry("plain", "plain"), Entry("fixed", "plain", {"train.lr": 0.5}), Entry("plain-roi", "plain-roi"))
    benchmark = replace(plain, entries=entries, search=SEARCH)
    assert searched_names(benchmark) == ["plain", "plain-roi"]
    monkeypatch.setattr(PlainRoi, "uses_rate", False)
    assert searched_names(benchmark) == ["plain"]


def test_a_trial_that_died_is_no_choice(tmp_path: Path) -> None:
    from somnet.benchmark.comparison import Result

    def outcomes(name: str, *results: Result) -> dict[Trial, Result]:
        configs = [Config().with_settings({"train.lr": rate}) for rate in SEARCH.rates]
        return {Trial(name, config, tmp_path / name / str(i)): results[i] for i, config in enumerate(configs)}

    good, died = Result("", 1000, top1=0.5), Result("", 1000, error="its process died")
    diverged = Result("", 1000, error=f"{DIVERGED} 3 times in a row")
    write_choices(SEARCH, outcomes("a", good, died) | outcomes("b", diverged, good), tmp_path)
    told = json.loads((tmp_path / CHOICES).read_text())
    assert told["entries"] == {"b": {"rate": 0.1, "accuracies": {"0.001": None, "0.1": 0.5}}}
    assert (told["rule"]["seed"], told["rule"]["held_back"]) == (1000, 0.2)


# --- for real


@pytest.fixture
def searched(plain: Benchmark) -> Benchmark:
    entries = (Entry("plain", "plain"), Entry("fixed", "plain", {"train.lr": 0.05}))
    return replace(plain, entries=entries, search=SEARCH)


def test_a_search_through_the_command_line(cached: Finished, cli: "Cli", tmp_path: Path) -> None:
    words = ["bench", *cached.words, "--out", tmp_path / "out", "--rates", "0.1,0.001", "--baseline", "slow (fixed)"]
    words[words.index("plain,somnet")] = "plain,slow (fixed)=plain:train.lr=0.0005,train.momentum=0.5"
    outcome = cli(*words)
    assert outcome.code == 0, outcome.err
    out = tmp_path / "out"
    told = json.loads((out / CHOICES).read_text())["entries"]
    assert list(told) == ["plain"]
    assert sorted(folder.name for folder in (out / "rates").iterdir()) == ["plain-lr0.001", "plain-lr0.1"]
    for rate, accuracy in told["plain"]["accuracies"].items():
        run = out / "rates" / f"plain-lr{rate}"
        summary = json.loads((run / "summary.json").read_text())
        assert summary["test"]["top1"] == accuracy
        assert summary["data"]["train"] + summary["data"]["test"] == 18  # the training images
        assert json.loads((run / "data.json").read_text())["path"] == str(out / "data" / "held-back-seed1000")
    expected = {"plain": str(told["plain"]["rate"]), "slow (fixed)": "0.0005"}
    assert {row["method"]: row["rate"] for row in rows_of(out)} == expected
    assert [row["seed"] for row in rows_of(out)] == ["0", "0", "1", "1"]
    table = (out / "table.md").read_text()
    assert "gain over slow \\(fixed\\)" in table
    assert " rate " in table
    before = (out / "results.csv").read_bytes()
    words[words.index("0-1")] = "0"
    assert cli(*words, "--resume").code == 0
    assert (out / "results.csv").read_bytes() == before
    words[words.index("0.1,0.001")] = "0.1"
    assert "started with another rates" in cli(*words, "--resume").err
    words[words.index("0.1")] = "0.1,0.001"
    words[words.index("plain,slow (fixed)=plain:train.lr=0.0005,train.momentum=0.5")] = "slow (fixed)=plain"
    assert "started with another 'slow (fixed)'" in cli(*words, "--resume").err


def test_a_search_goes_on_after_a_kill(searched: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps_of_a_trial = 4 * 3  # 4 epochs, 15 images, 6 at a time
    out, whole = tmp_path / "out", tmp_path / "whole"

    def kill_the_second(step: int) -> None:
        if (out / "rates" / "plain-lr0.1").is_dir() and not (out / "runs").exists() and step == steps_of_a_trial - 2:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        before_each_step(patch, kill_the_second)
        plain, fixed = run_bench(searched, out, workers=1)
    assert "no learning rate was chosen, as rate 0.1 failed (its process died" in plain.error
    assert fixed.error == ""  # it needs no search
    assert json.loads((out / CHOICES).read_text())["entries"] == {}
    first = out / "rates" / "plain-lr0.001" / "summary.json"
    before = first.stat().st_mtime_ns
    assert not any(result.error for result in run_bench(searched, out, workers=1, resume=True))
    assert first.stat().st_mtime_ns == before
    run_bench(searched, whole, workers=1)
    assert lasting(out) == lasting(whole)
    assert (out / CHOICES).read_text() == (whole / CHOICES).read_text()


def test_other_rates_are_refused(searched: Benchmark, plain: Benchmark, tmp_path: Path) -> None:
    one = replace(searched, entries=(Entry("fixed", "plain", {"train.lr": 0.05}),))
    run_bench(one, tmp_path / "out", workers=1)
    for other in (None, RateSearch((0.001, 0.2)), RateSearch((0.001, 0.1), seed=7)):
        with pytest.raises(RunError, match="started with another rates"):
            run_bench(replace(one, search=other), tmp_path / "out", resume=True)


KILLED = """
import os, signal, sys
from somnet.cli.main import main
from somnet.methods.plain import Plain

step, count = Plain.step, 0

def wrapped(self, batch, phase):
    global count
    count += 1
    if count == 5 and os.path.isdir(os.path.join(sys.argv[-1], "rates", "plain-lr0.1")):
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()  # dies with its parent
    return step(self, batch, phase)

Plain.step = wrapped
main()
"""


@pytest.mark.slow
def test_a_benchmark_that_is_killed_in_its_search_goes_on(
    cached: Finished, searched: Benchmark, tmp_path: Path
) -> None:
    """Nothing gets the chance to save: the second of two rates is in the middle of an epoch."""
    out = tmp_path / "out"
    words = [*cached.words, "--rates", "0.001,0.1", "--out", str(out)]
    words[words.index("plain,somnet")], words[words.index("0-1")] = "plain,fixed=plain:train.lr=0.05", "0"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "bench", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "run 2 of 2: plain, rate 0.1; about" in done.stderr
    assert not (out / CHOICES).exists()
    assert not (out / "runs").exists()
    first = out / "rates" / "plain-lr0.001" / "summary.json"
    before = first.stat().st_mtime_ns
    assert not any(result.error for result in run_bench(searched, out, workers=1, resume=True))
    assert first.stat().st_mtime_ns == before
    run_bench(searched, tmp_path / "whole", workers=1)
    assert lasting(out) == lasting(tmp_path / "whole")
