"""A tiny run that nobody disturbs, and the same run in a place where faults are tried."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from somnet.runs.checkpoint import load_checkpoint
from somnet.system.folders import LAST
from tests.faults.disturbed import Ended, Fault, Moment, somnet_process
from tests.suite import leave_out

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

TABLES = ("issues.parquet", "issues.csv", "regions.parquet", "vectors.npy", "test_wrong.csv")
TIMED = ("index.html", "training.html", "data/training.js")  # pages that tell how many seconds the work took


@dataclass(frozen=True)
class Result:
    """All that a finished run has left, but for the seconds that it took."""

    tensors: dict[str, Tensor]
    state: Any
    records: list[Any]
    files: dict[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, out: Path) -> "Result":
        tensors, state = load_checkpoint(out / LAST)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(text) for text in (*lines, (out / "summary.json").read_text())]
        report = [file for file in (out / "report").rglob("*") if file.is_file()]
        files = {str(file.relative_to(out)): file.read_bytes() for file in (*(out / name for name in TABLES), *report)}
        own_place = str(out.parent).encode()  # decisions.html names the run's folder
        named = {name: b"" if name.removeprefix("report/") in TIMED else text for name, text in files.items()}
        return cls(
            tensors,
            without_seconds(state),
            without_seconds(records),
            {name: text.replace(own_place, b"") for name, text in named.items()},
        )

    def must_equal(self, other: "Result") -> None:
        assert self.tensors.keys() == other.tensors.keys()
        assert [name for name, tensor in self.tensors.items() if not torch.equal(tensor, other.tensors[name])] == []
        assert self.state == other.state
        assert self.records == other.records
        assert self.files.keys() == other.files.keys()
        assert [name for name, text in self.files.items() if text != other.files[name]] == []


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_seconds(inner) for name, inner in value.items() if name != "seconds"}
    return [without_seconds(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Training:
    """A command that trains in a place: its run folder and its cache are there."""

    words: Sequence[object]
    place: Path
    notes: Path

    @property
    def out(self) -> Path:
        return self.place / "run"

    def go_on(self, moment: Moment | None = None, fault: Fault | None = None, *, counted: bool = False) -> Ended:
        words, cache = [*self.words, "--out", self.out, "--resume"], self.place / "cache"
        return somnet_process(words, self.notes, cache=cache, moment=moment, fault=fault, counted=counted)

    def leftovers(self) -> list[Path]:
        """Temporary files and folders that nobody will ever clear away."""
        return [path for path in self.out.rglob("*") if ".somnet-" in path.name]


@dataclass(frozen=True)
class Undisturbed:
    """What a run leaves when nothing happens to it, and how many events each stage has."""

    words: Sequence[object]
    counts: dict[str, int]
    result: Result

    def training(self, place: Path, notes: Path) -> Training:
        return Training(self.words, place, notes)


@pytest.fixture(scope="session")
def undisturbed(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    base = tmp_path_factory.mktemp("undisturbed")
    data = photos.fill(base / "web", names=("ash", "oak"), train=6, test=2)
    (data / "train" / "oak" / "text.jpg").write_text("no picture")
    saving = ["--set", "train.save_minutes=1e-9"]  # after every step
    words = ["train", data, *tiny.flags(), "--method", "somnet", "--epochs", 5, *saving, "--workers", 0]
    training = Training(words, base, base / "notes")
    ended = training.go_on(counted=True)
    assert ended.code == 0, ended.text
    return Undisturbed(words, dict(ended.counts), Result.of(training.out))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of some megabytes, by root's right or sudo's. Where neither is had, the test is left out."""
    mounted: list[Path] = []
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]

    def mount(megabytes: int) -> Path:
        place = tmp_path / f"disk-{len(mounted)}"
        place.mkdir()
        options = f"size={megabytes}m,mode=0755,uid={os.getuid()}"
        done = subprocess.run([*sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True)
        if done.returncode != 0:
            leave_out(f"a small disk cannot be mounted, run the tests as root: {done.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([*sudo, "umount", place], check=True)
