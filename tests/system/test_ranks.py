"""Several ranks, in real processes that torchrun starts: the same steps as one, the same state on all, nothing lost."""

import csv
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.core.types import BagBatch, Phase
from somnet.data.checked_tables import read_checked
from somnet.data.proposals import SCAN_SCHEMA, scan
from somnet.data.sources import open_source
from somnet.errors import DataError, RunError, TrainingStopped
from somnet.methods.base import Step
from somnet.methods.plain import Plain
from somnet.runs.checkpoint import load_checkpoint
from somnet.system.folders import LAST
from somnet.system.parallel import share_of
from somnet.system.ranks import ALONE, Ranks, device_of_rank
from somnet.system.signals import StopFlag
from somnet.training.train import train
from tests.system.ranks_at_work import CASES, FITTED_FIRST, STATISTICS, work

if TYPE_CHECKING:
    from tests.conftest import Tiny

ROOT = Path(__file__).parents[2]
LONGEST = 900  # seconds for what takes twenty on a machine that is not busy
LOOK = 3  # seconds between two looks of torchrun: a rank that lost the other one can say so before it is told to end
RESUMABLE = {"train.epochs": 24, "train.batch_size": 5}


def torchrun(*words: object, restarts: int = 0) -> subprocess.Popen[str]:
    """Two ranks at some work."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    environment.pop("FORCE_COLOR", None)
    return subprocess.Popen(
        [*command, "--max-restarts", str(restarts), "--monitor-interval", str(LOOK), *map(str, words)],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def ended(process: "subprocess.Popen[str]") -> str:
    """What it has printed; nothing is left behind, however it ends."""
    try:
        return process.communicate(timeout=LONGEST)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        pytest.fail(process.communicate()[0])


def wait(until: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Until something has happened; the process must not end before."""
    limit = time.monotonic() + LONGEST
    while not until():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < limit
        time.sleep(0.02)


def pid_of_rank(rank: int, torchrun: int) -> int | None:
    """The process that torchrun has started as this rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == torchrun and b"RANK=%d" % rank in environment:
            return int(folder.name)
    return None


@dataclass(frozen=True)
class Worked:
    """What two ranks have done, and what they said."""

    out: Path
    cache: Path
    config: Path
    first: dict[str, Any]
    second: dict[str, Any]
    printed: str

    def command(self, data: Path, out: Path) -> list[object]:
        return ["-m", "somnet", "train", data, "--out", out, "--config", self.config, "--workers", 0]


@pytest.fixture(scope="module")
def worked(data: Path, tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Worked:
    out = tmp_path_factory.mktemp("ranks")
    (out / "config.toml").write_text(tiny.config("somnet+", **RESUMABLE).to_toml())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(out / "cache"))
        process = torchrun(Path(__file__).with_name("ranks_at_work.py"), data, out / "config.toml", out)
        printed = ended(process)
    assert process.returncode == 0, printed
    first, second = (json.loads((out / f"rank{rank}.json").read_text()) for rank in (0, 1))
    return Worked(out, out / "cache", out / "config.toml", first, second, printed)


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_hold_the_same_state_at_every_step(case: str, worked: Worked) -> None:
    states = [[step["state"] for step in rank[case]["steps"]] for rank in (worked.first, worked.second)]
    assert states[0] == states[1]
    assert len(set(states[0])) == (1 if case in FITTED_FIRST else len(states[0]))  # each step changes something


def test_ranks_normalise_by_the_whole_batch(worked: Worked) -> None:
    assert max(worked.first["normalised"], worked.second["normalised"]) < 1e-9


@pytest.mark.parametrize("case", [case for case in CASES if case != STATISTICS])
def test_two_ranks_take_the_steps_of_one(case: str, worked: Worked, tmp_path: Path) -> None:
    alone = work(case, tmp_path)
    assert len(alone["steps"]) >= (3 if case in FITTED_FIRST else 8)
    for rank in (worked.first, worked.second):
        for mine, theirs in zip(alone["steps"], rank[case]["steps"], strict=True):
            assert theirs["losses"] == pytest.approx(mine["losses"], rel=1e-5, abs=1e-5)
        for row, other in zip(alone["history"], rank[case]["history"], strict=True):
            assert other.pop("phase") == row["phase"]
            numbers = {name: value for name, value in row.items() if name != "phase"}
            assert other == pytest.approx(numbers, rel=1e-4, abs=1e-4)
    ours, theirs = (load_checkpoint(run / LAST)[0] for run in (tmp_path, worked.out / case / "0"))
    for name in (name for name in ours if name.startswith("method.")):  # weights, memory, batch statistics
        torch.testing.assert_close(theirs[name], ours[name], rtol=1e-5, atol=1e-5, msg=name)


def test_only_the_first_rank_writes_checkpoints(worked: Worked) -> None:
    assert (worked.out / "somnet" / "0" / LAST).is_file()
    assert not (worked.out / "somnet" / "1").exists()


def test_rows_of_ranks_are_brought_together_in_order(worked: Worked) -> None:
    assert worked.first["gathered"] == worked.second["gathered"] == [[[1.0] * 3] * 2, [[1] * 3] * 2]
    assert worked.first["total"] == worked.second["total"] == [3.0, 1.0]
    assert worked.first["signal"] == worked.second["signal"] == 15


def test_boxes_found_by_ranks_are_those_of_one(worked: Worked, data: Path, tiny: "Tiny") -> None:
    alone = scan(open_source(data), tiny.config().proposals, 1)  # in a cache of its own
    for rank in (worked.first, worked.second):
        assert np.array_equal(np.array(rank["boxes"], np.float32), alone.boxes)
    assert len(list((worked.cache / "files").iterdir())) == 1  # the ranks' tables are put together
    parts = list((worked.cache / "proposals").glob("*/*.table"))
    assert sum(read_checked(part, SCAN_SCHEMA).num_rows for part in parts) == len(set(alone.keys))  # each found once


def test_what_ranks_cannot_do_exactly_is_refused(worked: Worked) -> None:
    for rank in (worked.first, worked.second):
        assert "'mopro'" in rank["refused"]
        assert "train.batch_size" in rank["small"]
    assert not (worked.out / "refused").exists()


def test_one_rank_speaks(worked: Worked) -> None:
    assert worked.printed.count("somnet+ on 2 ranks") <= 1


def test_scores_of_two_ranks_are_put_together(worked: Worked, data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    run = worked.out / "run"
    issues = pq.read_table(run / "issues.parquet")
    assert issues.num_rows == 18
    assert issues["file_name"].to_pylist() == sorted(issues["file_name"].to_pylist())
    assert not list(run.glob("*-of-rank*"))
    assert json.loads((run / "summary.json").read_text())["test"]["n"] == 6
    assert (run / "report" / "index.html").is_file()
    alone = train(data, tiny.config("somnet+", **RESUMABLE), out=tmp_path / "alone", workers=0)
    known = alone.scores()
    for column in ("file_name", "given_label", "predicted_label", "duplicate_group"):
        assert issues[column].to_pylist() == known[column].to_pylist()
    assert issues["label_score"].to_pylist() == pytest.approx(known["label_score"].to_pylist(), abs=1e-3)


def test_a_stopped_and_a_killed_rank_change_nothing(
    worked: Worked, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMNET_CACHE", str(worked.cache))
    out = tmp_path / "run"
    stopped = torchrun(*worked.command(data, out))
    wait((out / LAST).is_file, stopped)
    stopped.send_signal(signal.SIGTERM)
    printed = ended(stopped)
    assert stopped.returncode != 0
    assert printed.count("stopped by SIGTERM, ") == 1, printed  # in a step, or while an epoch is being closed
    assert not (out / "summary.json").exists()
    place = load_checkpoint(out / LAST)[1]["position"]

    (out / "issues-of-rank7.parquet").touch()  # as left by a kill, of a run with more ranks
    killed = torchrun(*worked.command(data, out), "--resume", restarts=1)
    wait(lambda: moved_on(out, place), killed)
    second = pid_of_rank(1, killed.pid)
    assert second is not None
    os.kill(second, signal.SIGKILL)
    printed = ended(killed)
    assert killed.returncode == 0, printed
    assert "another rank is gone" in printed
    assert not list(out.glob("*-of-rank*"))
    must_be_the_same_run(out, worked.out / "run")


def test_a_signal_that_comes_while_ranks_ask_each_other_is_not_lost() -> None:
    stop = StopFlag()

    class Interrupted(Ranks):
        def largest(self, value: int) -> int:
            stop.signal_number = signal.SIGTERM
            return value

    ranks = Interrupted()
    assert not ranks.stopped(stop)  # all ranks have agreed to go on, so this one goes on as well
    with pytest.raises(TrainingStopped, match="SIGTERM"):
        ranks.check_together(stop)


@pytest.mark.long
def test_ranks_share_the_runs_of_a_benchmark(
    worked: Worked, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMNET_CACHE", str(worked.cache))
    out, config = tmp_path / "bench", ("--config", worked.config, "--epochs", 2, "--workers", 1)
    process = torchrun("-m", "somnet", "bench", data, "--out", out, "--methods", "plain,mopro", "--seeds", 0, *config)
    printed = ended(process)
    assert process.returncode == 0, printed
    assert printed.count("run 1 of 2: plain") == 1
    assert "run 2 of 2" not in printed  # the other rank's, which is quiet
    with (out / "results.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file) if not row["error"]] == ["plain", "mopro"]


def moved_on(out: Path, place: dict[str, Any]) -> bool:
    now = load_checkpoint(out / LAST)[1]["position"]
    return bool((now["phase"], now["epoch"]) > (place["phase"], place["epoch"]))


def must_be_the_same_run(out: Path, whole: Path) -> None:
    (found, state), (expected, wanted) = (load_checkpoint(run / LAST) for run in (out, whole))
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    histories = [[{**row, "seconds": 0} for row in kept["position"]["history"]] for kept in (state, wanted)]
    assert histories[0] == histories[1]
    for table in ("issues.parquet", "regions.parquet"):
        assert pq.read_table(out / table).equals(pq.read_table(whole / table))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_is_refused_on_a_cpu(precision: str, data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    config = tiny.config(**{"train.precision": precision})
    with pytest.raises(RunError, match=f"{precision} needs a CUDA GPU.*--precision fp32"):
        train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    assert not (tmp_path / "run").exists()


def test_a_gpu_belongs_to_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_of_rank("cpu") == "cpu"
    with pytest.raises(RunError, match="--device cuda"):
        device_of_rank("cuda:0")
    with pytest.raises(RunError, match="2 processes, but there are"):
        device_of_rank("cuda")


def test_the_only_process_of_a_machine_has_a_gpu_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.set_device takes no other: several machines with one process each."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert [device_of_rank(name) for name in ("cuda", "cuda:3", "cpu")] == ["cuda:0", "cuda:3", "cpu"]


@given(st.integers(0, 200), st.integers(1, 17))
def test_shares_are_even_and_complete(count: int, ranks: int) -> None:
    shares = [share_of(count, rank, ranks) for rank in range(ranks)]
    assert [place for share in shares for place in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_world_of_one_has_nothing_to_tell() -> None:
    rows = torch.rand(3, 2)
    assert ALONE.gather(rows) is rows
    assert ALONE.total([1.5, 2]) == [1.5, 2]
    assert not ALONE.noted("anything")
    ALONE.barrier()


GLOO = "[/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4321. This may be"


@pytest.mark.parametrize(
    ("said", "told", "kind"),
    [
        (GLOO, r"another rank is gone \(Connection closed by peer \[127\.0\.0\.1\]:4321\): .*--resume", RunError),
        ("no such tensor", "^no such tensor$", RuntimeError),
    ],
)
def test_only_a_lost_connection_is_a_lost_rank(
    said: str, told: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(kind, match=told):
        Ranks(rank=0, world=2).total([1.0])


def test_a_killed_data_worker_is_named_and_costs_nothing(
    data: Path, tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config("plain", **{"model.freeze": "none", "train.batch_size": 3, "train.epochs": 2})
    whole = train(data, config, out=tmp_path / "whole", workers=0)
    step, steps = Plain.step, list[Phase]()
    others = {child.pid for child in multiprocessing.active_children()}  # that earlier tests have left

    def kill_a_worker(self: Plain, batch: BagBatch, phase: Phase) -> Step:
        steps.append(phase)
        if len(steps) == 8:  # in the second epoch
            workers = [child.pid for child in multiprocessing.active_children() if child.pid not in others]
            assert len(workers) == 2
            assert workers[0] is not None
            os.kill(workers[0], signal.SIGKILL)
            os.waitid(os.P_PID, workers[0], os.WEXITED | os.WNOWAIT)  # dead, and still torch's to find
        return step(self, batch, phase)

    with monkeypatch.context() as patch:
        patch.setattr(Plain, "step", kill_a_worker)
        with pytest.raises(DataError, match=r"data worker died .*--resume"):
            train(data, config, out=tmp_path / "run", workers=2)
    train(data, config, out=tmp_path / "run", workers=2, resume=True)
    must_be_the_same_run(tmp_path / "run", whole.path)
