"""Cores as the container allows, and threads that sleep while they wait."""

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from somnet.system import cores
from somnet.system.cores import SPINS, cores_here, cpu_quota, own_cores, share_the_machine


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A root with the control groups of this process."""
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000", "sys/fs/cgroup/a/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"sys/fs/cgroup/cpu.max": "200000 100000"}, 2),  # the container sees its own group as the root
        (
            "4:memory:/x\n1:cpu,cpuacct:/x\n0::/\n",
            {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        (
            "1:cpu:/\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            math.inf,
        ),
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "nonsense"}, math.inf),
    ],
)
def test_the_quota_is_that_of_the_narrowest_group(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float
) -> None:
    assert cpu_quota(machine(tmp_path, groups, files)) == expected


def test_a_system_without_control_groups_has_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) == math.inf


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 5), (1.5, 2), (0.2, 1), (64, 5)])
def test_cores_are_those_listed_and_granted(monkeypatch: pytest.MonkeyPatch, quota: float, expected: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 4, 5, 9})
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert cores_here() == expected


def test_ranks_share_the_cores_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 4, 5, 9})
    assert own_cores() == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert own_cores() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert own_cores() == 1


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: 0.5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    for user in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}, {"KMP_BLOCKTIME": "9"}):
        environment = {**user, "OMP_NUM_THREADS": "2", "OPENBLAS_THREAD_TIMEOUT": "20"}
        share_the_machine(environment)
        assert environment == {**user, "OMP_NUM_THREADS": "2", "OPENBLAS_THREAD_TIMEOUT": "20"}
    environment = {}
    share_the_machine(environment)
    assert environment["OMP_NUM_THREADS"] == "1"


OPENMP = """
import ctypes, sys
import somnet
assert "torch" not in sys.modules and "numpy" not in sys.modules
ctypes.CDLL(sys.argv[1])
"""


def test_openmp_hears_of_it() -> None:
    """Loaded after somnet, as torch loads it; it tells what it has read."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    found = sorted(Path(torch.origin).parent.glob("lib/libgomp*.so*"))
    if not found:
        pytest.skip("this torch comes with another OpenMP")
    asked = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"}
    environment = {name: value for name, value in os.environ.items() if name not in asked}
    told = subprocess.run(
        [sys.executable, "-c", OPENMP, str(found[0])],
        env={**environment, "OMP_DISPLAY_ENV": "VERBOSE"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in told
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in told
