"""The demo: plain, somnet and the default method on the toy web, a table, and pictures of data, memory and bags."""

import logging
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from somnet.config import SEEDS, Config
from somnet.data.toy_web.writer import write_demo
from somnet.errors import ConfigError, RunError, TrainingStopped
from somnet.report.pictures import draw_data, draw_run
from somnet.runs.run import Run
from somnet.system.files import LOCK, write_json
from somnet.system.folders import ISSUES_CSV, SUMMARY, refuse_taken
from somnet.system.locks import one_writer
from somnet.system.signals import AGAIN
from somnet.training.train import train

log = logging.getLogger("somnet")

METHODS = ("plain", "somnet", Config().method)  # the baseline, the paper, and the default
MOST_SEEDS = 1000  # of a range: more is a typo


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `0,1,2`, from `0-4`, or from both; each once."""
    seeds: dict[int, None] = {}
    try:
        for item in text.split(","):
            first, dash, last = item.partition("-")
            low, high = int(first), int(last if dash else first)
            if not 0 <= high - low < MOST_SEEDS or high >= SEEDS:
                raise ValueError
            seeds |= dict.fromkeys(range(low, high + 1))
    except ValueError:
        raise ConfigError(f"cannot read the seeds '{text}': write numbers from 0 on, as in 0,1,2 or 0-4") from None
    return tuple(seeds)


def run_demo(out: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Draw the data, train, print the table, write summary.json and the pictures; finished runs are kept."""
    refuse_taken(out, "a somnet demo", ours=lambda: any((out / "data").glob("seed*")), meant=True, how="--resume")
    with one_writer(out / LOCK, out):
        return _run_demo(out, seeds)


def _run_demo(out: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for seed in seeds:
        data = draw_toy_web(out / "data" / f"seed{seed}", seed)
        for method in METHODS:
            config = Config(method=method, seed=seed)
            folder = out / "runs" / f"{method}-seed{seed}"
            try:
                results.append(train(data, config, out=folder, resume=True).summary)
            except TrainingStopped as stopped:
                raise TrainingStopped(f"stopped, what is done is kept: {AGAIN}", stopped.exit_code - 128) from None
            except RunError as error:
                raise RunError(
                    f"{folder} was written by another version ({error}): delete {out}, or give another --out"
                ) from None
    write_json(out / SUMMARY, {"results": results})
    shown = Run(out / "runs" / f"somnet-seed{seeds[0]}")
    pictures = [*draw_data(out / "data" / f"seed{seeds[0]}", out), *draw_run(shown, out)]
    print_table(results)
    console = Console()
    console.print(f"\npictures: {', '.join(str(picture) for picture in pictures)}", soft_wrap=True)
    console.print(f"scores of every image: {shown.path / ISSUES_CSV}; results: {out / SUMMARY}", soft_wrap=True)
    return results


def draw_toy_web(folder: Path, seed: int) -> Path:
    """The toy web of a seed, drawn unless it is there."""
    if not (folder / "metadata.csv").is_file():
        write_demo(folder, seed=seed)
    return folder


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """Means over the seeds, one row per method. Seconds leave out boxes and feature maps, which are cached for all."""
    table = Table(
        "method",
        "top-1 %",
        "AUROC of label noise",
        "IoU of best ROI",
        "IoU of image",
        "seconds",
        box=None,
        pad_edge=False,
    )
    for method in dict.fromkeys(result["method"] for result in results):
        own = [result for result in results if result["method"] == method]
        table.add_row(
            method,
            _mean([100 * result["test"]["top1"] for result in own], 1),
            _mean([result["noise"]["auroc"] for result in own], 3),
            _mean([result["regions"]["best_iou"] for result in own], 3),
            _mean([result["regions"]["image_iou"] for result in own], 3),
            _mean([_own_seconds(result["seconds"]) for result in own], 0),
        )
    Console().print(table)


def _own_seconds(seconds: Mapping[str, float]) -> float:
    return seconds["total"] - seconds["propose"] - seconds["features"]


def _mean(values: Sequence[float], digits: int) -> str:
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"
