"""What fifty decisions of a person are worth: chosen by us, drawn at random, or the lowest scores.

    python -m benchmarks.review ROOT --out DIR [--seeds 0-2] [--sets flips-10,foreign,crawl-meals]

ROOT holds the photos (see field_data.py). A simulated reviewer, who knows the truth, keeps right labels, replaces those
that are another class's, drops what shows none, and leaves the debatable ones of a crawl undecided. Then all scores are
computed again. Average precision and AUROC of wrong labels are taken among the images that nobody has judged by any of
the choices, the same for all, and of all images, where the judged ones have the score 1 or 0. What is flagged is
counted among the images that were not proposed; what is found of the wrong labels was flagged, or judged by the
reviewer. Debatable images count only as such. Nothing is trained. DIR/review.csv has a row for each choice.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score

from benchmarks.field_data import CRAWLS, DEBATABLE, FIELD, all_regions, right_labels, true_labels
from somnet.benchmark.demo import parse_seeds
from somnet.data.dataset import Part
from somnet.data.decisions import DROPPED, Decision, with_decisions
from somnet.methods.label_evidence import RegionFeatures
from somnet.runs.doubt import choose_threshold
from somnet.runs.label_scores import Beside, LabelScores, judge
from somnet.runs.metrics import auroc
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.files import display_name

COUNT = 50
SETS = "flips-10,flips-40,foreign,near-classes,cifar-9"
SEEN = ("set", "seed", "choice", "judged", "judged wrong", "wrong")
FIGURES = (
    *SEEN,
    "flagged",
    "flagged wrong",
    "flagged debatable",
    "found",
    "rest ap",
    "rest auroc",
    "all ap",
    "all auroc",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What fifty decisions of a person are worth.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--sets", default=SETS)
    given = parser.parse_args()
    keep_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "review.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, FIGURES)
        table.writeheader()
        for name in given.sets.split(","):
            for seed in parse_seeds(given.seeds):
                for row in measure(given.root, given.out, name, seed):
                    table.writerow(row)
                    print(*(f"{value:.4f}" if isinstance(value, float) else value for value in row.values()))
                stream.flush()


def measure(root: Path, out: Path, name: str, seed: int) -> Iterator[dict[str, object]]:
    """All choices on one data set."""
    data = next(data for data in (*FIELD, *CRAWLS) if data.name == name)
    config, part = data.training_images(root, out, seed)
    network = build_method(config, part.labels, len(part.index.classes)).eval().network
    regions = all_regions(part, network, config)
    before = scores_after(part, regions, np.zeros(0, np.int64), seed)
    first = before.right.astype(np.float64)
    choices = {
        "none": np.zeros(0, np.int64),
        "chosen": before.telling[:COUNT],
        "random": np.random.default_rng((seed, *b"review")).permutation(len(part))[:COUNT],
        "lowest": np.argsort(first, kind="stable")[:COUNT],
    }
    right, debatable, rest = right_labels(part), debatable_rows(part), np.ones(len(part), bool)
    for rows in choices.values():
        rest[rows] = False
    for choice, proposed in choices.items():
        rows = proposed[~debatable[proposed]]
        score = first.copy()
        after = scores_after(part, regions, rows, seed)
        free = np.setdiff1d(np.arange(len(part)), rows)
        place = places(part, rows)
        score[free] = after.right[[place[row] for row in free.tolist()]]
        everything = score.copy()
        everything[rows] = right[rows]
        wrong = {
            "judged": len(rows),
            "judged wrong": int((~right[rows]).sum()),
            "wrong": int((~right & ~debatable).sum()),
        }
        flags = flagged(score, proposed, np.stack([~right & ~debatable, debatable]))
        flags["found"] = (flags["flagged wrong"] + wrong["judged wrong"]) / max(wrong["wrong"], 1)
        counted, left = ~debatable, (rest & ~debatable)[~debatable]
        ranks = figures(score[counted], everything[counted], right[counted], left)
        yield {"set": name, "seed": seed, "choice": choice, **wrong, **flags, **ranks}


def debatable_rows(part: Part) -> NDArray[np.bool_]:
    """Which images (n,) no figure counts."""
    return np.array([true == DEBATABLE for true in true_labels(part)])


def flagged(score: NDArray[np.float64], proposed: NDArray[np.int64], kinds: NDArray[np.bool_]) -> dict[str, float]:
    """How many images are flagged that were not proposed, and of which of two kinds (2, n): wrong, debatable."""
    free = np.setdiff1d(np.arange(len(score)), proposed)
    chosen = free[score[free] < choose_threshold(score[free])]
    wrong, debatable = kinds[:, chosen].sum(axis=1).tolist()
    return {"flagged": len(chosen), "flagged wrong": wrong, "flagged debatable": debatable}


def dropped_rows(part: Part, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those that show none of the classes."""
    true = true_labels(part)
    return np.array([row for row in np.sort(rows).tolist() if true[row] not in (None, *part.index.classes)], np.int64)


def places(part: Part, rows: NDArray[np.int64]) -> dict[int, int]:
    """Where the images that are not dropped are among those that are left."""
    left = np.setdiff1d(np.arange(len(part)), dropped_rows(part, rows))
    return {row: place for place, row in enumerate(left.tolist())}


def scores_after(part: Part, regions: RegionFeatures, rows: NDArray[np.int64], seed: int) -> LabelScores:
    """The scores of the images that are left when a person has judged some rows."""
    true, right, names = true_labels(part), right_labels(part), part.index.column("file_name")
    gone = set(dropped_rows(part, rows).tolist())
    decisions = {
        display_name(names[row]): Decision("keep")
        if right[row]
        else Decision("drop")
        if row in gone
        else Decision("relabel", true[row])
        for row in rows.tolist()
    }
    index = with_decisions(part.index, decisions)
    away = np.array([split == DROPPED for split in index.column("split")], bool)
    train, dropped = (
        Part(index.take(some), part.scan.take(some), part.groups[some])
        for some in (np.flatnonzero(~away), np.flatnonzero(away))
    )
    order = np.concatenate([np.flatnonzero(~away), np.flatnonzero(away)])

    def show() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        yield np.arange(len(order)), regions.take(order)

    return judge(show, train, Beside(dropped if away.any() else None), seed)


def figures(
    score: NDArray[np.float64], everything: NDArray[np.float64], right: NDArray[np.bool_], rest: NDArray[np.bool_]
) -> dict[str, float]:
    """How well wrong labels are found, among the rest and among all images."""
    return {
        "rest ap": float(average_precision_score(~right[rest], -score[rest])),
        "rest auroc": float(auroc(score[rest], right[rest]) or 0.0),
        "all ap": float(average_precision_score(~right, -everything)),
        "all auroc": float(auroc(everything, right) or 0.0),
    }


if __name__ == "__main__":
    main()
