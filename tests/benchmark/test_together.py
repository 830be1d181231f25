"""Several benchmarks together: figures worked by hand, a published one, and real benchmarks."""

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from somnet.benchmark.together import (
    DataSetResults,
    Together,
    critical_difference,
    read_results,
    together_csv,
    together_table,
    verdict,
)
from somnet.errors import RunError
from somnet.report.rank_chart import groups_within, rank_chart
from tests.benchmark.conftest import Finished
from tests.benchmark.test_comparison import table_of

if TYPE_CHECKING:
    from tests.conftest import Outcome

    Cli = Callable[..., Outcome]


def top1(**methods: tuple[float, ...]) -> dict[str, dict[int, float]]:
    return {name: dict(enumerate(values)) for name, values in methods.items()}


BIRDS = DataSetResults("birds", top1(plain=(60, 64, 62), elr=(66, 68, 70), somnet=(70, 69, 74), once=(50, 50, 50)))
FOOD = DataSetResults("food", top1(plain=(80, 82), elr=(79, 84), somnet=(80, 82), sl=(90, 91), once=(70,)))
TREES = DataSetResults("trees", top1(plain=(50, 52), elr=(45, 47), somnet=(60, 61), once=(9, 9)))
TOGETHER = Together((BIRDS, FOOD, TREES), "plain")


@pytest.mark.parametrize(  # 1.25 is in Demšar 2006; the others are from the usual table of q: 2.291, 1.960, 3.164
    ("methods", "data_sets", "level", "difference"),
    [
        (4, 14, 0.05, 1.25),
        (4, 14, 0.10, 2.291 * (20 / 84) ** 0.5),
        (2, 6, 0.05, 1.960 / 6**0.5),
        (10, 55, 0.05, 3.164 / 3**0.5),
    ],
)
def test_the_critical_difference(methods: int, data_sets: int, level: float, difference: float) -> None:
    assert critical_difference(methods, data_sets, level) == pytest.approx(difference, abs=0.005)


def test_friedmans_test() -> None:
    """Three methods in the same order on four data sets: 12 / (4 * 3 * 4) * (4² + 8² + 12²) - 3 * 4 * 4 = 8."""
    sets = [DataSetResults(name, top1(a=(1, 2), b=(3, 4), c=(5, 6))) for name in "wxyz"]
    together = Together(sets, "a")
    assert together.ranks == {"a": 3, "b": 2, "c": 1}
    assert together.friedman == pytest.approx((8.0, math.exp(-4)))  # chi squared with two degrees of freedom


@pytest.mark.parametrize(
    ("gains", "won"),
    [
        ((1.0, 3.0), 1),  # 2 over an error of 1
        ((0.0, 2.0), 0),  # 1 is not above its error of 1
        ((-1.0, -3.0), -1),
        ((2.0, 2.0), 1),
        ((0.0, 0.0), 0),
        ((5.0,), 0),  # of one seed nobody knows
    ],
)
def test_what_a_win_is(gains: tuple[float, ...], won: int) -> None:
    assert verdict(gains) == won


def test_methods_are_ranked_where_all_have_run() -> None:
    assert TOGETHER.missing("once") == ["food (seed 1)"]
    assert TOGETHER.missing("sl") == ["birds", "trees"]
    assert TOGETHER.means == {"plain": [62, 81, 51], "elr": [68, 81.5, 46], "somnet": [71, 81, 60.5]}
    ranks = {"plain": (3 + 2.5 + 2) / 3, "elr": (2 + 1 + 3) / 3, "somnet": (1 + 2.5 + 1) / 3}
    assert TOGETHER.ranks == pytest.approx(ranks)
    assert TOGETHER.record("somnet") == (2, 1, 0)
    assert TOGETHER.record("elr") == (1, 1, 1)  # food: -1 and 2, 0.5 with an error of 1.5
    assert TOGETHER.record("sl") == (1, 0, 0)


def test_the_table() -> None:
    text = together_table(TOGETHER)
    rows = {row["method"]: row for row in table_of(text)}
    assert list(rows) == ["somnet", "elr", "plain", "once", "sl"]
    assert rows["somnet"] == {
        "method": "somnet",
        "birds": "71.0 ± 1.5",  # 70, 69, 74: deviation 2.65
        "food": "81.0 ± 1.0",
        "trees": "60.5 ± 0.5",
        "average": "70.8",
        "average rank": "1.50",
        "wins / ties / losses against plain": "2 / 1 / 0",
    }
    assert list(rows["sl"].values()) == ["sl", "–", "90.5 ± 0.5", "–", "–", "–", "1 / 0 / 0"]
    assert "- once: food \\(seed 1\\)" in text
    assert "- sl: birds; trees" in text
    assert "Nemenyi's critical difference at 0.05: 1.91" in text  # 2.343 * sqrt(12 / 18)
    assert "Friedman's test over 3 methods and 3 data sets" in text


def test_the_csv() -> None:
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(together_csv(TOGETHER)))}
    assert rows["elr"]["food top1"] == "81.5"
    assert rows["elr"]["food standard_error"] == "2.5"
    assert (rows["elr"]["wins"], rows["elr"]["ties"], rows["elr"]["losses"]) == ("1", "1", "1")
    assert rows["once"]["average"] == ""
    assert rows["once"]["missing"] == "food (seed 1)"


def test_little_to_compare_is_no_error() -> None:
    for sets in ((BIRDS,), (BIRDS, DataSetResults("none", top1(other=(1, 2))))):
        together = Together(sets, "plain")
        assert together.difference is None
        assert together.friedman is None
        assert "Nemenyi" not in together_table(together)
    tied = Together([DataSetResults(name, top1(a=(1, 2), b=(1, 2), c=(2, 1))) for name in "xy"], "a")
    assert tied.friedman is None
    assert tied.ranks == {"a": 2, "b": 2, "c": 2}


# --- the picture


def test_bars_join_what_differs_by_less() -> None:
    assert groups_within([1.0, 1.5, 2.6, 4.0], 1.25) == [(0, 1), (1, 2)]
    assert groups_within([1.0, 2.0, 3.0], 3.0) == [(0, 2)]
    assert groups_within([1.0, 2.0, 2.0], 0.5) == [(1, 2)]
    assert groups_within([1.0, 2.0, 3.0], 0.5) == []


@pytest.mark.parametrize("names", [("a", "<script>x</script>", "n" * 90, "\ud800"), ("a",), ()])
def test_the_picture_is_valid(names: tuple[str, ...]) -> None:
    ranks = {name: 1.0 + place for place, name in enumerate(names)}
    for difference in (None, 0.5, 99.0):
        svg = rank_chart("t", "s", ranks, difference)
        root = ElementTree.fromstring(svg)
        dots = [element for element in root.iter() if element.get("class") == "mean"]
        assert len(dots) == len(names)
        width = float(root.get("width", "0"))
        assert all(0 <= float(line.get(end, "0")) <= width for line in root.iter() for end in ("x1", "x2", "x"))


# --- for real


def test_two_benchmarks_through_the_command_line(finished: Finished, cli: "Cli", tmp_path: Path) -> None:
    birds, food = finished.copy(tmp_path / "birds"), finished.copy(tmp_path / "food | drink")
    outcome = cli("compare", birds, food, "--out", tmp_path / "both")
    assert outcome.code == 0, outcome.err
    assert sorted(file.name for file in (tmp_path / "both").iterdir()) == [
        ".somnet.json",
        "ranks.svg",
        "table.csv",
        "table.md",
    ]
    rows = table_of((tmp_path / "both" / "table.md").read_text())
    assert {row["method"] for row in rows} == {"plain", "somnet"}
    assert rows[0]["birds"] == rows[0]["food \\| drink"]
    words = ("compare", birds, food, "--out", tmp_path / "both", "--baseline", "somnet")
    assert "add --overwrite" in cli(*words).err
    assert cli(*words, "--overwrite").code == 0
    assert "against somnet" in (tmp_path / "both" / "table.md").read_text()


def test_what_cannot_be_compared_is_told(finished: Finished, cli: "Cli", tmp_path: Path) -> None:
    out = finished.out
    assert "is in none of them: give --baseline one of plain, somnet" in _error(cli, out, tmp_path, "--baseline", "sl")
    (tmp_path / "out").mkdir()
    shut = finished.copy(tmp_path / "other" / "out")
    assert "two folders are called 'out'" in _error(cli, out, tmp_path, shut)
    assert "is not a somnet comparison" in cli("compare", out, "--out", shut).err
    with pytest.raises(RunError, match=r"has no results\.csv"):
        read_results(tmp_path)
    for content in ("a,b\n1,2\n", "method,seed,top1\nplain,x,0.5\n"):
        (tmp_path / "results.csv").write_text(content)
        with pytest.raises(RunError, match="cannot be read"):
            read_results(tmp_path)
    (tmp_path / "results.csv").write_text("method,seed,top1\nplain,0,\n")
    with pytest.raises(RunError, match="no finished run"):
        read_results(tmp_path)


def _error(cli: "Cli", out: Path, tmp_path: Path, *words: object) -> str:
    outcome = cli("compare", out, "--out", tmp_path / "both", *words)
    assert outcome.code == 2
    assert not (tmp_path / "both").exists()
    return outcome.err
