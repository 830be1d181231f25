"""Progress as lines where there is no terminal."""

import errno
import io
import logging
import sys

import pytest
from rich.console import Console

from somnet.system import progress
from somnet.system.progress import ConsoleHandler, duration, track


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    """No terminal, a clock of our own, and every line recorded."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "console", Console(file=io.StringIO()))
    caplog.set_level(logging.INFO, logger="somnet")
    return clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (8.4, "8 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (100_000, "27 h 46 min"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_quick_work_says_one_line(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with track("reading", 3) as advance:
        for _ in range(3):
            advance()
    assert caplog.messages == ["reading: 3/3 done in 0 s"]


def test_long_work_says_speed_and_time_left(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with track("reading", 100) as advance:
        clock.now += 5
        advance(10)
        clock.now += 15
        advance(30, note="loss 1.5")
    assert caplog.messages[0] == "reading: 40/100, 2.0/s, 30 s left loss 1.5"


def test_what_goes_before_the_first_unit_is_not_taken_for_its_pace(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with track("training", 1000) as advance:
        clock.now += 100  # a method that prepares itself
        advance(1)
        clock.now += 10
        advance(100)
    assert caplog.messages[:2] == ["training: 1/1000 ", "training: 101/1000, 10.0/s, 1 min 30 s left "]


def test_lines_keep_their_distance(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with track("reading", 100) as advance:
        for _ in range(99):
            clock.now += 1
            advance()
    assert len(caplog.messages) == 9 + 1


def test_work_that_stops_half_way_says_how_far_it_came(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with track("reading", 10) as advance:
        advance(4)
    assert caplog.messages[-1].startswith("reading: 4/10")


def test_a_failure_is_not_called_done(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        with track("reading", 10) as advance:
            advance(4)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert not [message for message in caplog.messages if "done" in message]


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=120))
    with track("reading", 4) as advance:
        advance(4, note="loss 1.5")
    assert "reading" in screen.getvalue()
    assert "4/4" in screen.getvalue()
    assert "loss 1.5" in screen.getvalue()


class Ended(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("closed", [False, True])
def test_work_outlives_its_screen(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Ended()
    if closed:
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = ConsoleHandler()
    with track("training", 3) as advance:
        for _ in range(3):
            handler.emit(logging.makeLogRecord({"msg": "a line"}))
            advance(1)
