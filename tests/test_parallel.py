"""Threads that run ahead: in order, never too far, and errors come through."""

import threading
import time
from collections.abc import Iterator

import pytest

from somnet.parallel import in_threads


def test_results_come_in_order_from_several_threads() -> None:
    names = set()

    def work(number: int) -> int:
        names.add(threading.current_thread().name)
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(in_threads(work, range(40), ahead=8)) == [number * number for number in range(40)]
    assert threading.current_thread().name not in names


def test_work_is_begun_only_a_little_ahead() -> None:
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
