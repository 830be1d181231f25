"""A benchmark: methods x seeds on the same data with the same budget, each run in a process of its own.

DIR/runs/<method>-seed<N> are runs like any other, DIR/data what was made for them. After every run the results are
rewritten: results.csv, table.md and plot.svg. A kill at any moment costs at most the last minutes of one run.
"""

import logging
import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from somnet.benchmark.child import in_a_child
from somnet.benchmark.comparison import Comparison, Result, chart, comparison_table, results_csv
from somnet.benchmark.demo import draw_toy_web
from somnet.benchmark.paper_tables import PLAIN
from somnet.benchmark.trials import COSTS, Benchmark, Trial, all_trials, data_folder, known_json, other_trials
from somnet.data.dataset import make_inputs, open_dataset, training_views
from somnet.data.noise import write_noisy
from somnet.data.sources import open_source
from somnet.data.sources.manifest import find_manifest
from somnet.errors import DataError, RunError, SomnetError
from somnet.methods.registry import section_named
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute, choose_device
from somnet.system.files import write_json, write_text
from somnet.system.folders import DATA, SUMMARY, refuse_inside, refuse_taken
from somnet.system.progress import duration
from somnet.system.ranks import Ranks, device_of_rank, find_ranks, quiet_ranks, started_note
from somnet.system.signals import deferred_signals
from somnet.training.train import train_without_report

log = logging.getLogger("somnet")

BENCH = "bench.json"  # what a benchmark was started with


def run_bench(
    benchmark: Benchmark, out: Path, *, device: str = "auto", workers: int | None = None, resume: bool = False
) -> list[Result]:
    """Run what is not finished yet, and write the results after every run. Runs that failed are part of the results.

    Under torchrun the first rank makes the data, the ranks share the runs, and only the first one returns results.
    No tensor is computed in this process: a child that is forked while torch has threads could wait for them for ever.
    """
    ranks = find_ranks()
    trials = all_trials(benchmark, out)
    with quiet_ranks(ranks), deferred_signals() as stop:
        if ranks.first:
            _check_free(benchmark, out, resume=resume or ranks.noted(started_note(out)))
            write_json(out / BENCH, benchmark.fixed_settings())
            ranks.note(started_note(out))
            done = _finished(trials)
            for seed in dict.fromkeys(trial.config.seed for trial in trials if trial not in done):
                log.info("data of seed %d", seed)
                if error := in_a_child(partial(_prepare, benchmark, out, seed, device, workers), stop):
                    raise SomnetError(error)
        ranks.barrier(stop.check)
        results, earlier = _finished(trials), _finished(other_trials(benchmark, trials, out))
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
                results |= _finished([other for other in trials if other not in results])
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


def _check_free(benchmark: Benchmark, out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds something else, or a benchmark that was not meant; nothing is written before."""
    if benchmark.data is not None:
        refuse_inside(out, open_source(benchmark.data).root)
    try:
        before = known_json(out / BENCH) if out.is_dir() else {}
    except RunError:  # somebody else's file
        before = {}
    refuse_taken(out, "a somnet benchmark", ours=bool(before), meant=resume, how="--resume to continue")
    fixed = benchmark.fixed_settings()
    if before and (changed := [name for name in {**before, **fixed} if _value(before, name) != _value(fixed, name)]):
        raise RunError(
            f"{out} was started with another {', '.join(changed)}: use what {out / BENCH} says, or give another --out"
        )


def _value(settings: Mapping[str, Any], name: str) -> Any:
    """What was set; a section that is not mentioned has its defaults."""
    kind = None if name in settings else section_named(name)
    return settings.get(name) if kind is None else kind().model_dump(mode="json")


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


def _write_results(benchmark: Benchmark, finished: Mapping[Trial, Result], out: Path) -> None:
    """All that is known, seed by seed: also runs of methods and seeds that were asked for another time."""
    stands_for = benchmark.stands_for()
    methods = list(dict.fromkeys((*stands_for.values(), *(trial.name for trial in finished))))
    seeds = sorted({*benchmark.seeds, *(trial.config.seed for trial in finished)})
    results = sorted(finished.values(), key=lambda result: (result.seed, methods.index(result.method)))
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
    compute = Compute(device_of_rank(choose_device(device)), workers)
    dataset = open_dataset(data, config, compute)
    if dataset.test is None:
        raise DataError(f"{data} has no test images, so there is no accuracy to compare: add them under test/")
    network = build_method(config, dataset.train.labels, len(dataset.classes)).to(compute.device).network
    for part in (dataset.train, dataset.test):
        make_inputs(part, network, config.model.imgsz, compute)
    training_views(dataset.train, network, config, compute)


def make_data(benchmark: Benchmark, out: Path, seed: int, workers: int | None = None) -> Path:
    """The data of a seed, drawn or made noisy unless it is there."""
    source, folder = benchmark.data, data_folder(benchmark, out, seed)
    if source is None:
        source = draw_toy_web(folder if benchmark.noise is None else out / "data" / f"toy-seed{seed}", seed)
    if benchmark.noise is not None and find_manifest(folder) is None:
        write_noisy(source, folder, benchmark.noise, seed=seed, workers=workers)
    return folder


def _train(trial: Trial, data: Path, device: str, workers: int | None) -> None:
    """Train, and leave what it cost in the run folder. The peak is the highest of all sessions of the run."""
    known = known_json(trial.folder / COSTS)
    measured = not (trial.folder / SUMMARY).is_file()  # else it was killed before its costs were written
    try:
        run = train_without_report(data, trial.config, trial.folder, device=device, workers=workers)
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
