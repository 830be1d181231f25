"""A benchmark: methods x seeds on the same data with the same budget, each run in a process of its own.

DIR/runs/<method>-seed<N> are runs like any other, DIR/data what was made for them. After every run the results are
rewritten: results.csv, table.md and plot.svg. A kill at any moment costs at most the last minutes of one run.
"""

import contextlib
import glob
import logging
import resource
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from somnet.benchmark.child import in_a_child
from somnet.benchmark.comparison import BASELINE, Comparison, Result, chart, comparison_table, results_csv
from somnet.benchmark.demo import draw_toy_web
from somnet.benchmark.paper_tables import PLAIN
from somnet.benchmark.rates import (
    check_search,
    held_back_folder,
    rate_trials,
    read_choices,
    searched_names,
    write_choices,
    write_held_back,
)
from somnet.benchmark.trials import (
    CONTROLS,
    COSTS,
    Benchmark,
    RateSearch,
    Trial,
    all_trials,
    data_folder,
    known_controls,
    known_json,
    other_trials,
)
from somnet.config import Config
from somnet.data.dataset import DataSet, held_out_split, make_inputs, open_dataset, training_views
from somnet.data.noise import write_noisy
from somnet.data.sources import open_source
from somnet.data.sources.manifest import find_manifest
from somnet.errors import ConfigError, DataError, RunError, SomnetError
from somnet.methods.registry import section_named
from somnet.runs.begin import has_other_tests, refuse_other_images
from somnet.runs.estimate import trunk_passes
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute, choose_device
from somnet.system.files import LOCK, write_json, write_text
from somnet.system.folders import DATA, SUMMARY, refuse_inside, refuse_taken
from somnet.system.locks import one_writer
from somnet.system.progress import duration
from somnet.system.ranks import Ranks, device_of_rank, find_ranks, quiet_ranks, started_note
from somnet.system.signals import StopFlag, deferred_signals
from somnet.training.train import train_without_report

log = logging.getLogger("somnet")

NO_TEST = "{} has no test images, so there is no accuracy to compare: add them under test/"
BENCH = "bench.json"  # what a benchmark was started with


def run_bench(
    benchmark: Benchmark, out: Path, *, device: str = "auto", workers: int | None = None, resume: bool = False
) -> list[Result]:
    """Run what is not finished yet, and write the results after every run. Runs that failed are part of the results.

    Under torchrun the first rank makes the data, the ranks share the runs, and only the first one returns results.
    No tensor is computed in this process: a child that is forked while torch has threads could wait for them for ever.
    """
    trials, ranks = all_trials(benchmark, out), find_ranks()  # a setting that is wrong is found before all else
    with quiet_ranks(ranks), deferred_signals() as stop, contextlib.ExitStack() as writing:
        session = _Session(benchmark, out, device, workers, ranks, stop)
        if ranks.first:
            resume = resume or ranks.noted(started_note(out))
            _check_free(benchmark, out, resume=resume)
            writing.enter_context(one_writer(out / LOCK, out))
            before = _check_free(benchmark, out, resume=resume)  # again: somebody may have been faster
            controls = {**before.get(CONTROLS, {}), **benchmark.controls()}
            write_json(out / BENCH, benchmark.fixed_settings() | ({CONTROLS: controls} if controls else {}))
            ranks.note(started_note(out))
        unknown: Mapping[str, str] = {}
        if benchmark.search is not None:
            session, unknown = _search_rates(session, benchmark.search)
            trials = all_trials(session.benchmark, out)
        results = _run_benchmark(session, trials, unknown)
    return [results[trial] for trial in trials] if ranks.first else []


@dataclass(frozen=True)
class _Session:
    """A benchmark that is being run: where, with what, and who shares the work."""

    benchmark: Benchmark
    out: Path
    device: str
    workers: int | None
    ranks: Ranks
    stop: StopFlag

    def prepare(self, work: Callable[[Compute], None], what: str) -> None:
        """Make some data in a process of its own; nothing can be compared without."""
        log.info("data of %s", what)
        if error := in_a_child(partial(_at_work, work, self.device, self.workers), self.stop):
            raise SomnetError(error)

    def run(
        self, trials: Sequence[Trial], data: Callable[[Trial], Path], after: Callable[[Mapping[Trial, Result]], None]
    ) -> dict[Trial, Result]:
        """Share the runs that are not finished; the first rank gets the results of all, and calls `after` each."""
        ranks, stop = self.ranks, self.stop
        results = _finished(trials)
        ranks.barrier(stop.check)  # all have seen the same, and share the rest in the same way
        ahead = [trial for trial in trials if trial not in results]
        mine = ahead[ranks.rank :: ranks.world]
        for trial in mine:
            left = _time_left(mine, results)
            log.info("run %d of %d: %s, %s%s", trials.index(trial) + 1, len(trials), trial.name, trial.what, left)
            error = in_a_child(partial(_train, trial, data(trial), self.device, self.workers), stop)
            results[trial] = _outcome(trial, error)
            ranks.note(_ended(trial, ranks), error or "")
            if ranks.first:
                results |= _finished([other for other in trials if other not in results])
                _report(trial, results[trial])
                after(results)
        for trial in ahead if ranks.first else ():
            if trial not in mine:
                results[trial] = _outcome(trial, ranks.wait_for(_ended(trial, ranks), stop.check))
                _report(trial, results[trial])
        return results


def _search_rates(session: _Session, search: RateSearch) -> tuple[_Session, dict[str, str]]:
    """Choose the rates that are not chosen yet; the benchmark with them, and why entries have none."""
    benchmark, out, ranks = session.benchmark, session.out, session.ranks
    known = read_choices(out)
    ranks.barrier(session.stop.check)  # all have seen the same
    trials = [trial for trial in rate_trials(benchmark, search, out) if trial.name not in known]
    folder = held_back_folder(out, search)
    if ranks.first and len(_finished(trials)) < len(trials):
        session.prepare(partial(_prepare_search, benchmark, out, search), f"the search for rates, seed {search.seed}")
    ranks.barrier(session.stop.check)
    results = session.run(trials, lambda _: folder, lambda _: None)
    if ranks.first and trials:
        write_choices(search, results, out)
    ranks.barrier(session.stop.check)
    chosen = read_choices(out)
    unknown = {}
    for trial, result in results.items():
        if trial.name not in chosen and result.error:
            unknown[trial.name] = f"no learning rate was chosen, as {trial.what} failed ({result.error}): --resume"
    for name in searched_names(benchmark):
        if name not in chosen:
            unknown.setdefault(name, "no learning rate was chosen: --resume")
    return replace(session, benchmark=replace(benchmark, chosen=chosen)), unknown


def _run_benchmark(session: _Session, trials: Sequence[Trial], unknown: Mapping[str, str]) -> dict[Trial, Result]:
    """Run what is not finished, and write the results; entries whose rate is `unknown` have failed."""
    benchmark, out, ranks = session.benchmark, session.out, session.ranks
    failed = {trial: _outcome(trial, unknown[trial.name]) for trial in trials if trial.name in unknown}
    able = [trial for trial in trials if trial not in failed]
    if ranks.first:
        done = _finished(able)
        for seed in dict.fromkeys(trial.config.seed for trial in able if trial not in done):
            session.prepare(partial(_prepare, benchmark, out, seed), f"seed {seed}")
    ranks.barrier(session.stop.check)
    others = other_trials(benchmark, trials, out, known_controls(known_json(out / BENCH)))
    earlier = failed | _finished(others)

    def write(results: Mapping[Trial, Result]) -> None:
        _write_results(benchmark, {**earlier, **results}, out)

    results = session.run(able, lambda trial: data_folder(benchmark, out, trial.config.seed), write)
    if ranks.first:
        write(results)
    return failed | results


def _finished(trials: Sequence[Trial]) -> dict[Trial, Result]:
    return {trial: result for trial in trials if (result := trial.result()) is not None}


def _outcome(trial: Trial, error: str | None) -> Result:
    missing = error or "it left no results: --resume"
    return trial.result() or Result(trial.name, trial.config.seed, error=missing)


def _ended(trial: Trial, ranks: Ranks) -> str:
    """The note that a run has ended, after so many restarts."""
    return f"ended: {trial.folder.absolute()}, attempt {ranks.attempt}"


def _check_free(benchmark: Benchmark, out: Path, *, resume: bool) -> dict[str, Any]:
    """Refuse a folder that holds something else, or a benchmark that was not meant; nothing is written before.

    What the folder's benchmark was started with, if there is one.
    """
    if benchmark.search is not None:
        check_search(benchmark.search, benchmark.seeds)
    names = {BASELINE, *(entry.name for entry in benchmark.entries)}
    if benchmark.baseline not in names and not list((out / "runs").glob(f"{glob.escape(benchmark.baseline)}-seed*")):
        raise ConfigError(f"the baseline '{benchmark.baseline}' does not take part: add it to --methods")
    if benchmark.data is not None:
        index = open_source(benchmark.data, follow_links=benchmark.config.follow_links)
        refuse_inside(out, index.root)
        if held_out_split(index) is None:
            raise DataError(NO_TEST.format(benchmark.data))
    refuse_taken(
        out, "a somnet benchmark", ours=lambda: bool(_started_with(out)), meant=resume, how="--resume to continue"
    )
    before = _started_with(out)
    fixed, controls = benchmark.fixed_settings(), before.get(CONTROLS, {})
    told = [name for name in {**before, **fixed} if name != CONTROLS] if before else []
    changed = [name for name in told if _value(before, name) != _value(fixed, name)]
    changed += [f"'{name}'" for name, own in benchmark.controls().items() if controls.get(name, own) != own]
    if changed:
        raise RunError(
            f"{out} was started with another {', '.join(changed)}: use what {out / BENCH} says, or give another --out"
        )
    return before


def _started_with(out: Path) -> dict[str, Any]:
    """The settings of a folder's benchmark; none where there is no benchmark."""
    try:
        return known_json(out / BENCH) if out.is_dir() else {}
    except RunError:  # somebody else's file
        return {}


def _value(settings: Mapping[str, Any], name: str) -> Any:
    """What was set; a setting or a section that is not mentioned has its default, as in folders of older versions."""
    if name in settings:
        return settings[name]
    kind = section_named(name)
    return Config().model_dump(mode="json").get(name) if kind is None else kind().model_dump(mode="json")


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


def _report(trial: Trial, result: Result) -> None:
    if result.error:
        log.error("%s, %s failed: %s", trial.name, trial.what, result.error)
    elif result.top1 is not None and result.seconds is not None:
        took = duration(result.seconds)
        log.info("%s, %s: top-1 %.2f %% in %s", trial.name, trial.what, 100 * result.top1, took)


def _write_results(benchmark: Benchmark, finished: Mapping[Trial, Result], out: Path) -> None:
    """All that is known, seed by seed: also runs of methods and seeds that were asked for another time."""
    stands_for = benchmark.stands_for()
    methods = list(dict.fromkeys((*stands_for.values(), *(trial.name for trial in finished))))
    seeds = sorted({*benchmark.seeds, *(trial.config.seed for trial in finished)})
    results = sorted(finished.values(), key=lambda result: (result.seed, methods.index(result.method)))
    baseline = stands_for.get(benchmark.baseline, benchmark.baseline)
    mistakes = {
        (result.method, result.seed): known
        for trial, result in finished.items()
        if benchmark.data is not None and result.top1 is not None and (known := trial.mistakes()) is not None
    }  # each seed of the toy web has test images of its own
    comparison = Comparison(benchmark.title(), methods, seeds, results, baseline, mistakes)
    write_text(out / "results.csv", results_csv(results))
    epochs = benchmark.config.train.epochs
    write_text(out / "table.md", comparison_table(comparison, benchmark.tables, stands_for, epochs=epochs))
    write_text(out / "plot.svg", chart(comparison))


# --- in the child


def _at_work(work: Callable[[Compute], None], device: str, workers: int | None) -> None:
    keep_memory()
    work(Compute(device_of_rank(choose_device(device)), workers))


def _prepare(benchmark: Benchmark, out: Path, seed: int, compute: Compute) -> None:
    """Make the data of a seed, its boxes and feature maps, which are cached: no method pays for them."""
    data = _cache(make_data(benchmark, out, seed, compute.workers), benchmark.configure(PLAIN, seed), compute)
    for run in sorted((out / "runs").glob(f"*-seed{seed}")):
        if (run / SUMMARY).is_file():  # what is trained now will be compared with it
            refuse_other_images(run, data)
            if has_other_tests(run, data):
                raise RunError(
                    f"the test images of {data.path} are not those of {run}, so accuracies do not compare: restore "
                    "them, or give another --out"
                )


def _prepare_search(benchmark: Benchmark, out: Path, search: RateSearch, compute: Compute) -> None:
    """The same for the search for rates, with training images held back."""
    config, folder = benchmark.configure(PLAIN, search.seed), held_back_folder(out, search)
    data = make_data(benchmark, out, search.seed, compute.workers)
    write_held_back(data, folder, search, config, compute)
    _cache(folder, config, compute)


def _cache(data: Path, config: Config, compute: Compute) -> DataSet:
    dataset = open_dataset(data, config, compute)
    if dataset.test is None:
        raise DataError(NO_TEST.format(data))
    network = build_method(config, dataset.train.labels, len(dataset.classes)).to(compute.device).network
    make_inputs(dataset.test, network, config.model.imgsz, compute)
    training_views(dataset.train, network, config, compute)  # the whole images are among them
    return dataset


def make_data(benchmark: Benchmark, out: Path, seed: int, workers: int | None = None) -> Path:
    """The data of a seed, drawn or made noisy unless it is there."""
    source, folder = benchmark.data, data_folder(benchmark, out, seed)
    if source is None:
        source = draw_toy_web(folder if benchmark.noise is None else out / "data" / f"toy-seed{seed}", seed)
    if benchmark.noise is not None and find_manifest(folder) is None:
        links = benchmark.config.follow_links
        write_noisy(source, folder, benchmark.noise, seed=seed, workers=workers, follow_links=links)
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
    costs = {
        "peak_memory_mb": peak,
        "image_passes": round(passes, 6),
        "trunk_passes": trunk_passes(run.config, run.method.plan()),
    }
    write_json(trial.folder / COSTS, costs)


def peak_memory_mb() -> float:
    """The most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
