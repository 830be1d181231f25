"""How far a training by two ranks ends from the same training by one, as a Markdown table.

    python benchmarks/ranks.py [--methods sl,somnet] [--images 10] [--seeds 0-2] [-- FLAGS OF SOMNET TRAIN]

Trains every method that ranks may share, at its defaults, on drawn pictures: by one process, and by two under torchrun,
on the CPU with one thread each. Tells the largest difference of any weight, key or target of the last checkpoint, the
same as a share of the largest number of its tensor, and the largest difference of any belief in a label and of any
label_score.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from somnet.benchmark.demo import parse_seeds
from somnet.data.toy_web.writer import write_demo
from somnet.methods.base import find_method
from somnet.methods.registry import METHODS
from somnet.runs.checkpoint import load_checkpoint
from somnet.runs.run_folder import RunFolder
from somnet.system.folders import LAST

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def train(data: Path, out: Path, flags: list[str], ranks: int) -> None:
    """A training in processes of its own."""
    words = [*(TORCHRUN if ranks == 2 else ()), "-m", "somnet", "train", str(data), "--out", str(out), *flags]
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        sys.exit(done.stdout)


def differences(one: Path, other: Path) -> tuple[float, ...]:
    """Of tensors, of tensors as a share of their largest number, of beliefs and of label scores."""
    ours, theirs = (load_checkpoint(run / LAST)[0] for run in (one, other))
    absolute, relative = 0.0, 0.0
    for name, tensor in ours.items():
        if name.startswith("method.") and tensor.is_floating_point() and tensor.numel():
            difference = float((tensor.double() - theirs[name].double()).abs().max())
            absolute = max(absolute, difference)
            relative = max(relative, difference / max(float(tensor.abs().max()), 1e-12))
    tables = [RunFolder(run).scores() for run in (one, other)]
    return absolute, relative, *(largest(tables, column) for column in ("belief", "label_score"))


def largest(tables: list[pa.Table], column: str) -> float:
    """The largest difference of a column."""
    one, other = (np.array(table[column].to_pylist(), float) for table in tables)
    return float(np.nanmax(np.abs(one - other)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(name for name in METHODS if find_method(name).divisible))
    parser.add_argument("--images", type=int, default=10, help="of each class")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("flags", nargs="*", help="for somnet train")
    arguments = parser.parse_args()
    print("| method | seed | largest difference of a weight | of its tensor | belief | label_score |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_demo(data, train_per_class=arguments.images, test_per_class=2)
        os.environ["SOMNET_CACHE"] = str(Path(folder) / "cache")
        for method in arguments.methods.split(","):
            for seed in parse_seeds(arguments.seeds):
                runs = [Path(folder) / f"{method}-{seed}-{ranks}" for ranks in (1, 2)]
                words = ["--method", method, "--seed", str(seed), "--workers", "0", "--device", "cpu"]
                for ranks, run in enumerate(runs, start=1):
                    train(data, run, [*words, *arguments.flags], ranks)
                found = " | ".join(f"{value:.1g}" for value in differences(*runs))
                print(f"| {method} | {seed} | {found} |", flush=True)


if __name__ == "__main__":
    main()
