"""The cores that this process may use, and threads that leave them to others while they wait."""

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

SPINS = 1000  # looks of a waiting thread before it sleeps, some 10 to 50 microseconds: about what waking it costs


def own_cores() -> int:
    """Cores that this process may keep busy: all that it may use, unless torchrun has started others beside it."""
    return max(1, cores_here() // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def cores_here() -> int:
    """Cores that this process may use: within a container or taskset they can be fewer than the machine has."""
    return max(1, math.ceil(min(_listed(), cpu_quota())))


def _listed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = Path("/")) -> float:
    """How many cores' time the control groups of this process grant it; infinite where they set no limit."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    return min((_quota_of(root / "sys/fs/cgroup", line) for line in groups), default=math.inf)


def _quota_of(mounted: Path, line: str) -> float:
    """Of a line `number:controllers:group`: the least of the group and of those above it."""
    _, controllers, group = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return math.inf
    base = mounted / "cpu" if controllers else mounted  # the first version of control groups names its controllers
    own = base / group.lstrip("/")
    return min(_quota_in(place) for place in (base, own, *own.parents) if place.is_relative_to(base))


def _quota_in(group: Path) -> float:
    """Microseconds of work in each period, over the period."""
    try:
        if (group / "cpu.max").exists():
            work, period = (group / "cpu.max").read_text().split()
        else:
            work, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(work) / int(period) if int(work) > 0 else math.inf
    except (OSError, ValueError):  # no limit is "max" in one version and -1 in the other; the root group has no file
        return math.inf


def share_the_machine(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have OpenMP's and OpenBLAS's threads sleep while they wait, and start no more of them than there are cores.

    Both read the environment when torch or numpy is loaded, so this has to come first. By default their threads spin
    for milliseconds: beside another busy process they then wait for one that is not running, and a training takes up
    to ten times as long. What the user has set stays.
    """
    if not environment.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment["GOMP_SPINCOUNT"] = str(SPINS)
    environment.setdefault("OPENBLAS_THREAD_TIMEOUT", "14")  # spins for 2 to the power of this in clock cycles
    if cores_here() < _listed():  # a quota, of which OpenMP knows nothing
        environment.setdefault("OMP_NUM_THREADS", str(cores_here()))
