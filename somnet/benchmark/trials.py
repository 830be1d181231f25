"""What a benchmark compares, and on what: methods with their settings, seeds, data and noise, and a run for each."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from somnet.benchmark.comparison import BASELINE, Mistakes, Result
from somnet.benchmark.entries import ENTRIES, method_entry, parse_entries
from somnet.benchmark.paper_tables import SOMNET, VARIANTS, Entry
from somnet.config import Config, load_config
from somnet.data.noise import NoiseRecipe
from somnet.data.sources import absolute
from somnet.errors import ConfigError, RunError
from somnet.methods.base import find_method
from somnet.methods.registry import METHODS, is_trusted
from somnet.system.files import display_name, parse_json
from somnet.system.folders import CONFIG, METRICS, SUMMARY, TEST_WRONG

COSTS = "costs.json"  # what a run has cost
TABLES = ("methods", "ablations", "parameters")
RATE = "train.lr"
CONTROLS = "controls"  # of bench.json: entries with settings of their own


@dataclass(frozen=True)
class RateSearch:
    """How the learning rate of each entry is chosen (docs/benchmark.md)."""

    rates: tuple[float, ...]
    seed: int = 1000  # of the trials; not one that is reported
    held_back: float = 0.2  # share of the training images that the trials are measured on


@dataclass(frozen=True)
class Benchmark:
    """What is compared, and on what."""

    data: Path | None  # None: the demo's toy web, drawn for each seed
    entries: Sequence[Entry]
    seeds: Sequence[int]
    config: Config  # of all runs; method and seed are set for each
    noise: NoiseRecipe | None = None
    tables: Sequence[str] = ()  # of the paper, to be shown beside
    baseline: str = BASELINE  # the entry that gains are over
    search: RateSearch | None = None  # None: train.lr is the same for all
    chosen: Mapping[str, float] = field(default_factory=dict)  # learning rates that were searched, by entry

    def configure(self, entry: Entry, seed: int) -> Config:
        """The config of a run."""
        rate = {RATE: self.chosen[entry.name]} if entry.name in self.chosen else {}
        return self.config.with_settings({**entry.settings, **rate, "method": entry.method, "seed": seed})

    def stands_for(self) -> dict[str, str]:
        """Under which name each entry is run: equal settings are run once."""
        known = (SOMNET, *self.entries)
        prints = {
            entry.name: self.config.with_settings({**entry.settings, "method": entry.method}).hash() for entry in known
        }  # before any rate is chosen: what is equal shares that, too
        names = {prints[entry.name]: entry.name for entry in reversed(known)}
        return {entry.name: names[prints[entry.name]] for entry in self.entries}

    def distinct_entries(self) -> list[Entry]:
        """What is run, in order."""
        names = set(self.stands_for().values())
        known = {entry.name: entry for entry in (*self.entries, SOMNET)}
        return [entry for name, entry in known.items() if name in names]

    def controls(self) -> dict[str, dict[str, Any]]:
        """The entries with settings of their own, as bench.json keeps them."""
        own = [entry for entry in self.entries if entry.name not in ENTRIES and entry.name != entry.method]
        return {entry.name: {"method": entry.method, "settings": dict(entry.settings)} for entry in own}

    def title(self) -> str:
        """What it is run on, as text to read."""
        data = "the toy web" if self.data is None else _as_text(self.data)
        unset = asdict(NoiseRecipe())
        given = unset if self.noise is None else asdict(self.noise)
        noise = ", ".join(f"{name}={_as_text(value)}" for name, value in given.items() if value != unset[name])
        return f"{data} with {noise}" if noise else data

    def fixed_settings(self) -> dict[str, Any]:
        """All that must stay the same when it is resumed; methods and seeds may be added."""
        noise = None if self.noise is None else {name: _absolute(value) for name, value in asdict(self.noise).items()}
        settings = self.config.model_dump(mode="json", exclude={"method", "seed"})
        search = {} if self.search is None else {"rates": {**asdict(self.search), "rates": list(self.search.rates)}}
        return {"data": _absolute(self.data), "noise": noise, **search, **settings}


def _as_text(value: object) -> str:
    return display_name(os.fsencode(value.resolve().name)) if isinstance(value, Path) else str(value)


def _absolute(value: object) -> object:
    return display_name(os.fsencode(absolute(value))) if isinstance(value, Path) else value


@dataclass(frozen=True)
class Trial:
    """One run of a benchmark."""

    name: str
    config: Config
    folder: Path
    what: str = ""  # it is, to be told apart from others of its name: `seed 0`

    def result(self) -> Result | None:
        """Its results, if it was finished with these settings and its costs are known."""
        summary, costs = known_json(self.folder / SUMMARY), known_json(self.folder / COSTS)
        if not summary or "image_passes" not in costs or not self._has_these_settings():
            return None
        return Result(
            method=self.name,
            seed=self.config.seed,
            top1=summary["test"]["top1"],
            top5=summary["test"]["top5"],
            first_phase_top1=first_phase_top1(self.folder / METRICS),
            auroc=summary["noise"]["belief_auroc"],
            best_iou=summary["regions"]["best_iou"],
            image_passes=costs["image_passes"],
            trunk_passes=costs.get("trunk_passes"),
            rate=self.config.train.lr if find_method(self.config.method).uses_rate else None,
            seconds=summary["seconds"]["total"],
            peak_memory_mb=costs["peak_memory_mb"],
        )

    def mistakes(self) -> Mistakes | None:
        """What it got wrong of the test images, if that is known."""
        file = self.folder / TEST_WRONG
        try:
            with file.open(newline="", encoding="utf-8") as stream:
                wrong = frozenset(row["file_name"] for row in csv.DictReader(stream))
        except FileNotFoundError:  # of a run that was tested on nothing, or before such files were written
            return None
        except (OSError, KeyError, ValueError, csv.Error) as error:
            raise RunError(f"{file} cannot be read ({error}): delete it") from None
        return Mistakes(known_json(self.folder / SUMMARY)["test"]["n"], wrong)

    def _has_these_settings(self) -> bool:
        """By the rule of --resume."""
        return (self.folder / CONFIG).is_file() and load_config(self.folder / CONFIG).hash() == self.config.hash()


def first_phase_top1(metrics: Path) -> float | None:
    """Top-1 at the end of the first phase, as it was logged; None where there is one phase, or nothing was tested."""
    try:
        rows = [dict(parse_json(line)) for line in metrics.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{metrics} cannot be read ({error}): delete it") from None
    tested = [row for row in rows if isinstance(row.get("test/top1"), float)]
    if len({row.get("phase") for row in tested}) < 2:
        return None
    return float([row for row in tested if row.get("phase") == tested[0].get("phase")][-1]["test/top1"])


def choose_entries(methods: str | None = None, tables: str | None = None) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """What takes part, and which tables to show, from `all` or `a,b,name=c:setting=1` and `ablations,methods`.

    The table of methods takes the methods given, by default all; methods given without it take part anyway. Without
    tables all methods take part, and the paper's figures, which are of other data, are not shown.
    """
    shown = () if tables is None else _names(tables, TABLES, "table")
    entries: list[Entry] = []
    if methods is not None or not shown or "methods" in shown:
        entries = [*parse_entries(",".join(METHODS) if methods in (None, "all") else str(methods))]
    for table in shown:
        entries += [published.entry for published in VARIANTS.get(table, ())]
    return tuple({entry.name: entry for entry in entries}.values()), shown


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",")))


def _names(text: str, known: Sequence[str], kind: str) -> tuple[str, ...]:
    names = _split(text)
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {kind} '{name}': choose from {', '.join(known)}, separated by commas")
    return names


def all_trials(benchmark: Benchmark, out: Path) -> list[Trial]:
    """All runs, seed by seed, so that early tables compare all methods."""
    entries = benchmark.distinct_entries()
    return [trial_of(benchmark, entry, seed, out) for seed in benchmark.seeds for entry in entries]


def trial_of(benchmark: Benchmark, entry: Entry, seed: int, out: Path) -> Trial:
    """The run of an entry with a seed."""
    folder = out / "runs" / f"{entry.name}-seed{seed}"
    return Trial(entry.name, benchmark.configure(entry, seed), folder, f"seed {seed}")


def other_trials(
    benchmark: Benchmark, trials: Sequence[Trial], out: Path, controls: Mapping[str, Entry] | None = None
) -> list[Trial]:
    """Runs that were started in this folder with other methods, `controls` or seeds than those asked for now."""
    known_entries = {**ENTRIES, **(controls or {})}
    asked = {trial.folder for trial in trials}
    others = []
    for folder in sorted((out / "runs").glob("*-seed*")):
        name, _, seed = folder.name.rpartition("-seed")
        known = known_entries.get(name) or (method_entry(name) if is_trusted(name) else None)
        if known and seed.isdecimal() and folder not in asked:
            others.append(trial_of(benchmark, known, int(seed), out))
    return others


def known_controls(before: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries with settings of their own that bench.json tells of; none whose method a file may not choose."""
    told = before.get(CONTROLS)
    entries = {}
    for name, control in told.items() if isinstance(told, dict) else ():
        if isinstance(control, dict) and isinstance(control.get("settings"), dict):
            method = str(control.get("method"))
            if is_trusted(method):
                entries[name] = Entry(name, method, control["settings"])
    return entries


def data_folder(benchmark: Benchmark, out: Path, seed: int) -> Path:
    """Where the data of a seed are. Noise with a seed of its own is the same for all runs on the same photos."""
    if benchmark.data is None:
        return out / "data" / f"seed{seed}"
    if benchmark.noise is None:
        return benchmark.data
    own = benchmark.noise.seed
    return out / "data" / f"seed{seed if own is None else own}"


def known_json(file: Path) -> dict[str, Any]:
    """What a JSON file says; nothing where there is none."""
    try:
        return dict(parse_json(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}): delete it, and --resume") from None
