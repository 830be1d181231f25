"""The chart: valid whatever the names, best first, and every mark where its value is."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.report.chart import MOST_TICKS, Score, axis_ticks, score_chart

HOSTILE = ("<script>alert(1)</script>", "a & b", '"quoted"', "a\nb\0\ud800\u202e\ufffe", "שלום", "🎈" * 60, "", "]]>")


def parts(svg: str, kind: str) -> list[ElementTree.Element]:
    """Elements of a class, in the order in which they are drawn."""
    return [element for element in ElementTree.fromstring(svg).iter() if kind in element.get("class", "").split()]


def texts(svg: str, kind: str) -> list[str]:
    return [element.text or "" for element in parts(svg, kind)]


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.get(name, "nan")) for name in names]


THREE = (Score("plain", (80.0, 84.0)), Score("best", (90.0, 94.0)), Score("once", (86.0,)))


def test_rows_are_sorted_by_their_mean() -> None:
    svg = score_chart("t", "s", THREE)
    assert texts(svg, "end") == ["best", "once", "plain"]
    values = [element.text for element in ElementTree.fromstring(svg).iter() if "±" in (element.text or "")]
    assert values == ["92.0 ± 2.0", "82.0 ± 2.0"]
    assert ">86.0<" in svg


def test_marks_are_where_their_values_are() -> None:
    svg = score_chart("t", "s", THREE, baseline="plain")
    ticks = {float(t.text or "nan"): numbers(t, "x")[0] for t in parts(svg, "middle") if t.text != "plain"}
    low, high = min(ticks), max(ticks)

    def value(x: float) -> float:
        return low + (high - low) * (x - ticks[low]) / (ticks[high] - ticks[low])

    means = [value(numbers(mark, "cx")[0]) for mark in parts(svg, "mean")]
    assert means == pytest.approx([92, 86, 82], abs=0.02)
    seeds = [value(numbers(mark, "cx")[0]) for mark in parts(svg, "seed")]
    assert seeds == pytest.approx([90, 94, 86, 80, 84], abs=0.02)
    lines = [numbers(bar, "x1", "x2") for bar in parts(svg, "bar")]
    bars = [[value(x) for x in ends] for ends in lines if ends[0] != ends[1]]  # the others are the bars' caps
    assert len(bars) == 2  # one value has no spread
    assert bars[0] == pytest.approx([90, 94], abs=0.02)
    [base] = parts(svg, "base")
    assert [value(x) for x in numbers(base, "x1", "x2")] == pytest.approx([82, 82], abs=0.02)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_picture(name: str) -> None:
    svg = score_chart(name, name, [Score(name, (1.0, 2.0)), Score("other", (3.0,))], baseline=name)
    root = ElementTree.fromstring(svg.encode("utf-8"))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "title", "style", "rect", "text", "line", "circle"}
    shown = texts(svg, "end")[1]
    assert len(shown) <= 40
    assert shown.startswith(name[:10].split("\n")[0].strip())


def test_everything_lies_on_the_card() -> None:
    svg = score_chart("t" * 500, "s" * 500, [Score("n" * 500, (0.0, 100.0)), Score("plain", (99.9, 99.9))])
    root = ElementTree.fromstring(svg)
    width, height = numbers(root, "width", "height")
    for element in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(name, 0)) <= height
    assert len(texts(svg, "title")[0]) < 100


def test_it_has_colours_for_light_and_dark() -> None:
    svg = score_chart("t", "s", THREE)
    light, _, dark = svg.partition("prefers-color-scheme: dark")
    for kind in ("text", ".quiet", ".card", ".grid", ".base", ".bar", ".mean", ".seed"):
        assert f".chart {kind}" in light
        assert f".chart {kind}" in dark


def test_nothing_to_show_is_a_picture_too() -> None:
    assert parts(score_chart("t", "s", []), "mean") == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (86.2, 97.1, [86, 88, 90, 92, 94, 96, 98]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (50, 50.03, [50, 50.005, 50.01, 50.015, 50.02, 50.025, 50.03]),
        (-3, 112, [-20, 0, 20, 40, 60, 80, 100, 120]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert axis_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(0, 100), st.floats(1e-6, 100))
def test_ticks_hold_all_values(low: float, length: float) -> None:
    ticks = axis_ticks(low, low + length)
    assert 2 <= len(ticks) <= MOST_TICKS + 2
    step = ticks[1] - ticks[0]
    assert ticks[0] <= low + 1e-6 * step + 1e-9
    assert ticks[-1] >= low + length - 1e-6 * step - 1e-9
    assert np.diff(ticks) == pytest.approx(step, rel=1e-2)
