"""A benchmark of two methods and two seeds, left alone."""

import csv
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.benchmark.bench import run_bench
from somnet.benchmark.paper_tables import Entry
from somnet.benchmark.trials import Benchmark, choose_entries
from somnet.core.types import BagBatch, Phase
from somnet.data.noise import parse_noise
from somnet.methods.base import Step
from somnet.methods.plain import Plain

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

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

    def wrapped(self: Plain, batch: BagBatch, phase: Phase) -> Step:
        nonlocal count
        count += 1
        act(count - 1)
        return step(self, batch, phase)

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


@pytest.fixture(scope="session")
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
