"""What `somnet plan` and the first lines of a training say that it takes, beside what it takes, as a Markdown table.

    python -m benchmarks.estimates PHOTOS [PHOTOS ...] [--photos 600] [--methods somnet+ plain somnet]

PHOTOS has a folder per class under train/, and perhaps test/; of larger sets so many training photos are taken. One
process, one thread, an empty cache. All is in seconds of the processor, also what the estimates are made of, as a
machine that has other work tells little by its clock. Stages as in summary.json. Fails if an estimate of all is off
by more than the limit.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.end_to_end import HERE, gather

LIMIT = 1.5
UNITS = {"s": 1, "min": 60, "h": 3600}


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited_for.ru_utime + waited_for.ru_stime


def work(verb: str, data: Path, method: str, out: Path) -> None:
    """In a process of its own: what is said, and for a training what it took."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})  # one, and of several runs at once not the same
    time.monotonic = processor_seconds
    from somnet import Config, train
    from somnet.runs.estimate import plan_training

    config = Config().with_settings({"method": method})
    began = processor_seconds()
    if verb == "plan":
        print(json.dumps(plan_training(config, data)))
    else:
        train(data, config, out=out, workers=0)
        print(json.dumps(processor_seconds() - began))


def asked(verb: str, data: Path, method: str, out: Path) -> object:
    """The same, for the one who measures."""
    command = [sys.executable, "-m", "benchmarks.estimates", str(data), "--verb", verb]
    command += ["--methods", method, "--out", str(out)]
    environment = {**os.environ, "SOMNET_CACHE": str(out.parent / "cache"), "OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run(command, env=environment, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)


def told(lines: Sequence[str]) -> dict[str, float]:
    """Seconds of each stage that lines tell: `training: 12 s (cpu)`."""
    found = (re.match(r"([a-z ]+): (?:about )?([\d.]+) (s|min|h)(?: (\d+) s)?", line) for line in lines)
    return {one[1]: float(one[2]) * UNITS[one[3]] + float(one[4] or 0) for one in found if one}


def measured(data: Path, method: str, scratch: Path) -> tuple[dict[str, float], float, dict[str, float], float]:
    """What plan says of the stages, what the training says first, what the stages took, and what all took."""
    with tempfile.TemporaryDirectory(dir=scratch) as empty:
        out = Path(empty, "run")
        lines = asked("plan", data, method, out)
        took = asked("train", data, method, out)
        assert isinstance(lines, list)
        assert isinstance(took, float)
        print(*lines, sep="\n", file=sys.stderr)
        seconds = json.loads((out / "summary.json").read_text())["seconds"]
        log = [line.partition(" INFO ")[2] for line in (out / "train.log").read_text().splitlines()]
    return told(lines), told(log)["estimate"], seconds, took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", metavar="PHOTOS")
    parser.add_argument("--photos", type=int, default=600)
    parser.add_argument("--methods", nargs="+", default=["somnet+", "plain", "somnet"])
    parser.add_argument("--verb", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.verb:
        work(arguments.verb, arguments.data[0], arguments.methods[0], arguments.out)
        return 0
    print("| photos, method | plan says, s | it took | ratio | the training says | from there it took | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    worst = 1.0
    with tempfile.TemporaryDirectory() as scratch:
        for data in arguments.data:
            some = Path(scratch, data.name)
            count = gather(data, arguments.photos, some)
            if (data / "test").is_dir():
                shutil.copytree(data / "test", some / "test")
            for method in arguments.methods:
                plan, first, seconds, took = measured(some, method, Path(scratch))
                rest = took - seconds["propose"]
                print(plan, seconds, file=sys.stderr)
                print(
                    f"| {count:,} of {data.name}, {method} | {plan['all']:.0f} | {took:.0f} | {plan['all'] / took:.2f} "
                    f"| {first:.0f} | {rest:.0f} | {first / rest:.2f} |",
                    flush=True,
                )
                ratios = (plan["all"] / took, first / rest)
                worst = max(worst, *ratios, *(1 / ratio for ratio in ratios))
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
