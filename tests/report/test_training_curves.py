"""The training page: curves by hand, and read in Chromium."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from somnet.report.frame import Frame
from somnet.report.training_curves import (
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    draw_curve,
    place,
    read_metrics,
    stretches,
    write_training_page,
    x_ticks,
)
from somnet.runs.run import Run
from tests.report.conftest import Visit, made_up_run

ROWS: list[dict[str, Any]] = [
    {"phase": "init-cnn", "epoch": 0, "epochs": 2, "steps": 3, "loss/cls": 2.0, "lr/network": 0.02, "seconds": 1.5},
    {"phase": "init-cnn", "epoch": 1, "epochs": 2, "steps": 3, "loss/cls": 1.0, "lr/network": 0.0, "seconds": 1.5},
    {"phase": "init-memory", "epoch": 0, "epochs": 1, "steps": 3, "memory/dead": 4.0, "loss/som_key": -9.0},
    {"phase": "joint", "epoch": 0, "epochs": 1, "steps": 3, "loss/cls": 1.5, "keep": 0.1, "test/top1": 0.5},
    {
        "phase": "joint",
        "epoch": 0,
        "epochs": 1,
        "steps": 3,
        "loss/cls": 0.5,
        "keep": 0.4,
        "test/top1": 0.75,
        "my/own": 3,
    },
]


@pytest.fixture
def report(tmp_path: Path) -> Callable[[list[dict[str, Any]] | None], Path]:
    def write(rows: list[dict[str, Any]] | None) -> Path:
        run = made_up_run(tmp_path / "run", [("1.jpg", "a"), ("2.jpg", "b")])
        if rows is not None:
            (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return page_of(run, tmp_path / "report")

    return write


def page_of(run: Run, folder: Path) -> Path:
    folder.mkdir()
    frame = Frame("test")
    frame.write_static(folder)
    write_training_page(frame, run, folder)
    return folder


def test_a_curve_by_hand() -> None:
    curve = draw_curve("loss/cls", [0.0, 1.0, None, 3.0])
    step = (WIDTH - LEFT - RIGHT) / 4
    assert [label for _, label in curve.y_ticks] == ["0", "1", "2", "3"]
    assert [y for y, _ in curve.y_ticks][-1] == TOP  # the largest value is at the top
    assert len(curve.lines) == 2  # parted where an epoch has no value
    first, second = curve.lines[0].split()
    assert first == f"{LEFT + step / 2:.1f},{curve.y_ticks[0][0]:.1f}"
    assert second.split(",")[1] == f"{curve.y_ticks[1][0]:.1f}"
    assert curve.title == "Classification loss"
    assert curve.last == "3"
    assert len(curve.dots) == 3


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=80), st.floats(-1e6, 1e6))
def test_every_curve_stays_in_its_frame(values: list[float | None], last: float) -> None:
    curve = draw_curve("x", [*values, last])
    assert 2 <= len(curve.y_ticks) <= 6
    for line in curve.lines:
        for point in line.split():
            x, y = map(float, point.split(","))
            assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
            assert TOP - 0.1 <= y <= HEIGHT


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ""),
        (1, "1"),
        (4, "1 2 3 4"),
        (22, "1 5 10 15 20"),
        (100, "1 20 40 60 80 100"),
    ],
)
def test_epochs_are_named_from_1(count: int, expected: str) -> None:
    assert " ".join(label for _, label in x_ticks(count)) == expected


def test_phases_of_one_name_are_one_stretch() -> None:
    found = stretches(ROWS)
    assert [(one.number, one.name, one.epochs) for one in found] == [
        (1, "init-cnn", 2),
        (2, "init-memory", 1),
        (3, "joint", 2),
    ]
    assert found[0].x == pytest.approx(LEFT)
    assert found[0].x + found[0].width == pytest.approx(found[1].x)
    assert found[-1].x + found[-1].width == pytest.approx(WIDTH - RIGHT)
    assert place(0, 5) < found[1].x < place(2, 5)


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"phase": "train", "epoch": 0, "epochs": 1, "steps": 1, "loss/cls": NaN, "lr/x": 1.0}\n')
    assert read_metrics(file) == [{"phase": "train", "epoch": 0, "epochs": 1, "steps": 1, "lr/x": 1.0}]
    assert read_metrics(tmp_path / "none") == []


def test_the_page_shows_every_figure(
    report: Callable[[list[dict[str, Any]]], Path], visit: Callable[..., Visit]
) -> None:
    visited = visit(report(ROWS))
    page = visited.go("training.html")
    expect(page.locator("html[data-ready]")).to_be_attached()
    names = page.eval_on_selector_all(".curve", "(all) => all.map((one) => one.dataset.name)")
    assert set(names) == {name for row in ROWS for name in row} - {"phase", "epoch", "epochs", "steps"}
    sections = page.eval_on_selector_all("#curves h2", "(all) => all.map((one) => one.textContent)")
    assert sections == ["Outcome", "Losses", "Memory", "The method’s own figures", "Schedule"]
    expect(page.locator(".curve[data-name='loss/cls'] .curve-value")).to_have_text("0.5")
    first = " ".join(page.locator(".phases li").all_inner_texts()[0].split())
    assert first == "1 init-cnn the network alone, 2 epochs"
    page.click("summary")
    expect(page.locator(".all-figures tbody tr")).to_have_count(5)


def test_the_values_of_an_epoch_are_read_by_pointer_and_keys(
    report: Callable[[list[dict[str, Any]]], Path], visit: Callable[..., Visit]
) -> None:
    page = visit(report(ROWS)).go("training.html")
    expect(page.locator("html[data-ready]")).to_be_attached()
    value = page.locator(".curve[data-name='loss/cls'] .curve-value")
    page.keyboard.press("ArrowRight")
    expect(value).to_have_text("2")
    expect(page.locator("#epoch-now")).to_have_text("Epoch 1: init-cnn, epoch 1 of 2")
    page.keyboard.press("ArrowRight")
    expect(value).to_have_text("1")
    page.keyboard.press("ArrowRight")
    expect(value).to_have_text("–")  # the memory's phase has no such loss
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(value).to_have_text("1.5")
    page.keyboard.press("Escape")
    expect(value).to_have_text("0.5")
    svg = page.locator(".curve[data-name='keep'] svg")
    box = svg.bounding_box()
    assert box is not None
    svg.hover(position={"x": box["width"] * place(1, 5) / WIDTH, "y": box["height"] / 2})
    expect(value).to_have_text("1")
    expect(page.locator(".cursor[visibility=visible]")).to_have_count(page.locator(".curve").count())


def test_a_run_without_a_log_says_so(
    report: Callable[[list[dict[str, Any]] | None], Path], visit: Callable[..., Visit]
) -> None:
    page = visit(report(None)).go("training.html")
    expect(page.locator("main")).to_contain_text("no epoch")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone(
    dark: bool, report: Callable[[list[dict[str, Any]]], Path], visit: Callable[..., Visit]
) -> None:
    hostile = {"phase": "<script>alert(1)</script>", "epoch": 0, "epochs": 1, "steps": 1, "<b>" + "x" * 200: 1.0}
    visited = visit(report([*ROWS, hostile]), width=390, dark=dark)
    page = visited.go("training.html")
    expect(page.locator("html[data-ready]")).to_be_attached()
    assert page.locator("main script, main b b").count() == 0
    assert not visited.overflows()
