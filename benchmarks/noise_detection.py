"""Which labels are wrong: label_score beside the scores and tools that people have, on the same frozen features.

    python -m benchmarks.noise_detection ROOT --out DIR [--seeds 0-4] [--sets flips-40,foreign]

ROOT holds the photos (see field_data.py). Nothing is trained. DIR/scores.csv has a row for each data set, seed and
score, DIR/table.md the means. cleanlab's Datalab sees what its users give it: out-of-fold predictions of a logistic
regression on features of whole images, and these features.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from cleanlab import Datalab
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score
from sklearn.neighbors import NearestNeighbors

from benchmarks.field_data import CRAWLS, DEBATABLE, FIELD, all_regions, right_labels, true_labels
from somnet.benchmark.demo import parse_seeds
from somnet.config import Config
from somnet.data.bags import BagBatches, each_image_once
from somnet.data.dataset import FORWARD_IMAGES, Part, make_inputs
from somnet.data.loading import load
from somnet.methods.label_evidence import ask
from somnet.methods.logistic import best_out_of_fold, deal_folds
from somnet.nn.backbones import Network
from somnet.runs.doubt import choose_threshold
from somnet.runs.label_scores import score_labels
from somnet.runs.metrics import auroc
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute

OURS = "label_score"
WORST = (50, 100, 200)
BINS = 10  # of the calibration error
ISSUES = ("label", "outlier", "near_duplicate")  # of Datalab
NOT_HERE = ("pasted", "pasted-test", "plantdoc")
DATA = {data.name: data for data in (*CRAWLS, *FIELD) if data.name not in NOT_HERE}


@dataclass(frozen=True)
class Scored:
    """A score of n images, low is bad."""

    name: str
    score: NDArray[np.float64]
    seconds: float
    flagged: NDArray[np.bool_] | None = None  # what the tool itself calls wrong
    probability: bool = False  # whether the score claims to be one
    suggested: NDArray[np.bool_] | None = None  # where it names another class
    rightly: NDArray[np.bool_] | None = None  # where that is what the image shows

    def of(self, rows: NDArray[np.bool_]) -> "Scored":
        """The score of some of the images."""
        flagged, suggested, rightly = (
            None if said is None else said[rows] for said in (self.flagged, self.suggested, self.rightly)
        )
        return replace(self, score=self.score[rows], flagged=flagged, suggested=suggested, rightly=rightly)


def main() -> None:
    parser = argparse.ArgumentParser(description="Which labels are wrong, by label_score and by others.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--sets", default=",".join(DATA))
    given = parser.parse_args()
    keep_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in given.sets.split(","):
        for seed in parse_seeds(given.seeds):
            rows += list(measure(given.root, given.out, name, seed))
            write_csv(given.out / "scores.csv", rows)
            write_table(given.out / "table.md", rows)
    print((given.out / "table.md").read_text(encoding="utf-8"))


def measure(root: Path, out: Path, name: str, seed: int) -> Iterator[dict[str, object]]:
    """All scores of one data set."""
    config, part = DATA[name].training_images(root, out, seed)
    compute, classes, right = Compute(), part.index.classes, right_labels(part)
    method = build_method(config, part.labels, len(classes)).eval()
    features = whole_features(part, method.network, config.model.imgsz, compute)
    began = time.monotonic()
    scores = score_labels(method, part, config, compute)
    ours = scores.right.astype(np.float64)
    suggested = scores.suggested >= 0
    rightly = np.array([*classes, ""])[scores.suggested] == np.array([true or "" for true in true_labels(part)])
    mine = Scored(OURS, ours, time.monotonic() - began, ours < choose_threshold(ours), True, suggested, rightly)
    alone = witnesses(part, method.network, config)
    counted = np.array([true != DEBATABLE for true in true_labels(part)])
    for scored in (mine, *alone, *others(features, part.labels, len(classes), seed)):
        yield {"set": name, "seed": seed, "score": scored.name, **figures(scored.of(counted), right[counted])}


def witnesses(part: Part, network: Network, config: Config) -> Iterator[Scored]:
    """Each of the witnesses that label_score hears, alone: what is gained by weighing them?"""
    labels, began = part.labels, time.monotonic()
    regions = all_regions(part, network, config)
    evidence = ask(regions, labels, len(part.index.classes), config.seed).hear(regions, np.arange(len(labels)))
    seconds = time.monotonic() - began
    for name, said in zip(("belief", "best region", "prototypes", "neighbours"), evidence, strict=True):
        yield Scored(f"{name} alone", said[np.arange(len(labels)), labels].astype(np.float64), seconds)


def whole_features(part: Part, network: Network, side: int, compute: Compute) -> NDArray[np.float16]:
    """Features (n, F) of whole images."""
    inputs = make_inputs(part, network, side, compute)
    batches = BagBatches(each_image_once(part.labels), FORWARD_IMAGES, inputs, None, seed=None)
    with torch.no_grad():
        features = [network.image_features(batch.images).half().numpy() for batch in load(batches, workers=0)]
    return np.concatenate(features)


def others(features: NDArray[np.float16], labels: NDArray[np.int64], classes: int, seed: int) -> Iterator[Scored]:
    """What else one can compute from the features in a few lines."""
    began = time.monotonic()
    _, p = best_out_of_fold(features, labels, classes, deal_folds(labels, 5, seed))
    spent = time.monotonic() - began
    own = p[np.arange(len(labels)), labels]
    yield Scored("out-of-fold regression", own, spent, probability=True)
    unit = features.astype(np.float32)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    yield from datalab(unit, labels, p, spent)
    began = time.monotonic()
    means = np.stack([unit[labels == one].sum(axis=0) for one in range(classes)])
    rest = means[labels] - unit
    cosine = (unit * rest).sum(axis=1) / np.maximum(np.linalg.norm(rest, axis=1), 1e-9)
    yield Scored("cosine to class mean", cosine, time.monotonic() - began)
    began = time.monotonic()
    near = NearestNeighbors(n_neighbors=min(51, len(unit)), metric="cosine").fit(unit).kneighbors(unit)[1][:, 1:]
    yield Scored("50 neighbours", (labels[near] == labels[:, None]).mean(axis=1), time.monotonic() - began)


def datalab(
    features: NDArray[np.float32], labels: NDArray[np.int64], p: NDArray[np.float64], seconds: float
) -> Iterator[Scored]:
    """cleanlab's Datalab: each kind of issue alone, and whatever is a label issue or an outlier; found in one go."""
    began = time.monotonic()
    present, numbers = np.unique(labels, return_inverse=True)  # it wants a picture of each class
    shares = p[:, present] / p[:, present].sum(axis=1, keepdims=True)
    lab = Datalab(data={"label": numbers}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=shares, features=features, issue_types={kind: {} for kind in ISSUES})
    issues, spent = lab.get_issues(), seconds + time.monotonic() - began
    score = {kind: issues[f"{kind}_score"].to_numpy().astype(np.float64) for kind in ISSUES}
    flagged = {kind: issues[f"is_{kind}_issue"].to_numpy() for kind in ISSUES}
    for kind in ISSUES:
        yield Scored(f"Datalab, {kind.replace('_', ' ')}", score[kind], spent, flagged[kind])
    either = flagged["label"] | flagged["outlier"]
    yield Scored("Datalab, label or outlier", np.minimum(score["label"], score["outlier"]), spent, either)


def figures(scored: Scored, right: NDArray[np.bool_]) -> dict[str, float | None]:
    """How good a score is."""
    wrong, worst = ~right, np.argsort(scored.score, kind="stable")
    known = bool(wrong.any())
    found: dict[str, float | None] = {
        "auroc": auroc(scored.score, right) if known else None,
        "average precision": float(average_precision_score(wrong, -scored.score)) if known else None,
        **{f"precision at {count}": float(wrong[worst[:count]].mean()) if known else None for count in WORST},
        "seconds": scored.seconds,
    }
    if scored.flagged is not None:
        count = int(scored.flagged.sum())
        found["flagged"] = count / len(right)
        found["flag precision"] = float(wrong[scored.flagged].mean()) if count else None
        found["flag recall"] = float(scored.flagged[wrong].mean()) if known else None
    if scored.suggested is not None and scored.rightly is not None:
        found["suggested"] = int(scored.suggested.sum())
        found["suggested rightly"] = int(scored.rightly[scored.suggested].sum()) if known else None
    if scored.probability:
        found["calibration error"] = calibration_error(scored.score, right)
    return found


def calibration_error(score: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Mean distance of score and share of right labels, over bins of the score."""
    place = np.minimum((score * BINS).astype(int), BINS - 1)
    gaps = [
        abs(score[place == one].mean() - right[place == one].mean()) * (place == one).mean() for one in np.unique(place)
    ]
    return float(np.sum(gaps))


FIGURES = ("auroc", "average precision", *(f"precision at {count}" for count in WORST), "flagged", "flag precision")
FIGURES += ("flag recall", "suggested", "suggested rightly", "calibration error", "seconds")


def write_csv(file: Path, rows: list[dict[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, ("set", "seed", "score", *FIGURES))
        table.writeheader()
        table.writerows(rows)


def write_table(file: Path, rows: list[dict[str, object]]) -> None:
    """AUROC of every score on every data set, then all figures of each score; means over seeds."""
    sets, names = (list(dict.fromkeys(str(row[key]) for row in rows)) for key in ("set", "score"))
    lines = ["AUROC of wrong labels, mean over seeds:", "", "| | " + " | ".join([*sets, "mean"]) + " |"]
    lines.append("|---" * (len(sets) + 2) + "|")
    for name in names:
        means = [mean(rows, one, name, "auroc") for one in sets]
        known = [value for value in means if value is not None]
        lines.append(f"| {name} | " + " | ".join(map(text, [*means, float(np.mean(known)) if known else None])) + " |")
    for name in names:
        lines += ["", f"{name}:", "", "| | " + " | ".join(FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
        lines += [
            f"| {one} | " + " | ".join(text(mean(rows, one, name, key)) for key in FIGURES) + " |" for one in sets
        ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def mean(rows: list[dict[str, object]], one: str, name: str, key: str) -> float | None:
    values = [row[key] for row in rows if row["set"] == one and row["score"] == name and row.get(key) is not None]
    return float(np.mean(np.array(values, np.float64))) if values else None


def text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
