"""From photos on disk to a trained default run with its report, beside a short script, as a Markdown table.

    python benchmarks/end_to_end.py PHOTOS [--photos 2000] [--rounds 3] [--before CHECKOUT]

PHOTOS has a folder per class, or such under train/. The script, below, is what people write today: it extracts timm
features of whole images, fits logistic regression in 5 folds and calls cleanlab. somnet looks at seven views of an
image, trains a network and writes a report. `--before` names another checkout of somnet, to see what a change has
gained. All take turns, with empty caches; seconds by the clock and of the processor, as medians. On a machine that has
other work those of the processor say more.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDS = 5
AT_ONCE = 32
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
HERE = Path(__file__).resolve().parents[1]


def script(data: Path) -> None:
    """Features of whole images, out-of-fold probabilities, label issues."""
    import cleanlab.filter
    import numpy as np
    import torch
    from PIL import Image
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    from somnet.config import ModelConfig
    from somnet.nn.backbones import Network

    files = sorted(data.glob("train/*/*"))
    labels = np.unique([file.parent.name for file in files], return_inverse=True)[1]
    network = Network(ModelConfig(), classes=2).eval()  # a timm model with its ImageNet weights, in torch
    features = []
    for start in range(0, len(files), AT_ONCE):
        images = (Image.open(file).convert("RGB").resize((224, 224)) for file in files[start : start + AT_ONCE])
        pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2)
        with torch.no_grad():
            features.append(network.image_features(network.prepare(pixels)).numpy())
    x = np.concatenate(features)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)
    found = cross_val_predict(LogisticRegression(max_iter=300), x, labels, cv=FOLDS, method="predict_proba")
    issues = cleanlab.filter.find_label_issues(labels, found)
    print(f"{len(files)} images, {int(issues.sum())} label issues", file=sys.stderr)


def gather(photos: Path, count: int, out: Path) -> int:
    """Copy so many of the photos to out/train/CLASS, the same ones every time; how many there are."""
    root = photos / "train" if (photos / "train").is_dir() else photos
    files = sorted(file for file in root.glob("*/*") if file.suffix.lower() in SUFFIXES)
    chosen = random.Random(0).sample(files, min(count, len(files)))
    for file in chosen:
        target = out / "train" / file.parent.name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)  # links that lead out of the data are not followed
    return len(chosen)


def timed(command: list[str], checkout: Path, scratch: Path) -> tuple[float, float]:
    """Seconds by the clock and of the processor of a command that begins with an empty cache."""
    with tempfile.TemporaryDirectory(dir=scratch) as empty:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "SOMNET_CACHE": f"{empty}/cache"}
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        ended = subprocess.run([*command, "--out", f"{empty}/run"], cwd=empty, env=environment, capture_output=True)
        clock, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise SystemExit(ended.stderr.decode())
        summary = Path(empty, "run", "summary.json")
        if summary.is_file():
            print(json.loads(summary.read_text())["seconds"], file=sys.stderr, flush=True)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="PHOTOS")
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--script", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.script:
        return script(arguments.data)
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "photos")
        count = gather(arguments.data, arguments.photos, data)
        train = [sys.executable, "-m", "somnet", "train", str(data)]
        commands = {
            "timm, logistic regression, cleanlab": ([sys.executable, __file__, str(data), "--script"], HERE),
            "somnet train": (train, HERE),
        }
        if arguments.before:
            commands["somnet train, before"] = (train, arguments.before.resolve())
        times: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
        for _ in range(arguments.rounds):
            for what, (command, checkout) in commands.items():
                times[what].append(timed(command, checkout, Path(name)))
                print(what, times[what][-1], file=sys.stderr, flush=True)
    first = [statistics.median(column) for column in zip(*next(iter(times.values())), strict=True)]
    print(f"| {count:,} photos | s | processor s | times the script's | processor time |")
    print("|---|---:|---:|---:|---:|")
    for what, measured in times.items():
        clock, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"| {what} | {clock:.0f} | {cpu:.0f} | {clock / first[0]:.1f} | {cpu / first[1]:.1f} |")


if __name__ == "__main__":
    main()
