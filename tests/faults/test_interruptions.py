"""Kills, signals, full and read-only disks in every stage of a run: it can be resumed, and nothing was lost."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from somnet.runs.checkpoint import load_checkpoint
from somnet.system.folders import LAST
from tests.faults.conftest import Result, Training, Undisturbed
from tests.faults.disturbed import Ended, Fault, FullDisk, ReadOnly, Signal, TornWrite, draw_moments

STAGES = {"proposals", "begin", "features", "init-cnn", "init-memory", "joint", "scoring", "report"}
SECONDS_TO_STOP = 30  # 10 are promised; the machine of the tests may be busy
ENOUGH = 64  # MB

KILL = Signal(signal.SIGKILL)
HALF_WRITTEN = TornWrite(20_000)  # bytes: less than a checkpoint, more than any log
STOPS = (Signal(signal.SIGTERM), Signal(signal.SIGINT))


def by_turns(*faults: Fault) -> Callable[[str, int], Fault]:
    return lambda _, turn: faults[turn % len(faults)]


def go_through(training: Training, undisturbed: Undisturbed, chain: int, faults: Callable[[str, int], Fault]) -> int:
    """Meet a fault in every stage of one run; then finish it, and compare. Returns how many."""
    tried = 0
    for moment, fault in draw_moments(undisturbed.counts, chain, faults):
        ended = training.go_on(moment, fault)
        print(f"chain {chain}: {fault} at event {moment.event} of {moment.stage}: exit code {ended.code}")
        assert ended.seconds_left is not None, f"the moment never came:\n{ended.text}"
        must_be_told(ended, fault)
        if (training.out / LAST).exists():
            load_checkpoint(training.out / LAST)
        if isinstance(fault, FullDisk | ReadOnly):
            fault.undo()
        tried += 1
    ended = training.go_on()
    assert ended.code == 0, ended.text
    Result.of(training.out).must_equal(undisturbed.result)
    assert training.leftovers() == []
    return tried


def must_be_told(ended: Ended, fault: Fault) -> None:
    if fault in (KILL, HALF_WRITTEN):
        assert ended.code == -(signal.SIGKILL if fault == KILL else signal.SIGXFSZ), ended.text
        return
    assert "Traceback" not in ended.text, ended.text
    last = ended.text.strip().splitlines()[-1]
    if isinstance(fault, Signal):
        assert ended.code == 128 + fault.number, ended.text
        assert "stopped by " + fault.number.name in ended.text
        assert ended.seconds_left is not None
        assert ended.seconds_left < SECONDS_TO_STOP
    elif isinstance(fault, FullDisk | ReadOnly):
        reason = "No space left on device" if isinstance(fault, FullDisk) else "Permission denied"
        assert (ended.code, reason in last) == (2, True), ended.text
        assert last.startswith("error: ")
        assert str(fault.place) in last  # what could not be written


def test_all_stages_are_known(undisturbed: Undisturbed) -> None:
    assert {stage.partition("/")[0] for stage in undisturbed.counts} == STAGES
    inner = {"init-cnn/checkpoint", "init-memory/checkpoint", "joint/checkpoint"}
    assert inner <= undisturbed.counts.keys()


@pytest.mark.parametrize(
    "kills", [pytest.param(range(8), id="short"), pytest.param(range(8, 56), id="long", marks=pytest.mark.long)]
)
def test_killed_at_random_moments(kills: range, undisturbed: Undisturbed, tmp_path: Path) -> None:
    def kill(stage: str, _: int) -> Fault:
        return HALF_WRITTEN if stage.endswith("/checkpoint") else KILL

    tried = 0
    for chain in range(kills.start // len(STAGES), kills.stop // len(STAGES)):
        training = undisturbed.training(tmp_path / str(chain), tmp_path / "notes")
        tried += go_through(training, undisturbed, chain, kill)
    assert tried == len(kills)


@pytest.mark.parametrize(
    "chains", [pytest.param(range(1), id="short"), pytest.param(range(1, 6), id="long", marks=pytest.mark.long)]
)
def test_stopped_by_signals(chains: range, undisturbed: Undisturbed, tmp_path: Path) -> None:
    for chain in chains:
        training = undisturbed.training(tmp_path / str(chain), tmp_path / "notes")
        go_through(training, undisturbed, chain, by_turns(*STOPS))


@pytest.mark.parametrize(
    "chains", [pytest.param(range(1), id="short"), pytest.param(range(1, 6), id="long", marks=pytest.mark.long)]
)
def test_no_space_and_no_permission(
    chains: range, undisturbed: Undisturbed, small_disk: Callable[[int], Path], tmp_path: Path
) -> None:
    for chain in chains:
        place = small_disk(ENOUGH)
        training = undisturbed.training(place, tmp_path / "notes")
        go_through(training, undisturbed, chain, by_turns(FullDisk(place), ReadOnly(place)))
