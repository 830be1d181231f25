"""The results of a benchmark as text: figures worked by hand, and no text that becomes markup or a formula."""

import csv
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from somnet.benchmark.comparison import Comparison, Mistakes, Result, chart, comparison_table, plain_text, results_csv
from somnet.benchmark.paper_tables import ABLATIONS, BAG_SIZES, SLOTS

_RESULTS = (
    Result(
        "plain",
        0,
        top1=0.80,
        rate=0.01,
        trunk_passes=1,
        top5=0.9,
        auroc=0.7,
        best_iou=0.1,
        image_passes=20,
        seconds=10,
        peak_memory_mb=500,
    ),
    Result("plain", 1, top1=0.84, top5=1.0, auroc=0.8, best_iou=0.1, image_passes=20, seconds=12, peak_memory_mb=502),
    Result("elr", 0, top1=0.90, top5=1.0, auroc=0.9, best_iou=0.1, image_passes=20, seconds=30, peak_memory_mb=600),
    Result("elr", 1, error="its process died"),
    Result(
        "somnet",
        0,
        top1=0.86,
        first_phase_top1=0.7,
        rate=0.003,
        trunk_passes=4,
        auroc=0.95,
        best_iou=0.4,
        image_passes=19.5,
        seconds=20,
        peak_memory_mb=700,
    ),
    Result(
        "somnet",
        1,
        top1=0.94,
        first_phase_top1=0.72,
        rate=0.003,
        trunk_passes=4,
        auroc=0.95,
        best_iou=0.6,
        image_passes=19.5,
        seconds=20,
        peak_memory_mb=700,
    ),
)
MORE: dict[int, dict[str, Any]] = {  # by place
    0: {"rate": 0.01, "trunk_passes": 1},
    4: {"rate": 0.003, "trunk_passes": 4, "first_phase_top1": 0.70},
    5: {"rate": 0.003, "trunk_passes": 4, "first_phase_top1": 0.72},
}
RESULTS = tuple(replace(result, **MORE.get(place, {})) for place, result in enumerate(_RESULTS))
COMPARISON = Comparison("photos", ("plain", "elr", "somnet", "sl"), (0, 1), RESULTS)
GAINS = {"plain": (57.0, 77.0, 67.0), "first box": (60.0, 80.0, 70.0), "somnet": (62.0, 84.0, 76.0)}
SAME = {figure.entry.name: figure.entry.name for figure in (*ABLATIONS, *BAG_SIZES, *SLOTS)}


def table_of(text: str, number: int = 0) -> list[dict[str, str]]:
    """The rows of a Markdown table."""
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in blocks[number].splitlines()]
    assert {len(line) for line in lines[:1] + lines[2:]} == {len(lines[0])}
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_methods_are_compared() -> None:
    rows = {row["method"]: row for row in table_of(comparison_table(COMPARISON, (), {}, epochs=20))}
    assert list(rows) == ["elr", "somnet", "plain", "sl"]  # means 90, 90, 82; sl has not run
    assert [row["rank"] for row in rows.values()] == ["1", "1", "3", "–"]
    assert [row["deviation"] for row in rows.values()] == ["–", "5.7", "2.8", "–"]
    assert rows["plain"]["top-1 %"] == "82.0 ± 2.0"
    assert rows["somnet"]["top-1 %"] == "**90.0 ± 4.0**"
    assert rows["elr"]["top-1 %"] == "**90.0**"
    assert rows["somnet"]["gain over plain"] == "+8.0 ± 2.0"  # 6 and 10, seed by seed
    assert rows["somnet"]["after first phase"] == "71.0 ± 1.0"
    assert [row["rate"] for row in rows.values()] == ["–", "0.003", "0.01", "–"]
    assert [row["trunk passes"] for row in rows.values()] == ["–", "4", "1", "–"]
    assert rows["elr"]["gain over plain"] == "+10.0"  # of the seed that it has
    assert rows["plain"]["gain over plain"] == "–"
    assert rows["somnet"]["AUROC of label noise"] == "**0.950 ± 0.000**"
    assert rows["somnet"]["IoU of best ROI"] == "**0.500 ± 0.100**"
    assert [row["image passes"] for row in rows.values()] == ["20", "19.5", "20", "–"]
    assert rows["plain"]["seconds"] == "11 ± 1"
    assert rows["plain"]["peak memory, MB"] == "501 ± 1"
    assert [row["seeds"] for row in rows.values()] == ["1 of 2", "2 of 2", "2 of 2", "0 of 2"]


def test_gains_are_over_the_baseline_that_is_asked_for() -> None:
    three = [Result(name, seed, top1=top1 / 100) for name, tops in GAINS.items() for seed, top1 in enumerate(tops)]
    comparison = Comparison("photos", tuple(GAINS), (0, 1, 2), three, baseline="first box")
    rows = {row["method"]: row for row in table_of(comparison_table(comparison, (), {}, epochs=20))}
    assert rows["first box"]["gain over first box"] == "–"
    assert rows["somnet"]["gain over first box"] == "+4.0 ± 1.2"  # 2, 4, 6: deviation 2, over the root of 3
    assert rows["plain"]["gain over first box"] == "-3.0 ± 0.0"
    assert rows["somnet"]["top-1 %"] == "**74.0 ± 6.4**"  # deviation 11.1: seeds differ more than methods


def test_the_error_of_a_gain_that_comes_of_the_test_images_by_hand() -> None:
    """Of five images the baseline gets a and b wrong with one seed, and a and c with another."""
    results = [Result(name, seed, top1=0.6) for name in ("plain", "elr") for seed in (0, 1, 2)]
    wrong = {("plain", 0): "ab", ("plain", 1): "ac", ("plain", 2): "a", ("elr", 0): "b", ("elr", 1): "ad"}
    mistakes = {run: Mistakes(5, frozenset(names)) for run, names in wrong.items()}
    comparison = Comparison("photos", ("plain", "elr", "sl"), (0, 1, 2), results, mistakes=mistakes)
    # by the two seeds of both, a gains a half, c a half, d loses a half, b and e nothing: 50, 50, -50, 0, 0
    by_hand = np.std([50, 50, -50, 0, 0], ddof=1) / np.sqrt(5)
    assert comparison.error_by_images("elr") == pytest.approx(by_hand)
    assert comparison.error_by_images("plain") is None
    assert comparison.error_by_images("sl") is None
    rows = {row["method"]: row for row in table_of(comparison_table(comparison, (), {}, epochs=20))}
    assert rows["elr"]["its error by test images"] == f"{by_hand:.1f}" == "18.7"
    assert rows["plain"]["its error by test images"] == "–"


def test_what_failed_is_said() -> None:
    assert "**Failed:** elr \\(seed 1\\)" in comparison_table(COMPARISON, (), {}, epochs=20)
    finished = Comparison("photos", ("plain",), (0, 1), RESULTS[:2])
    assert "Failed" not in comparison_table(finished, (), {}, epochs=20)


def test_table_3_has_the_papers_figures_beside() -> None:
    rows = {row[""]: row for row in table_of(comparison_table(COMPARISON, ["methods"], {}, epochs=20), 1)}
    assert list(rows) == ["plain", "sl", "somnet"]  # elr is not in the paper
    assert rows["plain"]["here"] == "82.0 ± 2.0"
    assert rows["plain"]["here, top-5"] == "95.0 ± 5.0"
    assert rows["plain"]["Clothing1M"] == "68.6"
    assert rows["sl"]["here"] == "–"
    assert rows["sl"]["ImageNet, top-5"] == "78.8"
    assert rows["somnet"]["Food101"] == "**87.5**"


def test_table_2_has_a_row_per_ablation() -> None:
    results = [*RESULTS, Result("somnet-no-som", 0, top1=0.7)]
    comparison, stands_for = (
        Comparison("photos", [*SAME, "somnet"], (0, 1), results),
        SAME | {"somnet-all-scores": "somnet"},
    )
    rows = {row[""]: row for row in table_of(comparison_table(comparison, ["ablations"], stands_for, epochs=20), 1)}
    assert len(rows) == 10
    assert rows["SOMNet"] == {
        "": "SOMNet",
        "here": "**90.0 ± 4.0**",
        "gain over plain": "+8.0 ± 2.0",
        "paper, Clothing1M": "**82.1**",
        "gain over ResNet50": "+13.5",
    }
    assert rows["SOMNet (w/o SOM)"]["here"] == "70.0"
    assert rows["SOMNet (w/o SOM)"]["gain over plain"] == "-10.0"
    assert rows["SOMNet+K-means"]["here"] == "–"


def test_table_1_takes_a_run_that_stands_for_several() -> None:
    stands_for = SAME | {"somnet-ng2": "somnet", "somnet-L12x12": "somnet"}
    comparison = Comparison("photos", ("somnet", "somnet-ng1"), (0, 1), [*RESULTS, Result("somnet-ng1", 0, top1=0.5)])
    text = comparison_table(comparison, ["parameters"], stands_for, epochs=20)
    ours, paper = table_of(text, 1)
    assert ours == {"`n_g`": "here", "1": "50.0", "2": "**90.0 ± 4.0**", "3": "–", "4": "–", "5": "–"}
    assert list(paper.values()) == ["paper, Clothing1M", "72.9", "**82.1**", "81.1", "78.5", "75.9"]
    ours, paper = table_of(text, 2)
    assert list(ours) == ["`L`", "4²", "8²", "12²", "16²", "20²"]
    assert list(ours.values()) == ["here", "–", "–", "90.0 ± 4.0", "–", "–"]


def test_the_csv_has_a_row_per_run() -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(RESULTS))))
    assert len(rows) == 6
    assert rows[0] == {
        "method": "plain",
        "seed": "0",
        "top1": "0.8",
        "top5": "0.9",
        "first_phase_top1": "",
        "auroc": "0.7",
        "best_iou": "0.1",
        "image_passes": "20",
        "trunk_passes": "1",
        "rate": "0.01",
        "seconds": "10",
        "peak_memory_mb": "500",
        "error": "",
    }
    assert (rows[3]["top1"], rows[3]["error"]) == ("", "its process died")


def test_no_cell_of_the_csv_starts_a_formula() -> None:
    text = results_csv([Result("=1+1", 0, error='@cmd "x",\n=2+2\0\ud800')])
    [row] = csv.DictReader(io.StringIO(text))
    assert (row["method"], row["error"]) == ("'=1+1", '\'@cmd "x", =2+2')
    text.encode("utf-8")


@pytest.mark.parametrize(
    "title",
    ["<script>alert(1)</script>", "a | b", "[x](javascript:1)", "# **bold** `code`\n\n# heading", "\ud800&amp;"],
)
def test_no_title_becomes_markup(title: str) -> None:
    comparison = Comparison(title, ("plain",), (0,), RESULTS[:1])
    text = comparison_table(comparison, (), {}, epochs=20)
    assert text.encode("utf-8")
    first = text.splitlines()[0].removeprefix("# ")
    assert first == plain_text(title)
    for letter in "<>|[]()*`#&":
        assert first.count(letter) == first.count("\\" + letter)
    assert text.count("\n# ") == 0
    assert "<script" not in chart(comparison)


@pytest.mark.parametrize("methods", [("plain",), ("plain", "twin")])
def test_nothing_is_in_bold_where_nothing_differs(methods: tuple[str, ...]) -> None:
    results = [replace(result, method=name) for name in methods for result in RESULTS[:2]]
    rows = table_of(comparison_table(Comparison("p", methods, (0, 1), results), (), {}, epochs=20))
    assert len(rows) == len(methods)
    assert "*" not in "".join(cell for row in rows for cell in row.values())
