"""The results of a benchmark as text: one row per run for programs, one row per method to read. Pure."""

import csv
import io
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property

from somnet.benchmark import paper_tables
from somnet.benchmark.paper_tables import Published
from somnet.report.chart import Score, score_chart, standard_error
from somnet.report.figures.text import one_line
from somnet.system.files import csv_cell

UNKNOWN = "–"
BASELINE = paper_tables.PLAIN.name
PAPER = "paper, Clothing1M"


@dataclass(frozen=True)
class Result:
    """How a run ended; what is unknown is None. The names of the fields are the columns of results.csv."""

    method: str
    seed: int
    top1: float | None = None  # shares, not percents
    top5: float | None = None
    first_phase_top1: float | None = None  # at the end of the first of several phases
    auroc: float | None = None  # of the method's own belief in a label, wrong ones against right ones
    best_iou: float | None = None
    image_passes: float | None = None  # as the method plans them
    trunk_passes: float | None = None  # of each training image: the whole one, and its views
    rate: float | None = None  # train.lr; None where a method does not use it
    seconds: float | None = None
    peak_memory_mb: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Mistakes:
    """What a run got wrong."""

    images: int  # on which it was tested
    wrong: frozenset[str]  # the names of those that it got wrong


@dataclass(frozen=True)
class Comparison:
    """The results of a benchmark so far."""

    title: str  # what it was run on
    methods: Sequence[str]  # that take part, in the order in which they were asked for
    seeds: Sequence[int]
    results: Sequence[Result]
    baseline: str = BASELINE  # what gains are over
    mistakes: Mapping[tuple[str, int], Mistakes] = field(default_factory=dict)  # by method and seed, as far as known

    @cached_property
    def finished(self) -> Mapping[str, Sequence[Result]]:
        """The runs that have an accuracy, by method."""
        return {
            name: [result for result in self.results if result.method == name and result.top1 is not None]
            for name in self.methods
        }

    def accuracies(self, name: str) -> dict[int, float]:
        """Top-1 in percent, by seed."""
        return {result.seed: 100 * result.top1 for result in self.finished.get(name, ()) if result.top1 is not None}

    def gains(self, name: str) -> list[float]:
        """Points of top-1 above the baseline, seed by seed; none for the baseline itself."""
        return [] if name == self.baseline else paired_gains(self.accuracies(name), self.accuracies(self.baseline))

    def error_by_images(self, name: str) -> float | None:
        """The standard error of the mean gain that comes of testing on these images and not on others of their kind.

        Of each test image the gain is averaged over the seeds; all seeds share the images, so more of them do not help.
        """
        seeds = [seed for method, seed in self.mistakes if method == name and (self.baseline, seed) in self.mistakes]
        images = self.mistakes[name, seeds[0]].images if seeds else 0
        if name == self.baseline or images < 2:
            return None
        gains: Counter[str] = Counter()
        for seed in seeds:
            own, base = self.mistakes[name, seed].wrong, self.mistakes[self.baseline, seed].wrong
            gains.update(base - own)
            gains.subtract(own - base)
        points = [100 * gain / len(seeds) for gain in gains.values()]
        return standard_error([*points, *[0.0] * (images - len(points))])

    def ranking(self) -> list[str]:
        """Methods that have an accuracy, best mean first."""
        known = [name for name in self.methods if self.accuracies(name)]
        return sorted(known, key=lambda name: -statistics.fmean(self.accuracies(name).values()))


def paired_gains(values: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """What is gained with each seed that both have."""
    return [value - baseline[seed] for seed, value in values.items() if seed in baseline]


def results_csv(results: Iterable[Result]) -> str:
    """One row per run. No cell starts a formula."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(field.name for field in fields(Result))
    for result in results:
        cells = asdict(result) | {"method": csv_cell(result.method), "error": csv_cell(one_line(result.error))}
        table.writerow("" if cell is None else cell for cell in cells.values())
    return text.getvalue()


def chart(comparison: Comparison) -> str:
    """The methods as SVG, best first."""
    scores = [Score(name, list(comparison.accuracies(name).values())) for name in comparison.ranking()]
    subtitle = "top-1 % of the last epoch: mean, standard error and single seeds"
    return score_chart(comparison.title, subtitle, scores, baseline=comparison.baseline)


# --- tables to read


def comparison_table(
    comparison: Comparison, tables: Iterable[str], stands_for: Mapping[str, str], *, epochs: int
) -> str:
    """Markdown: all methods, then the asked tables of the paper with the paper's numbers beside.

    `stands_for` tells for each entry of the paper's tables under which name it was run: equal settings run once.
    """
    sections = [f"# {plain_text(comparison.title)}", _overview(comparison), _notes(comparison, epochs)]
    for table in tables:
        sections.append(_PAPER_TABLES[table](comparison, stands_for))
    return "\n\n".join(filter(None, sections)) + "\n"


def plain_text(text: str) -> str:
    """Text in which Markdown finds no markup."""
    return re.sub(r"([\\`*_{}\[\]<>()#|~!&])", r"\\\1", one_line(text))


def mean_and_spread(values: Sequence[float], digits: int, *, sign: bool = False) -> str:
    """Mean and standard error, `93.2 ± 0.7`; without the latter for a single value."""
    if not values:
        return UNKNOWN
    error = standard_error(values)
    spread = "" if error is None else f" ± {error:.{digits}f}"
    return f"{statistics.fmean(values):{'+' if sign else ''}.{digits}f}{spread}"


def _overview(comparison: Comparison) -> str:
    names = comparison.ranking()
    waiting = [name for name in comparison.methods if name not in names]
    means = [statistics.fmean(comparison.accuracies(name).values()) for name in names]
    runs = {name: comparison.finished[name] for name in (*names, *waiting)}

    def column(value: Callable[[Result], float | None], digits: int, *, best: bool = False) -> list[str]:
        values = [[x for run in own if (x := value(run)) is not None] for own in runs.values()]
        return _cells(values, digits, best=best)

    columns = {
        "rank": [str(1 + means.index(mean)) for mean in means] + [UNKNOWN] * len(waiting),  # equals share one
        "method": [plain_text(name) for name in runs],
        "top-1 %": _cells([list(comparison.accuracies(name).values()) for name in runs], 1, best=True),
        "deviation": [_deviation(list(comparison.accuracies(name).values())) for name in runs],
        "seeds": [f"{len(own)} of {len(comparison.seeds)}" for own in runs.values()],
        _gain_over(comparison): [mean_and_spread(comparison.gains(name), 1, sign=True) for name in runs],
        "its error by test images": [_error(comparison.error_by_images(name)) for name in runs],
        "after first phase": column(lambda run: _percent(run.first_phase_top1), 1),
        "AUROC of label noise": column(lambda run: run.auroc, 3, best=True),
        "IoU of best ROI": column(lambda run: run.best_iou, 3, best=True),
        "image passes": [_once(run.image_passes for run in own) for own in runs.values()],
        "trunk passes": [_once(run.trunk_passes for run in own) for own in runs.values()],
        "rate": [_once((run.rate for run in own), digits=8) for own in runs.values()],
        "seconds": column(lambda run: run.seconds, 0),
        "peak memory, MB": column(lambda run: run.peak_memory_mb, 0),
    }
    return markdown_table(list(columns), list(zip(*columns.values(), strict=True)))


def _notes(comparison: Comparison, epochs: int) -> str:
    seeds = ", ".join(map(str, comparison.seeds))
    lines = [
        f"Accuracy of the last epoch, never of the best one; ± is the standard error of the mean over the seeds "
        f"{seeds}, the deviation that of single seeds. The gain is taken seed by seed, and its error is that of these "
        f"differences. But all seeds are tested on the same images: *its error by test images* is the standard error "
        f"that comes of these and not others of their kind, so a gain below either error may be chance. *After first "
        f"phase* is top-1 at the end of the first of several phases: what an initialisation has reached alone. An "
        f"image pass is one training image through a network with gradient, divided by the number of training images: "
        f"{epochs} for every method at most. Trunk passes are how often each training image is sent through the trunk "
        f"to be looked at: once whole, and once for each view. The rate is `train.lr`."
    ]
    if failed := [f"{result.method} (seed {result.seed})" for result in comparison.results if result.error]:
        lines.append(f"**Failed:** {plain_text(', '.join(failed))}; `results.csv` says why.")
    return "\n\n".join(lines)


def _parameters(comparison: Comparison, stands_for: Mapping[str, str]) -> str:
    sections = ["## Parameters (the paper's Table 1)"]
    for symbol, published in (("n_g", paper_tables.BAG_SIZES), ("L", paper_tables.SLOTS)):
        ours = _cells([_accuracies(comparison, stands_for, figure) for figure in published], 1, best=True)
        theirs = _cells([[figure.accuracy] for figure in published], 1, best=True)
        header = [f"`{symbol}`", *(figure.label for figure in published)]
        sections.append(markdown_table(header, [["here", *ours], [PAPER, *theirs]]))
    return "\n\n".join(sections)


def _ablations(comparison: Comparison, stands_for: Mapping[str, str]) -> str:
    published = paper_tables.ABLATIONS
    ours = _cells([_accuracies(comparison, stands_for, figure) for figure in published], 1, best=True)
    theirs = _cells([[figure.accuracy] for figure in published], 1, best=True)
    gains = [mean_and_spread(comparison.gains(stands_for[figure.entry.name]), 1, sign=True) for figure in published]
    plain = published[0].accuracy
    rows = [
        (figure.label, mine, gain, paper, f"{figure.accuracy - plain:+.1f}")
        for figure, mine, gain, paper in zip(published, ours, gains, theirs, strict=True)
    ]
    header = ["", "here", _gain_over(comparison), PAPER, "gain over ResNet50"]
    return "## Ablations (the paper's Table 2)\n\n" + markdown_table(header, rows)


def _methods(comparison: Comparison, stands_for: Mapping[str, str]) -> str:
    names = [name for name in paper_tables.METHODS if name in comparison.methods]
    top1 = _cells([list(comparison.accuracies(name).values()) for name in names], 1, best=True)
    top5 = _cells(
        [[100 * run.top5 for run in comparison.finished[name] if run.top5 is not None] for name in names], 1, best=True
    )
    theirs = [
        _cells([[paper_tables.METHODS[name][place]] for name in names], 1, best=True)
        for place in range(len(paper_tables.SETS))
    ]
    header = ["", "here", "here, top-5", *paper_tables.SETS]
    rows = list(zip(names, top1, top5, *theirs, strict=True))
    title = "## Methods (the paper's Table 3, as far as they were run)"
    return f"{title}\n\n{markdown_table(header, rows)}" if names else ""


_PAPER_TABLES: Mapping[str, Callable[[Comparison, Mapping[str, str]], str]] = {
    "parameters": _parameters,
    "ablations": _ablations,
    "methods": _methods,
}


def _accuracies(comparison: Comparison, stands_for: Mapping[str, str], figure: Published) -> list[float]:
    return list(comparison.accuracies(stands_for[figure.entry.name]).values())


def _cells(values: Sequence[Sequence[float]], digits: int, *, best: bool = False) -> list[str]:
    """A cell for each list of values; the highest mean in bold, if there is anything to compare."""
    means = [statistics.fmean(own) if own else None for own in values]
    known = [mean for mean in means if mean is not None]
    highest = max(known) if best and len(set(known)) > 1 else None
    texts = [mean_and_spread(own, digits) for own in values]
    return [
        f"**{text}**" if mean is not None and mean == highest else text for text, mean in zip(texts, means, strict=True)
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _gain_over(comparison: Comparison) -> str:
    return f"gain over {plain_text(comparison.baseline)}"


def _deviation(values: Sequence[float]) -> str:
    return f"{statistics.stdev(values):.1f}" if len(values) > 1 else UNKNOWN


def _error(points: float | None) -> str:
    return UNKNOWN if points is None else f"{points:.1f}"


def _once(values: Iterable[float | None], digits: int = 2) -> str:
    """Figures that do not depend on the seed; all of them if they do."""
    distinct = sorted({round(value, digits) for value in values if value is not None})
    return ", ".join(f"{value:g}" for value in distinct) or UNKNOWN


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that can be read as text, too."""
    lines = [header, *rows]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(header))]
    texts = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    return "\n".join([texts[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *texts[1:]])
