"""A benchmark: methods x seeds on the same data with the same budget, each run in a process of its own.

DIR/runs/<method>-seed<N> are runs like any other, DIR/data what was made for them. After every run the results are
written anew: results.csv, table.md and plot.svg. A kill at any moment costs at most the last minutes of one run.
"""

import logging
import multiprocessing
import os
import resource
import signal
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from somnet.benchmark.comparison import Comparison, Result, chart, comparison_table, results_csv
from somnet.benchmark.demo import draw_toy_web
from somnet.benchmark.paper_tables import PLAIN, SOMNET, VARIANTS, Entry
from somnet.config import Config
from somnet.data.dataset import make_inputs, open_dataset
from somnet.data.noise import NoiseRecipe, write_noisy
from somnet.data.sources import absolute, open_source
from somnet.data.sources.manifest import find_manifest
from somnet.errors import ConfigError, DataError, RunError, SomnetError, TrainingStopped
from somnet.methods.registry import METHODS
from somnet.runs.run import DATA, SUMMARY, build_method, choose_device, worker_count
from somnet.system.allocator import keep_memory
from somnet.system.files import display_name, parse_json, write_json, write_text
from somnet.system.parallel import die_with_parent
from somnet.system.progress import duration
from somnet.system.ranks import Ranks, begun, device_of_rank, find_ranks, leave_ranks, quiet_ranks
from somnet.system.signals import StopFlag, deferred_signals, stopping_signals
from somnet.training.train import train

log = logging.getLogger("somnet")

BENCH, COSTS = "bench.json", "costs.json"  # what a benchmark was begun with; what a run has cost
TABLES = ("methods", "ablations", "parameters")
LOOK_SECONDS = 0.2  # between two looks at a child and at signals
LONGEST_ERROR = 2000  # letters that a child reports
ENTRIES = {name: Entry(name, name) for name in METHODS} | {
    figure.entry.name: figure.entry for table in VARIANTS.values() for figure in table
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
        """What it is run on, for people."""
        data = "the toy web" if self.data is None else _as_text(self.data)
        unset = asdict(NoiseRecipe())
        given = unset if self.noise is None else asdict(self.noise)
        noise = ", ".join(f"{name}={_as_text(value)}" for name, value in given.items() if value != unset[name])
        return f"{data} with {noise}" if noise else data

    def begun_with(self) -> dict[str, Any]:
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
        """Its figures, if it was finished with these settings and its costs are known."""
        summary, costs = _known(self.folder / SUMMARY), _known(self.folder / COSTS)
        if summary.get("config_hash") != self.config.hash() or "image_passes" not in costs:
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


def choose_entries(methods: str | None = None, tables: str = "methods") -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """What takes part, and which tables to show, from `all` or `a,b,c` and `ablations,methods`.

    The table of methods takes the methods given, by default all; methods given without it take part all the same.
    """
    shown = _names(tables, TABLES, "table")
    entries: list[Entry] = []
    if methods is not None or "methods" in shown:
        chosen = _names(methods, METHODS, "method") if methods not in (None, "all") else tuple(METHODS)
        entries = [ENTRIES[name] for name in chosen]
    for table in shown:
        entries += [figure.entry for figure in VARIANTS.get(table, ())]
    return tuple({entry.name: entry for entry in entries}.values()), shown


def _names(text: str | None, known: Sequence[str] | Mapping[str, object], kind: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",")))
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no {kind} '{name}': choose of {', '.join(known)}, separated by commas")
    return names


def run_bench(
    benchmark: Benchmark, out: Path, *, device: str = "auto", workers: int | None = None, resume: bool = False
) -> list[Result]:
    """Run what is not finished yet, and write the results after every run. Runs that failed are part of the results.

    Under torchrun the first rank makes the data, the ranks share the runs, and only the first one returns results.
    No tensor is computed in this process: a child that is forked while torch has threads could wait for them for ever.
    """
    ranks = find_ranks()
    trials = _trials(benchmark, out)
    with quiet_ranks(ranks), deferred_signals() as stop:
        if ranks.first:
            _check_free(benchmark, out, resume=resume or ranks.noted(begun(out)))
            write_json(out / BENCH, benchmark.begun_with())
            ranks.note(begun(out))
            done = _finished(trials)
            for seed in dict.fromkeys(trial.config.seed for trial in trials if trial not in done):
                log.info("data of seed %d", seed)
                if error := in_a_child(partial(_prepare, benchmark, out, seed, device, workers), stop):
                    raise SomnetError(error)
        ranks.barrier(stop.check)
        results, earlier = _finished(trials), _finished(_other_trials(benchmark, trials, out))
        ranks.barrier(stop.check)  # all have seen the same, and share the rest in the same way
        ahead = [trial for trial in trials if trial not in results]
        mine = ahead[ranks.rank :: ranks.world]
        for trial in mine:
            seed, left = trial.config.seed, _time_left(mine, results)
            log.info("run %d of %d: %s, seed %d%s", trials.index(trial) + 1, len(trials), trial.name, seed, left)
            error = in_a_child(partial(_train, trial, data_folder(benchmark, out, seed), device, workers), stop)
            results[trial] = _outcome(trial, error)
            ranks.note(_ended(trial, ranks), error or "")
            if ranks.first:
                results |= {other: found for other, found in _finished(trials).items() if other not in results}
                _report(results[trial])
                _write_results(benchmark, {**earlier, **results}, out)
        if not ranks.first:
            return []
        for trial in ahead:
            if trial not in mine:
                results[trial] = _outcome(trial, ranks.wait_for(_ended(trial, ranks), stop.check))
                _report(results[trial])
    _write_results(benchmark, {**earlier, **results}, out)
    return [results[trial] for trial in trials]


def _finished(trials: Sequence[Trial]) -> dict[Trial, Result]:
    return {trial: result for trial in trials if (result := trial.result()) is not None}


def _outcome(trial: Trial, error: str | None) -> Result:
    missing = error or "it left no results: --resume"
    return trial.result() or Result(trial.name, trial.config.seed, error=missing)


def _ended(trial: Trial, ranks: Ranks) -> str:
    """The note that a run has ended, after so many restarts."""
    return f"ended: {trial.folder.absolute()}, attempt {ranks.attempt}"


def _trials(benchmark: Benchmark, out: Path) -> list[Trial]:
    """All runs, seed by seed, so that early tables compare all methods."""
    names = set(benchmark.stands_for().values())
    known = {entry.name: entry for entry in (*benchmark.entries, SOMNET)}
    ordered = [entry for name, entry in known.items() if name in names]
    return [_trial(benchmark, entry, seed, out) for seed in benchmark.seeds for entry in ordered]


def _trial(benchmark: Benchmark, entry: Entry, seed: int, out: Path) -> Trial:
    return Trial(entry.name, benchmark.configure(entry, seed), out / "runs" / f"{entry.name}-seed{seed}")


def _other_trials(benchmark: Benchmark, trials: Sequence[Trial], out: Path) -> list[Trial]:
    """Runs that were begun in this folder with other methods or seeds than those asked for now."""
    asked = {trial.folder for trial in trials}
    found = []
    for folder in sorted((out / "runs").glob("*-seed*")):
        name, _, seed = folder.name.rpartition("-seed")
        if name in ENTRIES and seed.isdecimal() and folder not in asked:
            found.append(_trial(benchmark, ENTRIES[name], int(seed), out))
    return found


def _check_free(benchmark: Benchmark, out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds something else, or a benchmark that was not meant; nothing is written before."""
    if benchmark.data is not None:
        root = open_source(benchmark.data).root
        if out.resolve().is_relative_to(root.resolve()):
            raise RunError(f"{out} lies inside the data {root}, where it would be taken for images: give another --out")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: give another --out")
    if not out.exists() or not any(out.iterdir()):
        return
    try:
        before = _known(out / BENCH)
    except RunError:  # somebody else's file
        before = {}
    if not before:
        raise RunError(f"{out} exists and is no benchmark of somnet: give another --out")
    if not resume:
        raise RunError(f"{out} exists: add --resume to go on, or give another --out")
    if changed := [name for name, value in benchmark.begun_with().items() if before.get(name) != value]:
        raise RunError(
            f"{out} was begun with another {', '.join(changed)}: repeat what {out / BENCH} says, or give another --out"
        )


def _time_left(trials: Sequence[Trial], results: Mapping[Trial, Result]) -> str:
    """From what runs of the same method took, else from what any took."""
    known = [(result.method, result.seconds) for result in results.values() if result.seconds is not None]
    if not known:
        return ""
    of_any = [seconds for _, seconds in known]
    ahead = sum(
        statistics.fmean([seconds for name, seconds in known if name == trial.name] or of_any)
        for trial in trials
        if trial not in results
    )
    return f"; about {duration(ahead)} left"


def _report(result: Result) -> None:
    if result.error:
        log.error("%s, seed %d failed: %s", result.method, result.seed, result.error)
    elif result.top1 is not None and result.seconds is not None:
        took = duration(result.seconds)
        log.info("%s, seed %d: top-1 %.2f %% in %s", result.method, result.seed, 100 * result.top1, took)


def _write_results(benchmark: Benchmark, found: Mapping[Trial, Result], out: Path) -> None:
    """All that is known, seed by seed: also runs of methods and seeds that were asked for another time."""
    stands_for = benchmark.stands_for()
    methods = list(dict.fromkeys((*stands_for.values(), *(trial.name for trial in found))))
    seeds = sorted({*benchmark.seeds, *(trial.config.seed for trial in found)})
    results = sorted(found.values(), key=lambda result: (result.seed, methods.index(result.method)))
    comparison = Comparison(benchmark.title(), methods, seeds, results)
    write_text(out / "results.csv", results_csv(results))
    epochs = benchmark.config.train.epochs
    write_text(out / "table.md", comparison_table(comparison, benchmark.tables, stands_for, epochs=epochs))
    write_text(out / "plot.svg", chart(comparison))


# --- in the child


def _prepare(benchmark: Benchmark, out: Path, seed: int, device: str, workers: int | None) -> None:
    """Make the data of a seed, its boxes and feature maps, which are cached: no method pays for them."""
    keep_memory()
    config = benchmark.configure(PLAIN, seed)
    data = make_data(benchmark, out, seed, workers)
    found = open_dataset(data, config, workers)
    if found.test is None:
        raise DataError(f"{data} has no test images, so there is no accuracy to compare: add them under test/")
    device = device_of_rank(choose_device(device))
    network = build_method(config, found.train.labels, len(found.classes)).to(device).network
    for part in (found.train, found.test):
        make_inputs(part, network, config, device=device, workers=worker_count(workers))


def make_data(benchmark: Benchmark, out: Path, seed: int, workers: int | None = None) -> Path:
    """The data of a seed, drawn or made noisy unless it is there."""
    source, folder = benchmark.data, data_folder(benchmark, out, seed)
    if source is None:
        source = draw_toy_web(folder if benchmark.noise is None else out / "data" / f"toy-seed{seed}", seed)
    if benchmark.noise is not None and find_manifest(folder) is None:
        write_noisy(source, folder, benchmark.noise, seed=seed, workers=workers)
    return folder


def data_folder(benchmark: Benchmark, out: Path, seed: int) -> Path:
    """Where the data of a seed are. Noise with a seed of its own is the same for all runs on the same photos."""
    if benchmark.data is None:
        return out / "data" / f"seed{seed}"
    if benchmark.noise is None:
        return benchmark.data
    own = benchmark.noise.seed
    return out / "data" / f"seed{seed if own is None else own}"


def _train(trial: Trial, data: Path, device: str, workers: int | None) -> None:
    """Train, and leave what it cost in the run folder. The peak is the highest of all sessions of the run."""
    known = _known(trial.folder / COSTS)
    measured = not (trial.folder / SUMMARY).is_file()  # else it was killed before its costs were written
    try:
        run = train(data, trial.config, out=trial.folder, device=device, workers=workers, resume=True, report=False)
    finally:
        peak = known.get("peak_memory_mb")
        if measured:
            peak = max(peak or 0.0, peak_memory_mb())
        if (trial.folder / DATA).is_file():
            write_json(trial.folder / COSTS, {"peak_memory_mb": peak})
    passes = sum(phase.epochs * phase.passes for phase in run.method.plan())
    write_json(trial.folder / COSTS, {"peak_memory_mb": peak, "image_passes": round(passes, 6)})


def peak_memory_mb() -> float:
    """The most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _known(file: Path) -> dict[str, Any]:
    """What a JSON file says; nothing where there is none."""
    try:
        return dict(parse_json(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}): delete it, and --resume") from None


# --- processes


def in_a_child(work: Callable[[], None], stop: StopFlag) -> str | None:
    """Do some work in a process of its own; the error if it failed.

    A signal is handed on to the child, which saves what it has and ends; then it is obeyed here.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    stop.check()
    child = context.Process(target=_be_child, args=(work, sender, stop))
    child.start()
    sender.close()
    told = False
    while child.is_alive():
        child.join(LOOK_SECONDS)
        if stop.signal_number is not None and not told and child.is_alive():
            assert child.pid is not None
            os.kill(child.pid, stop.signal_number)
            told = True
    stop.check()
    if child.exitcode == 0:
        return None
    try:
        return receiver.recv_bytes().decode() if receiver.poll() else _how_it_died(child.exitcode)
    except EOFError:
        return _how_it_died(child.exitcode)
    finally:
        receiver.close()


def _how_it_died(code: int | None) -> str:
    how = f"exit code {code}" if code is None or code > 0 else signal.Signals(-code).name
    return f"its process died ({how}), killed from outside or out of memory: free some and --resume"


def _be_child(work: Callable[[], None], sender: "Connection[bytes, bytes]", stop: StopFlag) -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which hands it on once
    die_with_parent()
    leave_ranks()
    for handler in log.handlers:
        handler.setLevel(logging.WARNING)  # train.log has the rest
    try:
        with stopping_signals():
            stop.check()  # one that came before the handlers were ours
            work()
    except TrainingStopped as stopped:
        _tell(sender, str(stopped))
        sys.exit(stopped.exit_code)
    except SomnetError as error:
        _tell(sender, str(error))
        sys.exit(1)
    except Exception as error:
        _tell(sender, f"{type(error).__name__}: {error}")
        raise  # the traceback goes to the screen


def _tell(sender: "Connection[bytes, bytes]", message: str) -> None:
    sender.send_bytes(message[:LONGEST_ERROR].encode("utf-8", "backslashreplace"))
