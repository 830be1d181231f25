"""Work in threads and processes: in order, never too far ahead, nothing held too long, and errors come through."""

import signal
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from somnet.system.parallel import in_threads, on_all_cores


def test_results_come_in_order_from_several_threads() -> None:
    names = set()

    def work(number: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(in_threads(work, range(40), ahead=8)) == [number * number for number in range(40)]
    assert threading.current_thread().name not in names


def test_work_is_started_only_a_little_ahead() -> None:
    fetched: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(1000):
            fetched.append(number)
            yield number

    results = in_threads(lambda number: number, tasks(), ahead=5)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(fetched) == 3 + 5
    results.close()  # type: ignore[attr-defined]


def test_an_error_comes_through() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    results = in_threads(work, range(100), ahead=4)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


class Result:
    """What can be told to be gone."""


def make_result(_: int) -> Result:
    return Result()


@pytest.mark.parametrize("in_order", [True, False])
def test_results_of_processes_are_not_held(in_order: bool) -> None:
    chunks = on_all_cores(make_result, range(64), workers=1, in_order=in_order)
    seen = [weakref.ref(result) for _ in range(3) for result in next(chunks)]
    assert len(seen) == 48
    assert not any(result() for result in seen[:32])  # the last chunk may still be at hand
    assert len(list(chunks)) == 1


def test_a_closed_terminal_is_the_parents_to_handle() -> None:
    (found,) = on_all_cores(signal_handler, [signal.SIGHUP, signal.SIGINT], workers=1)
    assert found == [signal.SIG_IGN, signal.SIG_IGN]


def signal_handler(number: int) -> object:
    return signal.getsignal(number)
