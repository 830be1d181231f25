"""Asking glibc to keep its memory."""

import ctypes
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from somnet.system.allocator import keep_memory


def test_the_three_settings_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[int, int] = {}

    def mallopt(name: int, value: int) -> int:
        calls[name] = value
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert keep_memory()
    assert calls == {-3: 2**31 - 1, -1: 2**31 - 1, -2: 2**28}


def test_a_refusal_is_told_and_the_others_are_still_made(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def mallopt(name: int, value: int) -> int:
        calls.append(name)
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert not keep_memory()
    assert len(calls) == 3


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_another_system_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert not keep_memory()


def test_another_libc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not keep_memory()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_glibc_agrees() -> None:
    command = "from somnet.system.allocator import keep_memory; assert keep_memory()"
    subprocess.run([sys.executable, "-c", command], check=True)
