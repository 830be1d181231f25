"""A benchmark, with real runs: its files, its costs, and what is left of it when something dies."""

import csv
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from somnet.benchmark import bench as bench_module
from somnet.benchmark import demo as demo_module
from somnet.benchmark.bench import (
    BENCH,
    COSTS,
    Benchmark,
    Trial,
    choose_entries,
    data_folder,
    in_a_child,
    make_data,
    run_bench,
)
from somnet.benchmark.demo import parse_seeds
from somnet.benchmark.paper_tables import VARIANTS, Entry
from somnet.config import Config
from somnet.core.types import Bag, Losses, Phase
from somnet.data.noise import NoiseRecipe, parse_noise
from somnet.data.sources import open_source
from somnet.errors import ConfigError, DataError, RunError, SomnetError, TrainingStopped
from somnet.methods.plain import Plain
from somnet.methods.registry import METHODS
from somnet.runs.run import SUMMARY
from somnet.system.signals import StopFlag

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]

CHANGING = ("seconds", "peak_memory_mb")
NOISE = "flip=0.4"


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lasting(out: Path) -> list[dict[str, str]]:
    """What results.csv says, apart from times and memory."""
    return [{name: cell for name, cell in row.items() if name not in CHANGING} for row in rows_of(out)]


def before_each_step(patch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call act(number of the step) before every step of plain; children that are forked do so too."""
    step, count = Plain.step, 0

    def wrapped(self: Plain, bag: Bag, phase: Phase) -> Losses:
        nonlocal count
        count += 1
        act(count - 1)
        return step(self, bag, phase)

    patch.setattr(Plain, "step", wrapped)


@dataclass(frozen=True)
class Finished:
    """A benchmark of two methods and two seeds, left alone."""

    benchmark: Benchmark
    words: list[str]  # of the same on the command line
    out: Path
    cache: Path  # of boxes and maps, to save time
    before: dict[str, str]  # the data

    def copy(self, out: Path) -> Path:
        shutil.copytree(self.out, out)
        return out


@pytest.fixture(scope="module")
def finished(data: Path, photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Finished:
    base, before = tmp_path_factory.mktemp("bench"), photos.fingerprint(data)
    entries, tables = choose_entries("plain,somnet")
    benchmark = Benchmark(data, entries, (0, 1), tiny.config(), parse_noise(NOISE), tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        run_bench(benchmark, base / "out", workers=1)
    words = [
        str(data),
        "--methods",
        "plain,somnet",
        "--seeds",
        "0-1",
        "--noise",
        NOISE,
        *tiny.flags(),
        "--workers",
        "1",
    ]
    return Finished(benchmark, words, base / "out", base / "cache", before)


@pytest.fixture
def cached(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> Finished:
    monkeypatch.setenv("SOMNET_CACHE", str(finished.cache))
    return finished


@pytest.fixture
def plain(cached: Finished) -> Benchmark:
    """One run."""
    return replace(cached.benchmark, entries=(Entry("plain", "plain"),), seeds=(0,))


# --- what is asked for


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0", (0,)),
        ("0,1,2", (0, 1, 2)),
        ("0-4", (0, 1, 2, 3, 4)),
        ("7, 2-3 ,2", (7, 2, 3)),
        ("5-5", (5,)),
    ],
)
def test_seeds_are_read(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "1,", "4-0", "0-", "1.5", "1--2", "0-4-5", "0-99999999999999999999", "4294967296"]
)
def test_seeds_that_cannot_be_read_say_how_to_write_them(text: str) -> None:
    with pytest.raises(ConfigError, match="0,1,2 or 0-4"):
        parse_seeds(text)


def test_all_methods_take_part_by_default() -> None:
    entries, tables = choose_entries()
    assert tuple(entry.name for entry in entries) == tuple(METHODS)
    assert all(entry.name == entry.method and not entry.settings for entry in entries)
    assert tables == ("methods",)
    assert choose_entries("all") == (entries, tables)


def test_tables_choose_what_takes_part() -> None:
    def names(*words: str | None) -> list[str]:
        return [entry.name for entry in choose_entries(*words)[0]]  # type: ignore[arg-type]

    assert names("sl, plain,sl") == ["sl", "plain"]
    assert names(None, "ablations") == [figure.entry.name for figure in VARIANTS["ablations"]]
    assert names("elr", "ablations")[:3] == ["elr", "plain", "plain-roi"]
    assert len(names(None, "parameters")) == 10
    everything = names("all", "parameters,ablations,methods")
    assert len(everything) == len(set(everything)) == len(METHODS) + 7 + 10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nope",), "plain, plain-roi"),
        (("",), "no method ''"),
        (("plain,",), "no method ''"),
        (("all,plain",), "no method 'all'"),
        ((None, "figures"), "methods, ablations, parameters"),
    ],
)
def test_what_is_unknown_is_named(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        choose_entries(*words)


def test_equal_settings_are_run_once(finished: Finished) -> None:
    entries, _ = choose_entries(None, "parameters")
    benchmark = replace(finished.benchmark, entries=entries, config=finished.benchmark.config.with_settings({}))
    names = benchmark.stands_for()
    assert names["somnet-ng2"] == "somnet"  # 2 images a bag is the default
    assert names["somnet-ng3"] == "somnet-ng3"
    assert names["somnet-L12x12"] == "somnet-L12x12"  # a memory of 3 x 3 is the default here
    of_the_paper = replace(benchmark, config=benchmark.config.with_settings({"somnet.memory.side": 12}))
    assert of_the_paper.stands_for()["somnet-L12x12"] == "somnet"


# --- what is left behind


def test_results_have_a_row_per_run(finished: Finished) -> None:
    rows = rows_of(finished.out)
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("plain", "0"),
        ("somnet", "0"),
        ("plain", "1"),
        ("somnet", "1"),
    ]
    for row in rows:
        summary = json.loads((finished.out / "runs" / f"{row['method']}-seed{row['seed']}/summary.json").read_text())
        assert float(row["top1"]) == summary["test"]["top1"]
        assert float(row["top5"]) == 1.0  # of 3 classes
        assert float(row["auroc"]) == summary["noise"]["auroc"]
        assert row["best_iou"] == ""  # nothing says where things are
        assert float(row["image_passes"]) == 4  # train.epochs
        assert float(row["seconds"]) == summary["seconds"]["total"]
        assert 50 < float(row["peak_memory_mb"]) < 20_000
        assert row["error"] == ""


def test_each_seed_has_its_own_noise(finished: Finished) -> None:
    first, second = ((finished.out / "data" / f"seed{seed}" / "metadata.csv").read_text() for seed in (0, 1))
    assert first != second
    for row in rows_of(finished.out):
        summary = json.loads((finished.out / "runs" / f"{row['method']}-seed{row['seed']}/data.json").read_text())
        assert summary["path"] == str(finished.out / "data" / f"seed{row['seed']}")


def test_tables_and_chart_are_written(finished: Finished) -> None:
    table = (finished.out / "table.md").read_text()
    assert "flip=0.4" in table.splitlines()[0]
    assert "| somnet " in table
    assert "the paper's Table 3" in table
    chart = ElementTree.fromstring((finished.out / "plot.svg").read_text())
    named = [element.text for element in chart.iter() if element.get("class") == "end"]
    assert sorted(filter(None, named)) == ["plain", "somnet"]
    assert not list(finished.out.rglob("*.part"))


def test_the_users_data_is_unchanged(finished: Finished, photos: "Photos", data: Path) -> None:
    assert photos.fingerprint(data) == finished.before


# --- going on


def test_a_finished_benchmark_is_not_run_again(cached: Finished, photos: "Photos") -> None:
    before = photos.fingerprint(cached.out)
    results = run_bench(cached.benchmark, cached.out, resume=True)
    assert [result.method for result in results] == ["plain", "somnet"] * 2
    assert photos.fingerprint(cached.out) == before


def test_seeds_can_be_added(cached: Finished, tmp_path: Path) -> None:
    out = cached.copy(tmp_path / "out")
    times = {file: file.stat().st_mtime_ns for file in out.glob("runs/*/summary.json")}
    more = replace(cached.benchmark, entries=cached.benchmark.entries[:1], seeds=(1, 2))
    results = run_bench(more, out, workers=1, resume=True)
    assert [(result.method, result.seed) for result in results] == [("plain", 1), ("plain", 2)]
    known = [(row["method"], row["seed"]) for row in rows_of(out)]  # also what was not asked for this time
    assert known == [("plain", "0"), ("somnet", "0"), ("plain", "1"), ("somnet", "1"), ("plain", "2")]
    table = (out / "table.md").read_text()
    assert "| 3 of 3 |" in table
    assert "| 2 of 3 |" in table
    assert {file: file.stat().st_mtime_ns for file in times} == times


KILLED = """
import os, signal, sys
from somnet.cli.main import main
from somnet.methods.somnet import SomNet

step, count = SomNet.step, 0

def wrapped(self, bag, phase):
    global count
    count += 1
    if count == 8:
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()  # dies with its parent
    return step(self, bag, phase)

SomNet.step = wrapped
main()
"""


@pytest.mark.slow
def test_a_killed_benchmark_goes_on(cached: Finished, tmp_path: Path) -> None:
    """Nothing gets the chance to save: the second of four runs is in the middle of an epoch."""
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "bench", *cached.words, "--out", str(out)],
        capture_output=True,  # until the last process that could write is gone
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "run 1 of 4: plain, seed 0\n" in done.stderr
    assert "run 2 of 4: somnet, seed 0; about" in done.stderr
    assert len(rows_of(out)) == 1
    assert (out / "runs" / "somnet-seed0" / "checkpoints").is_dir()
    assert not (out / "runs" / "somnet-seed0" / "summary.json").exists()
    first = (out / "runs" / "plain-seed0" / "summary.json").read_bytes()
    run_bench(cached.benchmark, out, workers=1, resume=True)
    assert lasting(out) == lasting(cached.out)
    assert (out / "runs" / "plain-seed0" / "summary.json").read_bytes() == first


def test_a_kill_before_the_costs_are_written_loses_the_memory_alone(cached: Finished, tmp_path: Path) -> None:
    out = cached.copy(tmp_path / "out")
    (out / "runs" / "plain-seed1" / COSTS).unlink()
    run_bench(cached.benchmark, out, workers=1, resume=True)
    assert lasting(out) == lasting(cached.out)
    assert [bool(row["peak_memory_mb"]) for row in rows_of(out)] == [True, True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_saves_it(
    cached: Finished, plain: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    parent, out = os.getpid(), tmp_path / "out"

    def act(step: int) -> None:
        if step == 4:
            os.kill(parent, number)
            time.sleep(1)  # until the parent has handed it on

    with monkeypatch.context() as patch:
        before_each_step(patch, act)
        with pytest.raises(TrainingStopped, match="--resume") as stopped:
            run_bench(plain, out, workers=1)
    assert stopped.value.exit_code == code
    folder = out / "runs" / "plain-seed0"
    assert not (folder / "summary.json").exists()
    assert json.loads((folder / COSTS).read_text())["peak_memory_mb"] > 50
    (folder / COSTS).write_text('{"peak_memory_mb": 123456.0}')  # of the session that was stopped
    run_bench(plain, out, workers=1, resume=True)
    assert lasting(out) == lasting(cached.out)[:1]
    assert rows_of(out)[0]["peak_memory_mb"] == "123456.0"


def test_a_signal_while_data_are_made_is_obeyed_at_once(
    plain: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, began = os.getpid(), time.monotonic()

    def slow(*_: object, **__: object) -> None:
        os.kill(parent, signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr(bench_module, "write_noisy", slow)
    with pytest.raises(TrainingStopped):
        run_bench(plain, tmp_path / "out")
    assert time.monotonic() - began < 30
    assert not (tmp_path / "out" / "results.csv").exists()


# --- what goes wrong


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
    with pytest.raises(RunError, match="no benchmark"):
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
    ],
)
def test_other_settings_are_not_mixed_in(
    cached: Finished, photos: "Photos", change: dict[str, Any], named: str
) -> None:
    before = photos.fingerprint(cached.out)
    settings = change.pop("settings", {})
    other = replace(cached.benchmark, config=cached.benchmark.config.with_settings(settings), **change)
    with pytest.raises(RunError, match=f"begun with another {named}"):
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
    ],
)
def test_a_wrong_word_is_one_line(data: Path, cli: "Cli", tmp_path: Path, words: tuple[str, str], told: str) -> None:
    outcome = cli("bench", data, "--out", tmp_path / "out", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert len(outcome.err.strip().splitlines()) == 1
    assert told in outcome.err
    assert not (tmp_path / "out").exists()


# --- data and processes


def test_noise_with_a_seed_of_its_own_is_the_same_for_all_seeds(plain: Benchmark, tmp_path: Path) -> None:
    own = replace(plain, noise=parse_noise("flip=0.4,seed=9"))
    assert data_folder(own, tmp_path, 0) == data_folder(own, tmp_path, 1) == tmp_path / "data" / "seed9"
    assert data_folder(plain, tmp_path, 1) == tmp_path / "data" / "seed1"
    assert data_folder(replace(plain, noise=None), tmp_path, 1) == plain.data


def test_the_title_tells_data_and_noise(plain: Benchmark) -> None:
    recipe = parse_noise("flip=0.4,paste=some/where,seed=0")
    photos = replace(plain, data=Path("photos"))
    assert replace(photos, noise=recipe).title() == "photos with flip=0.4, paste=where, seed=0"
    assert replace(photos, noise=None).title() == "photos"
    assert replace(plain, data=None, noise=None).title() == "the toy web"


def test_the_toy_web_is_drawn_for_each_seed(
    plain: Benchmark, photos: "Photos", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, int]] = []

    def quick(folder: Path, *, seed: int) -> None:
        drawn.append((str(folder.relative_to(tmp_path)), seed))
        photos.fill(folder, train=2, test=1)

    monkeypatch.setattr(demo_module, "write_demo", quick)
    toy = replace(plain, data=None, noise=None)
    assert make_data(toy, tmp_path / "a", 3) == tmp_path / "a" / "data" / "seed3"
    noisy = make_data(replace(toy, noise=parse_noise("flip=1,seed=0")), tmp_path / "b", 3, workers=1)
    assert drawn == [("a/data/seed3", 3), ("b/data/toy-seed3", 3)]
    assert noisy == tmp_path / "b" / "data" / "seed3"  # other seeds have other drawings, whatever the noise's seed
    index = open_source(noisy).of_split("train")
    given = [index.classes[label] for label in index.labels()]
    assert all(label != true for label, true in zip(given, index.column("true_label"), strict=True))


def test_the_memory_of_a_child_is_its_own(tmp_path: Path) -> None:
    def work(name: str, count: int) -> Callable[[], None]:
        def fill() -> None:
            pages = mmap.mmap(-1, count)  # the allocator might hand out what the parent had before
            pages.write(bytes(count))
            (tmp_path / name).write_text(str(bench_module.peak_memory_mb()))

        return fill

    for name, count in (("large", 160_000_000), ("small", 1)):
        assert in_a_child(work(name, count), StopFlag()) is None
    large, small = (float((tmp_path / name).read_text()) for name in ("large", "small"))
    assert large - small > 120


def test_a_child_tells_why_it_failed() -> None:
    def fail() -> None:
        raise DataError("no pictures: add some")

    assert in_a_child(fail, StopFlag()) == "no pictures: add some"
    assert "exit code 7" in str(in_a_child(lambda: os._exit(7), StopFlag()))
