"""Signals: remembered within a step, obeyed at once elsewhere, handed back at the end."""

import signal
import threading
from collections.abc import Iterator

import pytest

from somnet.errors import TrainingStopped
from somnet.system.signals import CONTINUE, deferred_signals, stopping_signals

EACH = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """The tests themselves may run under nohup, or in the background of a shell: then some signals are ignored."""
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, old in before.items():
        signal.signal(number, old)


@EACH
def test_a_deferred_signal_waits_for_the_check(number: signal.Signals, code: int) -> None:
    with deferred_signals() as flag:
        flag.check()  # nothing came yet
        signal.raise_signal(number)
        with pytest.raises(TrainingStopped, match=CONTINUE) as stopped:
            flag.check()
    assert stopped.value.exit_code == code
    assert number.name in str(stopped.value)


@EACH
def test_elsewhere_a_signal_stops_at_once(number: signal.Signals, code: int) -> None:
    with stopping_signals(), pytest.raises(TrainingStopped, match=CONTINUE) as stopped:
        signal.raise_signal(number)
    assert stopped.value.exit_code == code


def test_the_old_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stopping_signals():
        outer = signal.getsignal(signal.SIGINT)
        with deferred_signals():
            assert signal.getsignal(signal.SIGINT) != outer
        assert signal.getsignal(signal.SIGINT) == outer != before[0]
    with pytest.raises(ValueError, match="x"), stopping_signals():
        raise ValueError("x")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_thread_may_train_too() -> None:
    seen = []

    def work() -> None:
        with stopping_signals(), deferred_signals() as flag:
            flag.check()
            seen.append(flag.signal_number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


def test_what_nohup_has_set_aside_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_signals(), deferred_signals() as flag:
            signal.raise_signal(signal.SIGHUP)
            assert flag.signal_number is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
