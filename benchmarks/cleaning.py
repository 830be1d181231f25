"""What cleaning is worth: plain cross entropy on photos as they are, cleaned in each way, and with wrong images out.

    python -m benchmarks.cleaning ROOT --out DIR [--seeds 0-2] [--sets pasted,foreign,clean] [--policies drop,crop]

ROOT holds the photos (see field_data.py). The run that cleans is somnet's default method. All trainings have the
default settings; the test images are the same. DIR/table.md has the means. What is finished is not run again.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

import somnet
from benchmarks.field_data import FIELD, FieldSet
from somnet.benchmark.demo import parse_seeds
from somnet.cleaning.verdicts import Policy
from somnet.config import load_config
from somnet.data.noise import write_noisy
from somnet.data.sources import open_source
from somnet.system.files import csv_cell, display_name

RAW, TRUTH = "as they are", "truly wrong ones out"


def main() -> None:
    parser = argparse.ArgumentParser(description="What cleaning is worth.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--sets", default="pasted,pasted-flips,foreign,flips-40,clean")
    parser.add_argument("--policies", default="drop,crop,relabel")
    given = parser.parse_args()
    policies = given.policies.split(",")
    names = [RAW, *policies, TRUTH]
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for field in (field for field in FIELD if field.name in given.sets.split(",")):
        rows = [accuracies(given.root, given.out, field, seed, policies) for seed in parse_seeds(given.seeds)]
        lines.append(f"| {field.name} | " + " | ".join(mean_of(rows, name) for name in names) + " |")
        (given.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print((given.out / "table.md").read_text(encoding="utf-8"))


def mean_of(rows: Sequence[dict[str, float]], name: str) -> str:
    """Mean of what is right over the seeds, and of the gain over the raw data, paired by seed, with its error."""
    if name not in rows[0]:
        return "–"
    values = np.array([row[name] for row in rows])
    gains = values - np.array([row[RAW] for row in rows])
    error = f" ± {gains.std(ddof=1) / len(gains) ** 0.5:.1f}" if len(gains) > 1 else ""
    return f"{values.mean():.1f}" + ("" if name == RAW else f" ({gains.mean():+.1f}{error})")


def accuracies(root: Path, out: Path, field: FieldSet, seed: int, policies: Sequence[str]) -> dict[str, float]:
    """Top-1 in % of plain training on the images as they are, cleaned in each way, and without the wrong ones."""
    folder, source, recipe = out / f"{field.name}-{seed}", field.source(root, out / "sources"), field.recipe(root)
    raw = source if recipe is None else folder / "raw"
    if recipe is not None and not raw.exists():
        write_noisy(source, raw, recipe, seed=seed)
    scored = train(raw, folder / "scored", field, seed, somnet.Config().method)
    data = {RAW: raw}
    for policy in policies:
        data[policy] = folder / f"cleaned-{policy}"
        if not data[policy].exists():
            somnet.clean(scored, data[policy], somnet.CleaningRules(cast(Policy, policy)))
    images = open_source(raw).of_split("train")
    if images.table["true_label"].null_count < len(images):  # the truth is known
        data[TRUTH] = folder / "truth"
        if not data[TRUTH].exists():
            rules = somnet.CleaningRules(threshold=0.0, decisions=by_truth(raw, folder / "truth.csv"))
            somnet.clean(scored, data[TRUTH], rules)
    return {
        name: 100 * train(path, folder / f"plain-{path.name}", field, seed, "plain").summary["test"]["top1"]
        for name, path in data.items()
    }


def train(data: Path, out: Path, field: FieldSet, seed: int, method: str) -> somnet.Run:
    """A run, finished if it was interrupted."""
    config = load_config(flags={"method": method, "seed": seed, "model.imgsz": field.imgsz})
    return somnet.train(data, config, out=out, resume=True)


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
    main()
