"""The learning rate of each entry, chosen by one rule for all, from nothing but noisy training images.

With a seed that is not reported, a share of the training images is held back, the same of each class, copies of a
picture together. Each entry is trained on the others at every rate, and measured on those held back with the labels
they were given. The highest accuracy wins; of equals, the lower rate. No test image is opened.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from somnet.benchmark.comparison import Result
from somnet.benchmark.trials import RATE, Benchmark, RateSearch, Trial, known_json
from somnet.config import Config
from somnet.data.dataset import need_training, scan_together
from somnet.data.duplicates import group_duplicates
from somnet.data.location import bring
from somnet.data.sources import open_source
from somnet.data.sources.manifest import find_manifest, write_manifest
from somnet.errors import ConfigError, DataError
from somnet.methods.base import find_method
from somnet.system.compute import Compute
from somnet.system.files import write_json
from somnet.training.loop import DIVERGED

CHOICES = "rates.json"
AUTO = "auto"
DEFAULT_RATES = (0.003, 0.01, 0.03, 0.1)


def parse_rates(text: str) -> tuple[float, ...]:
    """Learning rates from `0.003,0.01`, lowest first, each once; `auto` are the default ones."""
    if text.strip() == AUTO:
        return DEFAULT_RATES
    try:
        rates = tuple(sorted({float(item) for item in text.split(",")}))
        for rate in rates:
            Config().with_settings({RATE: rate})
    except (ValueError, ConfigError):
        raise ConfigError(
            f"cannot read the rates '{text}': write {AUTO}, or numbers above 0, as in 0.01,0.03"
        ) from None
    return rates


def check_search(search: RateSearch, seeds: Sequence[int]) -> None:
    """Refuse a search with a seed that is reported: its noise would be seen twice."""
    if search.seed in seeds:
        raise ConfigError(f"seed {search.seed} is one of those that are reported: give another --rate-seed")


# --- what is held back


def held_back_folder(out: Path, search: RateSearch) -> Path:
    """Where the training images are of which some are held back."""
    return out / "data" / f"held-back-seed{search.seed}"


def hold_back(
    labels: NDArray[np.int64], groups: NDArray[np.int64], share: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which images (n,) are held back: that share of each class, at least one of two, and all of a group or none.

    `groups` (n,) are of duplicates, -1 for none. A group too large for what is left of a class is not held back.
    """
    pictures = np.where(groups < 0, np.arange(len(labels)), len(labels) + groups)
    counts = np.bincount(labels)
    left = np.where(counts > 1, np.maximum(1, np.round(share * counts)), 0).astype(int)  # to be held back, by class
    held = np.zeros(len(labels), bool)
    order = np.argsort(pictures, kind="stable")
    members = np.split(order, np.unique(pictures[order], return_index=True)[1][1:])
    for number in rng.permutation(len(members)):
        of_class = np.bincount(labels[members[number]], minlength=len(left))
        if (of_class <= left).all():
            held[members[number]] = True
            left -= of_class
    return held


def write_held_back(data: Path, folder: Path, search: RateSearch, config: Config, compute: Compute) -> None:
    """The training images of some data as a data set of their own: those held back are its test images.

    The manifest is written last: where it is present, the folder is complete. What is true stays behind.
    """
    if find_manifest(folder) is not None:
        return
    listed = open_source(data, follow_links=config.follow_links)
    need_training(listed, data)
    train = listed.of_split("train")
    scanned = scan_together(train, config.proposals, compute)
    readable = scanned.readable()
    index, scan = train.take(readable), scanned.take(readable)
    groups = group_duplicates(scan.keys, scan.hashes)
    labels = index.labels()
    if len(labels) == 0 or not (held := hold_back(labels, groups, search.held_back, _generator(search))).any():
        raise DataError(f"{data} has too few training images to hold some back: leave out --rates")
    names = [f"{row:06d}{PurePath(os.fsdecode(name)).suffix}" for row, name in enumerate(index.column("file_name"))]
    for location, name in zip(index.locations(), names, strict=True):
        (folder / name).unlink(missing_ok=True)  # of an attempt that was killed
        bring(location, folder / name)
    splits = np.where(held, "test", "train")
    rows = zip(names, (index.classes[label] for label in labels), splits.tolist(), strict=True)
    write_manifest(folder, ((name, label, split, "", "") for name, label, split in rows))


def _generator(search: RateSearch) -> np.random.Generator:
    return np.random.default_rng((search.seed, *b"held back"))


# --- trials and choices


def searched_names(benchmark: Benchmark) -> list[str]:
    """The entries whose rate is searched: those that use one, and do not set it themselves."""
    return [
        entry.name
        for entry in benchmark.distinct_entries()
        if RATE not in entry.settings and find_method(entry.method).uses_rate
    ]


def rate_trials(benchmark: Benchmark, search: RateSearch, out: Path) -> list[Trial]:
    """A run of each searched entry at each rate."""
    names = set(searched_names(benchmark))
    return [
        Trial(
            entry.name,
            benchmark.configure(entry, search.seed).with_settings({RATE: rate, "clean_val": False}),
            out / "rates" / f"{entry.name}-lr{rate:g}",
            f"rate {rate:g}",
        )
        for entry in benchmark.distinct_entries()
        for rate in search.rates
        if entry.name in names
    ]


def choose_rate(accuracies: Mapping[float, float | None]) -> float:
    """The rate with the highest accuracy; of equals, the lower one. None is a run that diverged: below all others."""
    return min(accuracies, key=lambda rate: (1.0 if (known := accuracies[rate]) is None else -known, rate))


def write_choices(search: RateSearch, results: Mapping[Trial, Result], out: Path) -> None:
    """Choose the rate of each entry whose trials have all come to an end, and add it to rates.json.

    A trial that diverged has come to its end; one that died for another reason has not, and --resume tries it again.
    """
    choices = dict(known_json(out / CHOICES).get("entries", {}))
    for name in dict.fromkeys(trial.name for trial in results):
        own = {trial.config.train.lr: result for trial, result in results.items() if trial.name == name}
        if any(result.top1 is None and DIVERGED not in result.error for result in own.values()):
            continue
        accuracies = {rate: own[rate].top1 for rate in search.rates}
        chosen = choose_rate(accuracies)
        choices[name] = {"rate": chosen, "accuracies": {f"{rate:g}": top1 for rate, top1 in accuracies.items()}}
    write_json(out / CHOICES, {"rule": _rule(search), "entries": choices})


def _rule(search: RateSearch) -> dict[str, Any]:
    measured = "top-1 on the training images held back, with the labels they were given; of equals, the lower rate"
    return {**asdict(search), "rates": list(search.rates), "measured": measured}


def read_choices(out: Path) -> dict[str, float]:
    """The rates that were chosen in a folder, by entry."""
    entries = known_json(out / CHOICES).get("entries", {})
    return {name: float(choice["rate"]) for name, choice in entries.items()}
