"""What cleaning is worth: plain cross entropy on the toy web as it is, cleaned, and with its truly wrong images out.

    python benchmarks/cleaning.py --out DIR [--seeds 0-2] [--policy drop]

The run that cleans is somnet's default method. All trainings have the default settings; the test images are the same.
An interrupted benchmark continues where it was. Fails if a limit is missed.
"""

import argparse
import csv
import statistics
import sys
from pathlib import Path

import somnet
from somnet.benchmark.demo import draw_toy_web, parse_seeds
from somnet.cleaning.verdicts import Policy
from somnet.data.sources import open_source
from somnet.system.files import csv_cell, display_name

LEAST_GAIN, MOST_LOSS = 8.0, 3.0  # points over the raw data, and below the truly clean data


def main() -> int:
    parser = argparse.ArgumentParser(description="What cleaning is worth.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--policy", choices=("drop", "crop", "relabel"), default="drop")
    arguments = parser.parse_args()
    rows = [accuracies(arguments.out, seed, arguments.policy) for seed in parse_seeds(arguments.seeds)]
    raw, cleaned, truth = ([row[place] for row in rows] for place in range(3))
    print("| plain cross entropy on | top-1 % | by seed |\n| --- | ---: | --- |")
    for name, values in (("the raw toy web", raw), (f"cleaned ({arguments.policy})", cleaned), ("truly clean", truth)):
        print(f"| {name} | {statistics.fmean(values):.1f} | {', '.join(f'{value:.1f}' for value in values)} |")
    gain = statistics.fmean(cleaned) - statistics.fmean(raw)
    loss = statistics.fmean(truth) - statistics.fmean(cleaned)
    print(f"\ngain {gain:.1f} (at least {LEAST_GAIN:.0f}), below truly clean {loss:.1f} (at most {MOST_LOSS:.0f})")
    return 0 if gain >= LEAST_GAIN and loss <= MOST_LOSS else 1


def accuracies(out: Path, seed: int, policy: Policy) -> tuple[float, float, float]:
    """Top-1 in % of plain training on raw, cleaned and truly clean data."""
    folder = out / f"seed{seed}"
    raw = draw_toy_web(folder / "raw", seed)
    scored = train(raw, folder / "scored", seed, somnet.Config().method)
    cleaned, truly_clean = folder / f"cleaned-{policy}", folder / "truth"
    if not cleaned.exists():
        somnet.clean(scored, cleaned, somnet.CleaningRules(policy))
    if not truly_clean.exists():
        rules = somnet.CleaningRules(threshold=0.0, decisions=by_truth(raw, folder / "truth.csv"))
        somnet.clean(scored, truly_clean, rules)
    top1 = [
        100 * train(data, folder / f"plain-{data.name}", seed, "plain").summary["test"]["top1"]
        for data in (raw, cleaned, truly_clean)
    ]
    return top1[0], top1[1], top1[2]


def train(data: Path, out: Path, seed: int, method: str) -> somnet.Run:
    return somnet.train(data, somnet.Config(method=method, seed=seed), out=out, resume=True)


def by_truth(data: Path, file: Path) -> Path:
    """Decisions that keep what is right and drop what is wrong."""
    train_images = open_source(data).of_split("train")
    given = [train_images.classes[label] for label in train_images.labels()]
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("file_name", "decision", "label"))
        columns = (train_images.column("file_name"), given, train_images.column("true_label"))
        for name, label, true_label in zip(*columns, strict=True):
            rows.writerow((csv_cell(display_name(name)), "keep" if label == true_label else "drop", ""))
    return file


if __name__ == "__main__":
    sys.exit(main())
