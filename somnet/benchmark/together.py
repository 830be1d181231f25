"""Several benchmarks together, one for each data set: means, average ranks, wins and losses, critical difference.

The test is Friedman's over the ranks of the methods on each data set, with Nemenyi's critical difference of average
ranks after it (Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006).
"""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scipy.stats import friedmanchisquare, rankdata, studentized_range

from somnet.benchmark.comparison import UNKNOWN, markdown_table, mean_and_spread, paired_gains, plain_text
from somnet.errors import ConfigError, RunError
from somnet.report.chart import standard_error
from somnet.report.rank_chart import rank_chart
from somnet.system.files import csv_cell, write_text
from somnet.system.replacing import replaced_folder

LEVEL = 0.05  # of the tests
RESULTS = "results.csv"


@dataclass(frozen=True)
class DataSetResults:
    """What a benchmark has found on a data set."""

    name: str
    top1: Mapping[str, Mapping[int, float]]  # in percent, by method and seed

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Those that any method has."""
        return tuple(sorted({seed for values in self.top1.values() for seed in values}))

    def values(self, method: str) -> dict[int, float]:
        """Top-1 by seed; empty where a method has not run."""
        return dict(self.top1.get(method, {}))

    def missing(self, method: str) -> str:
        """What a method has not run here, as text; empty if it has all."""
        left = [seed for seed in self.seeds if seed not in self.values(method)]
        if len(left) == len(self.seeds):
            return self.name
        return f"{self.name} (seed {', '.join(map(str, left))})" if left else ""


@dataclass(frozen=True)
class Together:
    """Several data sets, and whom wins and losses are against."""

    data_sets: Sequence[DataSetResults]
    baseline: str

    @cached_property
    def methods(self) -> list[str]:
        """All that ran anywhere."""
        return list(dict.fromkeys(name for data in self.data_sets for name in data.top1))

    def missing(self, method: str) -> list[str]:
        """What a method has not run."""
        return [text for data in self.data_sets if (text := data.missing(method))]

    @cached_property
    def means(self) -> dict[str, list[float]]:
        """Of the methods that have run everything, on each data set: only they can be averaged and ranked."""
        whole = [name for name in self.methods if not self.missing(name)]
        return {name: [statistics.fmean(data.values(name).values()) for data in self.data_sets] for name in whole}

    @cached_property
    def ranks(self) -> dict[str, float]:
        """The average rank of each of them, 1 for the best; equals share the mean of their ranks."""
        if not self.means:
            return {}
        columns = zip(*self.means.values(), strict=True)  # one per data set
        ranked = [rankdata([-round(mean, 9) for mean in column]) for column in columns]
        return {name: statistics.fmean(own) for name, own in zip(self.means, zip(*ranked, strict=True), strict=True)}

    def record(self, method: str) -> tuple[int, int, int]:
        """Data sets on which a method wins, ties and loses against the baseline."""
        both = [paired_gains(data.values(method), data.values(self.baseline)) for data in self.data_sets]
        verdicts = [verdict(gains) for gains in both if gains]
        return verdicts.count(1), verdicts.count(0), verdicts.count(-1)

    @property
    def difference(self) -> float | None:
        """Nemenyi's; None where there is nothing to compare."""
        enough = len(self.means) > 1 and len(self.data_sets) > 1
        return critical_difference(len(self.means), len(self.data_sets)) if enough else None

    @property
    def friedman(self) -> tuple[float, float] | None:
        """Friedman's statistic and its p; it needs three methods that do not tie everywhere."""
        if len(self.means) < 3 or len(self.data_sets) < 2 or len(set(self.ranks.values())) == 1:
            return None
        rounded = [[round(mean, 9) for mean in own] for own in self.means.values()]
        statistic, p = friedmanchisquare(*rounded)
        return float(statistic), float(p)


def critical_difference(methods: int, data_sets: int, level: float = LEVEL) -> float:
    """Nemenyi's: average ranks that differ by more differ at this level."""
    quantile = float(studentized_range.ppf(1 - level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * data_sets))


def verdict(gains: Sequence[float]) -> int:
    """1: a win, the mean gain is above its standard error; -1: a loss; 0: neither, or a single seed, which has none."""
    error = standard_error(gains)
    if error is None:
        return 0
    mean = statistics.fmean(gains)
    return int(mean > error) - int(mean < -error)


def compare_benchmarks(folders: Sequence[Path], out: Path, *, baseline: str, overwrite: bool = False) -> Together:
    """Read the results of several benchmarks and write table.md, table.csv and ranks.svg."""
    data_sets = [read_results(folder) for folder in folders]
    names = [data.name for data in data_sets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two folders are called '{twice[0]}', which names their data: rename one of them")
    together = Together(data_sets, baseline)
    if baseline not in together.methods:
        raise ConfigError(f"'{baseline}' is in none of them: give --baseline one of {', '.join(together.methods)}")
    with replaced_folder(out, "comparison", overwrite=overwrite) as folder:
        write_text(folder / "table.md", together_table(together))
        write_text(folder / "table.csv", together_csv(together))
        subtitle = f"average rank over {len(names)} data sets, best on the left; a bar joins what differs by less"
        write_text(folder / "ranks.svg", rank_chart(", ".join(names), subtitle, together.ranks, together.difference))
    return together


def read_results(folder: Path) -> DataSetResults:
    """The accuracies of a benchmark folder; runs that failed have none."""
    file = folder / RESULTS
    top1: dict[str, dict[int, float]] = {}
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                if row["top1"]:
                    top1.setdefault(row["method"], {})[int(row["seed"])] = 100 * float(row["top1"])
    except FileNotFoundError:
        raise RunError(f"{folder} has no {RESULTS}: give the --out folder of a somnet bench") from None
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise RunError(f"{file} cannot be read ({error}): write it anew with somnet bench --resume") from None
    if not top1:
        raise RunError(f"{file} has no finished run: continue with somnet bench --resume")
    return DataSetResults(folder.resolve().name, top1)


# --- as text


def together_table(together: Together) -> str:
    """Markdown: a row per method, best average rank first; then what was left out, and the tests."""
    data_sets, ranks = together.data_sets, together.ranks
    rows = []
    for name in _ordered(together):
        wins = UNKNOWN if name == together.baseline else " / ".join(map(str, together.record(name)))
        average = [f"{statistics.fmean(together.means[name]):.1f}", f"{ranks[name]:.2f}"] if name in ranks else []
        cells = [mean_and_spread(list(data.values(name).values()), 1) for data in data_sets]
        rows.append([plain_text(name), *cells, *(average or [UNKNOWN, UNKNOWN]), wins])
    against = f"wins / ties / losses against {plain_text(together.baseline)}"
    header = ["method", *(plain_text(data.name) for data in data_sets), "average", "average rank", against]
    title = f"# {plain_text(', '.join(data.name for data in data_sets))}"
    return "\n\n".join([title, markdown_table(header, rows), *_notes(together)]) + "\n"


def _ordered(together: Together) -> list[str]:
    ranks = together.ranks
    return [*sorted(ranks, key=lambda name: ranks[name]), *(name for name in together.methods if name not in ranks)]


def _notes(together: Together) -> list[str]:
    seeds = "; ".join(f"{plain_text(data.name)} {', '.join(map(str, data.seeds))}" for data in together.data_sets)
    notes = [
        f"Top-1 % of the last epoch, mean ± standard error over the seeds ({seeds}). A win is a gain, paired by seed, "
        "whose mean is above its standard error; a loss is the opposite; all else is a tie."
    ]
    lacking = {name: lacks for name in together.methods if (lacks := together.missing(name))}
    left_out = [f"{plain_text(name)}: {plain_text('; '.join(lacks))}" for name, lacks in lacking.items()]
    if left_out:
        notes.append("**Left out of averages and ranks**, as not all was run. Missing are:")
        notes.append("\n".join(f"- {line}" for line in left_out))
    count, number = len(together.means), len(together.data_sets)
    if together.friedman is not None:
        statistic, p = together.friedman
        less = f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
        notes.append(f"Friedman's test over {count} methods and {number} data sets: χ² = {statistic:.2f}, {less}.")
    if together.difference is not None:
        notes.append(
            f"Nemenyi's critical difference at {LEVEL}: {together.difference:.2f}. Average ranks that are nearer do "
            "not differ at this level (`ranks.svg`)."
        )
    return notes


def together_csv(together: Together) -> str:
    """A row per method; shares are percents. No cell starts a formula."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    parts = ("top1", "standard_error", "seeds")
    columns = [csv_cell(f"{data.name} {part}") for data in together.data_sets for part in parts]
    table.writerow(["method", *columns, "average", "average_rank", "wins", "ties", "losses", "missing"])
    for name in _ordered(together):
        cells: list[object] = []
        for data in together.data_sets:
            values = list(data.values(name).values())
            cells += [statistics.fmean(values) if values else None, standard_error(values), len(values)]
        ranked = name in together.ranks
        cells += [statistics.fmean(together.means[name]), together.ranks[name]] if ranked else [None, None]
        cells += [None] * 3 if name == together.baseline else together.record(name)
        rounded = ["" if cell is None else round(cell, 6) if isinstance(cell, float) else cell for cell in cells]
        table.writerow([csv_cell(name), *rounded, csv_cell("; ".join(together.missing(name)))])
    return text.getvalue()
