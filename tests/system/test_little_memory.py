"""A bound on memory that the operating system keeps."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from somnet.system.memory import little_memory

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux alone keeps to it")


@linux
def test_no_more_than_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with little_memory(100_000_000):
        assert len(np.ones(2_000_000)) == 2_000_000  # 16 MB
        with pytest.raises(MemoryError):
            np.ones(50_000_000)  # 400 MB
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(np.ones(50_000_000)) == 50_000_000


@linux
def test_the_limit_of_the_user_stays() -> None:
    child = os.fork()
    if child == 0:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
        with little_memory(1 << 50):
            inside = resource.getrlimit(resource.RLIMIT_DATA)
        os._exit(inside != (1 << 40, hard))
    assert os.waitpid(child, 0)[1] == 0


def test_a_system_that_does_not_tell_sets_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("somnet.system.memory.STATUS", tmp_path / "none")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with little_memory(1):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
