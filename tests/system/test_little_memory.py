"""A bound on memory that the operating system keeps."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from somnet.system.memory import little_memory

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux alone keeps to it")


NO_MORE = """
before = resource.getrlimit(resource.RLIMIT_DATA)
with little_memory(100_000_000):
    assert len(np.ones(2_000_000)) == 2_000_000  # 16 MB
    try:
        np.ones(50_000_000)  # 400 MB
    except MemoryError:
        pass
    else:
        raise AssertionError("more than is allowed")
assert resource.getrlimit(resource.RLIMIT_DATA) == before
assert len(np.ones(50_000_000)) == 50_000_000
"""
USERS_LIMIT = """
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, hard))
with little_memory(1 << 50):
    assert resource.getrlimit(resource.RLIMIT_DATA) == (1 << 40, hard)
assert resource.getrlimit(resource.RLIMIT_DATA) == (1 << 40, hard)
"""


def must_run(program: str) -> None:
    """In a process of its own: what earlier tests have freed and kept here would count as memory that is there."""
    head = "import resource\nimport numpy as np\nfrom somnet.system.memory import little_memory\n"
    done = subprocess.run([sys.executable, "-c", head + program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@linux
def test_no_more_than_is_allowed() -> None:
    must_run(NO_MORE)


@linux
def test_the_limit_of_the_user_stays() -> None:
    must_run(USERS_LIMIT)


def test_a_system_that_does_not_tell_sets_no_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("somnet.system.memory.STATUS", tmp_path / "none")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with little_memory(1):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
