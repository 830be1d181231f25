"""A chart of methods as SVG text: one row each, best first. Pure: numbers in, text out.

It lies on a card of its own, light or dark as the reader prefers, so that it is readable on any page. The colours are
Okabe and Ito's; nothing is told by colour alone.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from somnet.report.figures.text import one_line

MARGIN, ROW, HEADING, FOOT = 24, 30, 76, 52
PLOT, VALUES = 420, 130  # widths of the plot and of the column of values
LETTER, TITLE_LETTER = 8, 11  # about the width of one
LONGEST_NAME = 40
MOST_TICKS = 7

STYLE = """
.chart text { font-family: system-ui, sans-serif; font-size: 14px; fill: #212529 }
.chart .title { font-size: 18px; font-weight: 600 }
.chart .quiet { fill: #5c636a; font-size: 13px }
.chart .end { text-anchor: end }
.chart .middle { text-anchor: middle }
.chart .card { fill: #ffffff; stroke: #ced2d6 }
.chart .grid { stroke: #dee2e6 }
.chart .base { stroke: #d55e00; stroke-dasharray: 5 4 }
.chart .bar { stroke: #0072b2; stroke-width: 2 }
.chart .mean { fill: #0072b2 }
.chart .seed { fill: none; stroke: #0072b2; stroke-opacity: 0.6 }
@media (prefers-color-scheme: dark) {
.chart text { fill: #e9ecef }
.chart .quiet { fill: #adb5bd }
.chart .card { fill: #16191d; stroke: #3d444b }
.chart .grid { stroke: #30363c }
.chart .base { stroke: #e69f00 }
.chart .bar, .chart .seed { stroke: #56b4e9 }
.chart .mean { fill: #56b4e9 }
}
"""


@dataclass(frozen=True)
class Score:
    """A row of the chart: its values, one per seed."""

    name: str
    values: Sequence[float]

    @property
    def mean(self) -> float:
        """Where the dot is."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Half the length of the error bar; None for a single value."""
        return standard_error(self.values)


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of some values; None where there are fewer than two."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def score_chart(title: str, subtitle: str, scores: Sequence[Score], *, baseline: str | None = None) -> str:
    """Mean, standard error and single values of each row; a dashed line at the mean of the baseline."""
    rows = sorted(scores, key=lambda score: -score.mean)
    names = [shortened(row.name, LONGEST_NAME) for row in rows]
    left = MARGIN + LETTER * max([10, *map(len, names)]) + 12
    width, height = left + PLOT + VALUES + MARGIN, HEADING + ROW * len(rows) + FOOT
    ends = [row.mean + sign * (row.spread or 0) for row in rows for sign in (-1, 1)]
    ticks = axis_ticks(*_extent([*ends, *(value for row in rows for value in row.values)]))
    bottom = HEADING + ROW * len(rows)

    def place(value: float) -> float:
        return left + PLOT * (value - ticks[0]) / (ticks[-1] - ticks[0])

    drawing = Drawing(width, height, title)
    drawing.text(MARGIN, MARGIN + 12, shortened(title, (width - 2 * MARGIN) / TITLE_LETTER), "title")
    drawing.text(MARGIN, MARGIN + 34, shortened(subtitle, (width - 2 * MARGIN) / LETTER), "quiet")
    for tick in ticks:
        drawing.line(place(tick), HEADING, place(tick), bottom, "grid")
        drawing.text(place(tick), bottom + 20, f"{tick:g}", "quiet middle")
    for row in rows:
        if row.name == baseline:
            drawing.line(place(row.mean), HEADING, place(row.mean), bottom, "base")
            drawing.text(place(row.mean), bottom + 38, shortened(row.name, LONGEST_NAME), "quiet middle")
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        y = HEADING + ROW * (number + 0.5)
        drawing.text(left - 12, y + 5, name, "end")
        for value in row.values:
            drawing.circle(place(value), y, 4, "seed")
        if row.spread is not None:
            low, high = place(row.mean - row.spread), place(row.mean + row.spread)
            drawing.line(low, y, high, y, "bar")
            for end in (low, high):
                drawing.line(end, y - 5, end, y + 5, "bar")
        drawing.circle(place(row.mean), y, 6, "mean")
        spread = "" if row.spread is None else f" ± {row.spread:.1f}"
        drawing.text(left + PLOT + 20, y + 5, f"{row.mean:.1f}{spread}", "")
    return drawing.finish()


def axis_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Round numbers at equal distances from at most `low` to at least `high`; at least two, about `most`."""
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _extent(values: Sequence[float]) -> tuple[float, float]:
    """The stretch to draw: never of no length."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low - 0.5, high + 0.5) if high - low < 1e-6 else (low, high)


def shortened(text: str, letters: float) -> str:
    """A line of at most so many letters."""
    line = one_line(text)
    return line if len(line) <= letters else line[: int(letters) - 1] + "…"


class Drawing:
    """An SVG picture that is being written. ElementTree writes it, so no name can be taken for markup."""

    def __init__(self, width: float, height: float, title: str, style: str = STYLE) -> None:
        size = {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}"}
        self.root = ElementTree.Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "chart", "role": "img", **size}
        )
        self._add("title", text=one_line(title))
        self._add("style", text=style)
        self._add("rect", "card", x=0.5, y=0.5, width=width - 1, height=height - 1, rx=10)

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        """A line of text that begins, ends or is centred at a point."""
        self._add("text", kind, text, x=x, y=y)

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A line between two points."""
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        """A circle around a point."""
        self._add("circle", kind, cx=x, cy=y, r=radius)

    def finish(self) -> str:
        """The picture as text."""
        ElementTree.indent(self.root)
        return ElementTree.tostring(self.root, encoding="unicode") + "\n"

    def _add(self, tag: str, kind: str = "", text: str | None = None, **places: float) -> None:
        attributes = {"class": kind} if kind else {}
        element = ElementTree.SubElement(
            self.root, tag, attributes | {name: f"{place:.1f}" for name, place in places.items()}
        )
        element.text = text
