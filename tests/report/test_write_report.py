"""The files of a report: what is written, what is never replaced, and what happens when they cannot be written."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from somnet.errors import RunError, SomnetError
from somnet.report.site import is_report, write_report
from somnet.runs.run import Run
from somnet.training.train import train, train_without_report
from tests.report.conftest import Visit, made_up_run
from tests.report.test_site import expect_decisions

if TYPE_CHECKING:
    from tests.conftest import Tiny


def test_a_foreign_folder_is_not_replaced(tmp_path: Path) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    (made.path / "report").mkdir()
    (made.path / "report" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="is not a somnet report"):
        write_report(made)
    assert (made.path / "report" / "mine.txt").read_text() == "mine"
    index = write_report(made, tmp_path / "other")
    before = index.read_bytes()
    assert write_report(made, tmp_path / "other").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other", "run"]


def test_what_is_not_of_a_report_outlives_it(tmp_path: Path) -> None:
    """People save decisions.csv where the report lies."""
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    folder = write_report(made).parent
    (folder / "decisions.csv").write_text("an evening's work")
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("mine")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: main")
    (folder / "data" / "mine.js").write_text("mine")
    (folder / "class.html").rename(folder / "old-page.html")
    listed = (folder / ".somnet.json").read_text()
    (folder / ".somnet.json").write_text(listed.replace("class.html", "old-page.html"))  # as of an earlier version
    write_report(made)
    assert (folder / "decisions.csv").read_text() == "an evening's work"
    assert (folder / "notes" / "mine.txt").read_text() == "mine"
    assert (folder / ".git" / "HEAD").read_text() == "ref: main"
    assert (folder / "data" / "mine.js").read_text() == "mine"
    assert not (folder / "old-page.html").exists()


def test_a_run_that_starts_over_keeps_what_was_beside_its_report(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(data, tiny.config("plain"), out=out, workers=0)
    (out / "report" / "decisions.csv").write_text("an evening's work")
    train(data, tiny.config("plain", seed=1), out=out, workers=0, overwrite=True)
    assert (out / "report" / "decisions.csv").read_text() == "an evening's work"
    assert re.search(r"Seed</dt>\s*<dd[^>]*>1<", (out / "report" / "index.html").read_text())


def test_pictures_outlive_the_images(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    """somnet report --open is how people look at a report, also where the data are not at hand."""
    shutil.copytree(data, tmp_path / "web")
    made = train(tmp_path / "web", tiny.config("plain"), out=tmp_path / "run", workers=0)
    (tmp_path / "web").rename(tmp_path / "moved")
    before = sorted((made.path / "report").rglob("*"))
    with pytest.raises(RunError, match=r"open .*index\.html, or bring the images back"):
        write_report(made)
    assert sorted((made.path / "report").rglob("*")) == before
    assert not is_report(tmp_path / "other")
    assert is_report(write_report(made, tmp_path / "other").parent)


def test_tables_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    other = made_up_run(tmp_path / "other", [("a.jpg", "x"), ("b.jpg", "y"), ("c.jpg", "y")])
    shutil.copy(other.path / "regions.parquet", made.path)
    with pytest.raises(RunError, match="do not match"):
        write_report(made)
    assert not (made.path / "report").exists()


def test_data_files_are_scripts_that_only_hand_over_json(run: Run) -> None:
    for file in (run.path / "report" / "data").glob("*.js"):
        text = file.read_text(encoding="ascii")
        assert not set("<>&") & set(text)
        name, value = re.fullmatch(r'somnet\.data\("([\w-]+)", (.*)\);\n', text, re.DOTALL).groups()  # type: ignore[union-attr]
        assert name == file.stem
        json.loads(value)


def test_the_overview_lists_what_to_judge_first(run: Run) -> None:
    rows = [row for row in enumerate(run.scores().to_pylist()) if row[1]["review_order"] is not None]
    rows.sort(key=lambda row: row[1]["review_order"])
    page = (run.path / "report" / "index.html").read_text(encoding="utf-8")
    linked = [f'href="list.html#kind=first&amp;sort=first&amp;row={number}"' for number, _ in rows[:12]]
    assert linked
    places = [page.index(link) for link in linked]
    assert places == sorted(places)
    assert f"Judge all {len(rows)}" in page


def test_what_to_judge_first_is_walked_through_in_its_order(run: Run, visit: Callable[..., Visit]) -> None:
    order = {number: row["review_order"] for number, row in enumerate(run.scores().to_pylist()) if row["review_order"]}
    page = visit(run.path / "report").go("index.html")
    page.click("text=Judge all")
    page.wait_for_url("**/list.html*")  # the page that is left is ready, too
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#list-count")).to_have_text(f"{len(order)} of {run.scores().num_rows} images")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("k")
    page.keyboard.press("d")
    first, second = sorted(order, key=lambda number: order[number])[:2]
    expect_decisions(page, {str(first): "k", str(second): "d"})
    page.click("nav >> text=Overview")
    expect(page.locator("#decided")).to_have_text("2")


def test_a_report_that_fails_does_not_lose_the_run(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    out = tmp_path / "a run"
    train_without_report(data, tiny.config("plain"), out=out, workers=0)
    assert not (out / "report").exists()
    (out / "report").mkdir()
    (out / "report" / "mine.txt").write_text("mine")
    with pytest.raises(SomnetError, match="the run is complete") as told:
        train(data, tiny.config("plain"), out=out, workers=0, resume=True)
    assert told.value.typed.endswith(f"somnet report '{out}'")
    assert Run(out).scores().num_rows == 18
    shutil.rmtree(out / "report")
    train(data, tiny.config("plain"), out=out, workers=0, resume=True)
    assert is_report(out / "report")
    text = (out / "report" / "index.html").read_text()
    assert "the method plain tells nothing about regions" in text


def test_a_method_with_regions_is_not_said_to_have_none(tmp_path: Path) -> None:
    """Where the whole image outweighs its regions everywhere, as after a short training."""
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    table = made.scores()
    place = table.schema.get_field_index("background_score")
    ones = pa.array(np.ones(table.num_rows, np.float32))
    pq.write_table(table.set_column(place, "background_score", ones), made.path / "issues.parquet")
    assert "tells nothing about regions" not in write_report(made).read_text()


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*: choose a writable place"):
        write_report(made, tmp_path / "file" / "report")
