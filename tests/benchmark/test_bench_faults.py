"""A benchmark with runs that fail, in places and with words that are wrong."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from somnet.benchmark.bench import BENCH, run_bench
from somnet.benchmark.demo import run_demo
from somnet.benchmark.paper_tables import Entry
from somnet.benchmark.trials import COSTS, Benchmark, Trial
from somnet.config import Config
from somnet.data.noise import NoiseRecipe
from somnet.errors import DataError, RunError, SomnetError
from somnet.system.folders import SUMMARY
from tests.benchmark.conftest import Finished, before_each_step, lasting, rows_of

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


def test_a_run_that_fails_does_not_stop_the_others(
    cached: Finished, cli: "Cli", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise ValueError("=cmd|' /C calc'!A0\n<b>bad</b> \ud800")

    words = ["bench", *cached.words, "--out", tmp_path / "out"]
    words[words.index("0-1")] = "0"
    with monkeypatch.context() as patch:
        before_each_step(patch, fail)
        outcome = cli(*words)
    assert outcome.code == 1
    assert "**Failed:** plain" in outcome.out
    assert "plain, seed 0 failed: ValueError: =cmd" in outcome.err
    failed, sound = rows_of(tmp_path / "out")
    assert failed["error"].startswith("ValueError: =cmd|' /C calc'!A0 <b>bad</b>")
    assert (failed["top1"], failed["image_passes"]) == ("", "")
    assert sound == rows_of(tmp_path / "out")[1]
    assert lasting(tmp_path / "out")[1] == lasting(cached.out)[1]
    assert "<b>" not in (tmp_path / "out" / "table.md").read_text()
    outcome = cli(*words, "--resume")  # tried again
    assert outcome.code == 0, outcome.err
    assert lasting(tmp_path / "out") == lasting(cached.out)[:2]


def test_a_run_that_is_killed_is_listed(plain: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_each_step(monkeypatch, lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == 2 else None)
    [result] = run_bench(plain, tmp_path / "out", workers=1)
    assert "SIGKILL" in result.error
    assert result.top1 is None
    assert rows_of(tmp_path / "out")[0]["error"] == result.error


def test_hostile_labels_reach_no_file_as_markup(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    labels = ("=1+1", "<script>x</script>", "a | b\n# c")
    web = photos.fill(tmp_path / "<i>web</i>", names=labels, train=3, test=1)
    benchmark = Benchmark(web, (Entry("plain", "plain"),), (0,), tiny.config("plain", **{"train.epochs": 1}))
    [result] = run_bench(benchmark, tmp_path / "out", workers=1)
    assert result.error == ""
    assert not (tmp_path / "out" / "data").exists()  # nothing to make: the photos are used as they are
    for name in ("table.md", "plot.svg"):
        text = (tmp_path / "out" / name).read_text()
        assert "<script>x" not in text
        assert "<i>" not in text.replace("\\<", "")
    ElementTree.parse(tmp_path / "out" / "plot.svg")


def test_an_existing_folder_is_not_taken(cached: Finished, photos: "Photos") -> None:
    before = photos.fingerprint(cached.out)
    with pytest.raises(RunError, match="--resume"):
        run_bench(cached.benchmark, cached.out)
    assert photos.fingerprint(cached.out) == before


@pytest.mark.parametrize("name", [SUMMARY, COSTS])
@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000, b"3"], ids=["cut", "bytes", "deep", "number"])
def test_a_damaged_file_of_a_run_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=f"{name} cannot be read .*: delete it, and --resume"):
        Trial("plain", Config(), tmp_path).result()


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["thesis.txt", BENCH])
def test_a_folder_that_is_no_benchmark_is_left_alone(
    plain: Benchmark, tmp_path: Path, photos: "Photos", resume: bool, name: str
) -> None:
    (tmp_path / name).write_text("years of work")
    before = photos.fingerprint(tmp_path)
    with pytest.raises(RunError, match="not a somnet benchmark"):
        run_bench(plain, tmp_path, resume=resume)
    with pytest.raises(RunError, match="is a file"):
        run_bench(plain, tmp_path / name, resume=resume)
    assert photos.fingerprint(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"noise": NoiseRecipe(flip=0.1)}, "noise"),
        ({"noise": None}, "noise"),
        ({"data": None}, "data"),
        ({"settings": {"train.lr": 0.5}}, "train"),
        ({"settings": {"elr.beta": 0.5}}, "elr"),
    ],
)
def test_other_settings_are_not_mixed_in(
    cached: Finished, photos: "Photos", change: dict[str, Any], named: str
) -> None:
    before = photos.fingerprint(cached.out)
    settings = change.pop("settings", {})
    other = replace(cached.benchmark, config=cached.benchmark.config.with_settings(settings), **change)
    with pytest.raises(RunError, match=f"started with another {named}"):
        run_bench(other, cached.out, resume=True)
    assert photos.fingerprint(cached.out) == before


def test_a_benchmark_inside_the_data_is_refused(plain: Benchmark, data: Path) -> None:
    with pytest.raises(RunError, match="inside the data"):
        run_bench(plain, data / "bench")
    assert not (data / "bench").exists()


def test_data_without_test_images_is_refused(plain: Benchmark, photos: "Photos", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", train=2, test=0)
    with pytest.raises(SomnetError, match="no test images"):
        run_bench(replace(plain, data=web, noise=None), tmp_path / "out")
    assert not (tmp_path / "out").exists()  # nothing is in the way of the next try
    with pytest.raises(DataError, match="does not exist"):
        run_bench(replace(plain, data=tmp_path / "missing"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seeds", "4-0"), "0-4"),
        (("--methods", "nope"), "plain, plain-roi"),
        (("--noise", "flips=1"), "flip=0.4"),
        (("--tables", "x"), "ablations"),
        (("--epochs", "0"), "train.epochs"),
        (("--rates", "0.01,fast"), "0.01,0.03"),
        (("--rates", "0"), "0.01,0.03"),
        (("--rates", "auto", "--rate-seed", "3"), "another --rate-seed"),
        (("--baseline", "elr", "--methods", "plain,sl"), "'elr' does not take part"),
    ],
)
def test_a_wrong_word_is_one_line(data: Path, cli: "Cli", tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    outcome = cli("bench", data, "--out", tmp_path / "out", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert len(outcome.err.strip().splitlines()) == 1
    assert told in outcome.err
    assert not (tmp_path / "out").exists()


def test_settings_of_another_method_are_not_forgotten(plain: Benchmark, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_bench(replace(plain, config=plain.config.with_settings({"elr.beta": 0.5})), out, workers=1)
    with pytest.raises(RunError, match="started with another elr"):
        run_bench(plain, out, resume=True)


@pytest.mark.parametrize(("place", "told"), [("train", "1 replaced: train/ash/0"), ("test", "do not compare")])
def test_runs_on_changed_images_are_not_compared(
    place: str, told: str, photos: "Photos", tiny: "Tiny", tmp_path: Path
) -> None:
    web = photos.fill(tmp_path / "web", train=4, test=1)
    benchmark = Benchmark(web, (Entry("plain", "plain"),), (0,), tiny.config("plain", **{"train.epochs": 1}))
    run_bench(benchmark, tmp_path / "out", workers=1)
    more = replace(benchmark, entries=(Entry("plain", "plain"), Entry("sl", "sl")))
    image = next(iter(sorted((web / place / "ash").iterdir())))
    before = image.read_bytes()
    photos.picture(2, 50).save(image)
    with pytest.raises(SomnetError, match=told):
        run_bench(more, tmp_path / "out", workers=1, resume=True)
    image.write_bytes(before)
    results = run_bench(more, tmp_path / "out", workers=1, resume=True)
    assert [(result.method, result.error) for result in results] == [("plain", ""), ("sl", "")]


def test_the_demo_is_not_written_among_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(RunError, match="exists and is not a somnet demo"):
        run_demo(tmp_path, (0,))
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]
