"""A benchmark, with real runs: its files, its costs, and what is left of it when something dies."""

import csv
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

from somnet.benchmark import bench as bench_module
from somnet.benchmark import demo as demo_module
from somnet.benchmark.bench import make_data, run_bench
from somnet.benchmark.child import in_a_child
from somnet.benchmark.trials import COSTS, Benchmark, data_folder
from somnet.data.noise import parse_noise
from somnet.data.sources import open_source
from somnet.errors import DataError, TrainingStopped
from somnet.system.signals import StopFlag
from tests.benchmark.conftest import Finished, before_each_step, lasting, rows_of

if TYPE_CHECKING:
    from tests.conftest import Photos


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
        assert float(row["auroc"]) == summary["noise"]["belief_auroc"]
        assert row["best_iou"] == ""  # nothing says where things are
        assert float(row["image_passes"]) == (4 if row["method"] == "plain" else 2 + 2 * 4)  # of epochs, of regions
        assert (float(row["trunk_passes"]), float(row["rate"])) == (7, 0.01)  # as many as there are views
        assert bool(row["first_phase_top1"]) == (row["method"] == "somnet")  # plain has one phase
        assert float(row["seconds"]) == summary["seconds"]["total"]
        assert 50 < float(row["peak_memory_mb"]) < 20_000
        assert row["error"] == ""


def test_what_runs_got_wrong_is_kept_and_tells_the_error_of_gains(finished: Finished) -> None:
    wrong: dict[tuple[str, int], set[str]] = {}
    for row in rows_of(finished.out):
        run = finished.out / "runs" / f"{row['method']}-seed{row['seed']}"
        with (run / "test_wrong.csv").open(newline="") as file:
            names = {cells["file_name"] for cells in csv.DictReader(file)}
        images = json.loads((run / "summary.json").read_text())["test"]["n"]
        assert 1 - len(names) / images == pytest.approx(float(row["top1"]))
        wrong[row["method"], int(row["seed"])] = names
    gain = [
        sum((name in wrong["plain", seed]) - (name in wrong["somnet", seed]) for seed in (0, 1)) / 2
        for name in set().union(*wrong.values())
    ]
    by_hand = 100 * np.std([*gain, *[0] * (images - len(gain))], ddof=1) / images**0.5
    assert by_hand > 0
    header, _, *rows = [
        line.split(" | ") for line in (finished.out / "table.md").read_text().splitlines() if "|" in line
    ]
    cells = next(dict(zip(header, row, strict=True)) for row in rows if row[1].strip() == "somnet")
    assert cells["its error by test images"].strip() == f"{by_hand:.1f}"


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
    assert "paper" not in table
    chart = ElementTree.fromstring((finished.out / "plot.svg").read_text())
    named = [element.text for element in chart.iter() if element.get("class") == "end"]
    assert sorted(filter(None, named)) == ["plain", "somnet"]
    assert not list(finished.out.rglob("*.somnet-*"))


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


def signal_and_wait(parent: int, number: int) -> None:
    """In a child: until the parent has handed the signal on, and the handler of the child has heard of it."""
    handler, heard, deadline = signal.getsignal(number), list[int](), time.monotonic() + 300
    assert callable(handler)

    def hear(came: int, frame: FrameType | None) -> None:
        handler(came, frame)
        heard.append(came)

    signal.signal(number, hear)
    os.kill(parent, number)
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_saves_it(
    cached: Finished, plain: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    parent, out = os.getpid(), tmp_path / "out"

    def act(step: int) -> None:
        if step == 4:
            signal_and_wait(parent, number)

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
        time.sleep(600)

    monkeypatch.setattr(bench_module, "write_noisy", slow)
    with pytest.raises(TrainingStopped):
        run_bench(plain, tmp_path / "out")
    assert time.monotonic() - began < 300
    assert not (tmp_path / "out" / "results.csv").exists()


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


def test_threads_of_a_child_may_begin_at_once_after_its_parent_has_computed() -> None:
    """Else one of three children dies: the pool of torch's threads did not survive the fork, and two would mend it."""
    code = (
        "import threading, torch\n"
        "from somnet.benchmark.child import in_a_child\nfrom somnet.system.signals import StopFlag\n"
        "def work():\n"
        "    errors, start = [], threading.Barrier(4)\n"
        "    def compute():\n"
        "        start.wait()\n"
        "        try:\n            torch.zeros(100_000).add_(1).sum()\n"
        "        except RuntimeError as error:\n            errors.append(error)\n"
        "    threads = [threading.Thread(target=compute) for _ in range(4)]\n"
        "    for thread in threads: thread.start()\n"
        "    for thread in threads: thread.join()\n"
        "    if errors: raise errors[0]\n"
        "torch.set_num_threads(2)\ntorch.ones(300, 300) @ torch.ones(300, 300)\n"
        "print([in_a_child(work, StopFlag()) for _ in range(12)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"{[None] * 12}\n", done.stdout + done.stderr


def test_a_child_does_not_wait_for_threads_of_opencv_that_it_has_not() -> None:
    code = (
        "import cv2, numpy\n"
        "from somnet.benchmark.child import in_a_child\nfrom somnet.system.signals import StopFlag\n"
        "cv2.setNumThreads(4)\ncv2.GaussianBlur(numpy.zeros((2000, 2000, 3), numpy.uint8), (31, 31), 0)\n"
        "print(in_a_child(lambda: cv2.setNumThreads(1), StopFlag()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
