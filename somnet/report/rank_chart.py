"""Average ranks on a line as SVG text, best on the left; bars join what a test cannot tell apart. Pure."""

from collections.abc import Mapping, Sequence

from somnet.report.chart import HEADING, LETTER, LONGEST_NAME, MARGIN, PLOT, STYLE, TITLE_LETTER, Drawing, shortened

ROW, BAR = 26, 10  # heights of a name and of a bar
FIGURE = 6 * LETTER  # the width of an average rank beside a name
AXIS = HEADING + 58  # where the line is
MOST_TICKS = 12
MORE_STYLE = """
.chart .group { stroke: #0072b2; stroke-width: 5; stroke-linecap: round }
.chart .lead { stroke: #868e96; fill: none }
.chart .axis { stroke: #212529 }
@media (prefers-color-scheme: dark) {
.chart .group { stroke: #56b4e9 }
.chart .axis { stroke: #e9ecef }
}
"""


def groups_within(ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """First and last place, of ranks in their order, of each largest group that lies within a difference."""
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = max(place for place, other in enumerate(ranks) if other - rank <= difference + 1e-9)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def rank_chart(title: str, subtitle: str, ranks: Mapping[str, float], difference: float | None) -> str:
    """The methods at their average ranks, and the critical difference; None: there is none to draw."""
    names = sorted(ranks, key=lambda name: ranks[name])
    places = [ranks[name] for name in names]
    shown = [shortened(name, LONGEST_NAME) for name in names]
    half = (len(names) + 1) // 2
    side = LETTER * max([10, *map(len, shown)]) + FIGURE + 24
    groups = [] if difference is None else groups_within(places, difference)
    first_row = AXIS + 22 + BAR * len(groups) + 10
    width, height = 2 * (MARGIN + side) + PLOT, first_row + ROW * half + MARGIN
    left, right = MARGIN + side, MARGIN + side + PLOT
    highest = max(2, len(names))

    def place(rank: float) -> float:
        return left + PLOT * (rank - 1) / (highest - 1)

    drawing = Drawing(width, height, title, STYLE + MORE_STYLE)
    drawing.text(MARGIN, MARGIN + 12, shortened(title, (width - 2 * MARGIN) / TITLE_LETTER), "title")
    drawing.text(MARGIN, MARGIN + 34, shortened(subtitle, (width - 2 * MARGIN) / LETTER), "quiet")
    if difference is not None:
        _ruler(drawing, place(1), place(1 + difference), right, difference)
    drawing.line(left, AXIS, right, AXIS, "axis")
    for tick in range(1, highest + 1, -(-highest // MOST_TICKS)):
        drawing.line(place(tick), AXIS - 6, place(tick), AXIS, "axis")
        drawing.text(place(tick), AXIS - 12, str(tick), "quiet middle")
    for number, (first, last) in enumerate(groups):
        bar = AXIS + 18 + BAR * number
        drawing.line(place(places[first]) - 3, bar, place(places[last]) + 3, bar, "group")
    for number, (name, rank) in enumerate(zip(shown, places, strict=True)):
        on_left = number < half
        y = first_row + ROW * (number if on_left else len(names) - 1 - number) + ROW / 2
        end, away = (left - 12, -1) if on_left else (right + 12, 1)
        drawing.line(place(rank), AXIS, place(rank), y, "lead")
        drawing.line(place(rank), y, end, y, "lead")
        drawing.circle(place(rank), AXIS, 4, "mean")
        drawing.text(end + 8 * away, y + 5, f"{rank:.2f}", "quiet end" if on_left else "quiet")
        drawing.text(end + (8 + FIGURE) * away, y + 5, name, "end" if on_left else "")
    return drawing.finish()


def _ruler(drawing: Drawing, start: float, end: float, right: float, difference: float) -> None:
    """How long the critical difference is; where it is longer than the line of ranks, it is cut and has no end."""
    y = HEADING + 12
    drawing.line(start, y, min(end, right), y, "bar")
    for x in (start, end):
        if x <= right:
            drawing.line(x, y - 5, x, y + 5, "bar")
    drawing.text(min(end, right) + 10, y + 5, f"critical difference {difference:.2f}", "quiet")
