"""What a benchmark compares, and on what: methods with their settings, seeds, data and noise, and a run for each."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from somnet.benchmark.comparison import Result
from somnet.benchmark.paper_tables import SOMNET, VARIANTS, Entry
from somnet.config import Config, load_config
from somnet.data.noise import NoiseRecipe
from somnet.data.sources import absolute
from somnet.errors import ConfigError, RunError
from somnet.methods.registry import METHODS, is_trusted, trust
from somnet.system.files import display_name, parse_json
from somnet.system.folders import CONFIG, SUMMARY

COSTS = "costs.json"  # what a run has cost
TABLES = ("methods", "ablations", "parameters")
ENTRIES = {name: Entry(name, name) for name in METHODS} | {
    published.entry.name: published.entry for table in VARIANTS.values() for published in table
}


@dataclass(frozen=True)
class Benchmark:
    """What is compared, and on what."""

    data: Path | None  # None: the demo's toy web, drawn for each seed
    entries: Sequence[Entry]
    seeds: Sequence[int]
    config: Config  # of all runs; method and seed are set for each
    noise: NoiseRecipe | None = None
    tables: Sequence[str] = ("methods",)  # of the paper, to be shown beside

    def configure(self, entry: Entry, seed: int) -> Config:
        """The config of a run."""
        return self.config.with_settings({**entry.settings, "method": entry.method, "seed": seed})

    def stands_for(self) -> dict[str, str]:
        """Under which name each entry is run: equal settings are run once."""
        names = {self.configure(entry, 0).hash(): entry.name for entry in reversed((SOMNET, *self.entries))}
        return {entry.name: names[self.configure(entry, 0).hash()] for entry in self.entries}

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
        return {"data": _absolute(self.data), "noise": noise, **settings}


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
            auroc=summary["noise"]["auroc"],
            best_iou=summary["regions"]["best_iou"],
            image_passes=costs["image_passes"],
            seconds=summary["seconds"]["total"],
            peak_memory_mb=costs["peak_memory_mb"],
        )

    def _has_these_settings(self) -> bool:
        """By the rule of --resume."""
        return (self.folder / CONFIG).is_file() and load_config(self.folder / CONFIG).hash() == self.config.hash()


def choose_entries(methods: str | None = None, tables: str = "methods") -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """What takes part, and which tables to show, from `all` or `a,b,c` and `ablations,methods`.

    The table of methods takes the methods given, by default all; methods given without it take part anyway.
    """
    shown = _names(tables, TABLES, "table")
    entries: list[Entry] = []
    if methods is not None or "methods" in shown:
        chosen = tuple(METHODS) if methods in (None, "all") else _split(methods)
        entries = [_entry(name) for name in chosen]
    for table in shown:
        entries += [published.entry for published in VARIANTS.get(table, ())]
    return tuple({entry.name: entry for entry in entries}.values()), shown


def _entry(name: str) -> Entry:
    """A method at its own settings: ours, or somebody else's."""
    trust(name)  # an unknown one is refused
    return Entry(name, name)


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
    names = set(benchmark.stands_for().values())
    known = {entry.name: entry for entry in (*benchmark.entries, SOMNET)}
    ordered = [entry for name, entry in known.items() if name in names]
    return [trial_of(benchmark, entry, seed, out) for seed in benchmark.seeds for entry in ordered]


def trial_of(benchmark: Benchmark, entry: Entry, seed: int, out: Path) -> Trial:
    """The run of an entry with a seed."""
    return Trial(entry.name, benchmark.configure(entry, seed), out / "runs" / f"{entry.name}-seed{seed}")


def other_trials(benchmark: Benchmark, trials: Sequence[Trial], out: Path) -> list[Trial]:
    """Runs that were started in this folder with other methods or seeds than those asked for now."""
    asked = {trial.folder for trial in trials}
    others = []
    for folder in sorted((out / "runs").glob("*-seed*")):
        name, _, seed = folder.name.rpartition("-seed")
        known = ENTRIES.get(name) or (_entry(name) if is_trusted(name) else None)
        if known and seed.isdecimal() and folder not in asked:
            others.append(trial_of(benchmark, known, int(seed), out))
    return others


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
