"""What a clean validation split is worth: flags on judged crawls, without one and with some right images known.

    python -m benchmarks.clean_split ROOT --out DIR [--known 200] [--draws 2] [--sets crawl-meals,crawl-objects]

ROOT holds the photos (see field_data.py). Of the images that were judged to show the thing, some are drawn as the
split; what is flagged among the others is counted. Nothing is trained.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.field_data import CRAWLS, DEBATABLE, all_regions, right_labels, true_labels
from somnet.data.dataset import Part
from somnet.methods.label_evidence import RegionFeatures
from somnet.runs.doubt import choose_threshold
from somnet.runs.label_scores import Beside, judge
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory

COLUMNS = ("flagged", "noise of them", "debatable of them", "found of the noise")


def main() -> None:
    parser = argparse.ArgumentParser(description="What a clean validation split is worth.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=int, default=200)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--sets", default=",".join(data.name for data in CRAWLS))
    given = parser.parse_args()
    keep_memory()
    given.out.mkdir(parents=True, exist_ok=True)
    lines = [f"| | {' | '.join(f'{column}: without, with' for column in COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for data in (data for data in CRAWLS if data.name in given.sets.split(",")):
        config, part = data.training_images(given.root, given.out, seed=0)
        method = build_method(config, part.labels, len(part.index.classes)).eval()
        regions = all_regions(part, method.network, config)
        counts = np.sum([flags(part, regions, given.known, draw) for draw in range(given.draws)], axis=0)  # (2, 4)
        cells = [", ".join(text) for text in zip(*(shares(*row) for row in counts.tolist()), strict=True)]
        lines.append(f"| {data.name} | {' | '.join(cells)} |")
        (given.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print((given.out / "table.md").read_text(encoding="utf-8"))


def shares(flagged: int, noise: int, debatable: int, all_noise: int) -> tuple[str, str, str, str]:
    """The cells of a row."""
    of_flagged = (f"{100 * count / flagged:.0f} %" if flagged else "–" for count in (noise, debatable))
    first, second = of_flagged
    return str(flagged), first, second, f"{100 * noise / max(all_noise, 1):.0f} %"


def flags(part: Part, regions: RegionFeatures, known: int, seed: int) -> NDArray[np.int64]:
    """Flagged images, noise and debatable ones among them, and all noise (2, 4): without and with a clean split."""
    debatable = np.array([true == DEBATABLE for true in true_labels(part)])
    noise = ~right_labels(part) & ~debatable
    drawn = np.random.default_rng(seed).permutation(np.flatnonzero(~noise & ~debatable))[:known]
    rest = np.setdiff1d(np.arange(len(part)), drawn)
    order = np.concatenate([rest, drawn])
    train, right = (Part(part.index.take(rows), part.scan.take(rows), part.groups[rows]) for rows in (rest, drawn))

    def show() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        yield np.arange(len(order)), regions.take(order)

    def without() -> Iterator[tuple[NDArray[np.int64], RegionFeatures]]:
        yield np.arange(len(rest)), regions.take(rest)

    found = []
    for score in (judge(without, train, Beside(), seed).right, judge(show, train, Beside(right=right), seed).right):
        flagged = score < choose_threshold(score)
        found.append([flagged.sum(), (flagged & noise[rest]).sum(), (flagged & debatable[rest]).sum(), noise.sum()])
    return np.array(found, np.int64)


if __name__ == "__main__":
    main()
