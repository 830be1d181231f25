"""Reviewing many images in a real browser: the list of issues, selections, keys, and decisions that last."""

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from somnet.data.decisions import read_decisions
from somnet.errors import ConfigError
from somnet.report.class_pages import packed
from somnet.report.frame import Frame, write_data
from somnet.report.records import STATES, read_records
from somnet.report.site import STORE, write_report
from somnet.runs.run import Run
from tests.report.conftest import HOSTILE, Visit, made_up_run
from tests.report.test_site import (
    decisions_of,
    download,
    expect_count,
    expect_decisions,
    expect_rows,
    holds_its_layout,
    shown_rows,
)

Visits = Callable[..., Visit]
CLASSES = [f"kind {number}" for number in range(8)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """300 issues of 8 classes."""
    files = [(f"web/{CLASSES[n % 8]}/photo {n:03d}.jpg", CLASSES[n % 8]) for n in range(300)]
    made = made_up_run(tmp_path_factory.mktemp("many") / "run", files)
    write_report(made)
    return made


def tile(page: Page, place: int) -> str:
    """Where the tile of a place of the sheet is."""
    return f"#sheet .tile[data-row='{shown_rows(page)[place]}']"


def test_300_issues_take_60_actions(many: Run, visit: Visits) -> None:
    page = visit(many.path / "report").go("list.html#kind=issues")
    expect(page.locator("#list-count")).to_have_text("300 of 300 images")
    actions = 0

    def press(*keys: str) -> None:
        nonlocal actions
        for key in keys:
            page.keyboard.press(key)
            actions += 1

    for _ in CLASSES:
        press("n")
        page.wait_for_function("() => somnet.sheet.rows().length < 60 && somnet.sheet.active() === 0")
        page.locator(tile(page, 24)).click(modifiers=["Shift"])
        actions += 1
        expect(page.locator("#selected-count")).to_have_text("25 selected")
        press("d", "s", "a", "k")
    assert actions <= 60
    expect_count(page, 300)
    made = decisions_of(page)
    assert sorted(made.values()) == ["d"] * 200 + ["k"] * 92 + ["s"] * 8
    worst = [int(rows[0]) for _, rows in read_records(many).by_class()]
    assert {made[str(row)] for row in worst} == {"d"}


def test_a_filter_is_remembered_and_reset(many: Run, visit: Visits) -> None:
    opened = visit(many.path / "report")
    page = opened.go("index.html")
    records = read_records(many)
    labels = int(records.flags["label"].sum())
    page.click(".figures .label a")
    page.wait_for_url("**/list.html*")  # the page that is left is ready, too
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#list-count")).to_have_text(f"{labels} of 300 images")
    page.select_option("#filter-class", "3")
    page.fill("#filter-search", "PHOTO 1")
    page.select_option("#filter-sort", "name")
    names = many.scores()["file_name"].to_pylist()
    wanted = [row for row in range(300) if records.flags["label"][row] and records.label[row] == 3]
    expected = [row for row in wanted if "photo 1" in names[row]]
    expect_rows(page, sorted(expected, key=lambda row: str(names[row])))
    page.locator("#sheet .tile").first.click()
    expect(page.locator("#card-place")).to_have_text(f"1 of {len(expected)}")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#card-place")).to_have_text(f"2 of {len(expected)}")
    page.reload()  # with the card open
    expect(page.locator("#card-place")).to_have_text(f"2 of {len(expected)}")
    page = opened.go("decisions.html")
    page = opened.go("list.html")
    expect(page.locator("#filter-search")).to_have_value("PHOTO 1")
    expect_rows(page, sorted(expected, key=lambda row: str(names[row])))
    page.click("#filter-reset")
    expect(page.locator("#list-count")).to_have_text("300 of 300 images")
    page = opened.go("list.html#kind=constructor&class=%3Cb%3E&decision=__proto__")
    expect(page.locator("#list-count")).to_have_text("300 of 300 images")


def test_the_filter_of_class_pages_stays_from_class_to_class(many: Run, visit: Visits) -> None:
    page = visit(many.path / "report").go("class.html#0")
    page.select_option("#filter-kind", "label")
    page.keyboard.press("Escape")
    page.locator("#sheet .tile").first.focus()
    label = page.evaluate("somnet.loaded('run').order[somnet.loaded('run').order.indexOf(0) + 1]")
    page.keyboard.press("n")
    expect(page.locator("#class-choice")).to_have_value(str(label))
    expect(page.locator("#sheet .tile.current")).to_have_count(1)
    expect(page.locator("#filter-kind")).to_have_value("label")
    records = read_records(many)
    wanted = np.flatnonzero(records.flags["label"] & (records.label == label)).tolist()
    sorted_rows = "wanted => String([...somnet.sheet.rows()].sort((a, b) => a - b)) === String(wanted)"
    page.wait_for_function(sorted_rows, arg=wanted)


def test_tiles_show_base_names(many: Run, visit: Visits) -> None:
    page = visit(many.path / "report").go("list.html")
    first = shown_rows(page)[0]
    expect(page.locator("#sheet .tile").first.locator(".caption > bdi")).to_have_text(f"photo {first:03d}.jpg")


def test_images_are_selected_by_mouse_and_keys(many: Run, visit: Visits) -> None:
    page = visit(many.path / "report").go("list.html")
    rows = shown_rows(page)

    def expect_chosen(*places: int) -> None:
        same = "wanted => String([...somnet.sheet.selected()].sort((a, b) => a - b)) === String(wanted)"
        page.wait_for_function(same, arg=sorted(rows[place] for place in places))

    page.locator(tile(page, 1)).click(modifiers=["Control"])
    page.locator(tile(page, 3)).click(modifiers=["Control"])
    expect_chosen(1, 3)
    page.locator(tile(page, 5)).click(modifiers=["Shift"])
    expect_chosen(3, 4, 5)
    page.keyboard.press("Shift+ArrowLeft")
    expect_chosen(3, 4)
    page.keyboard.press("Escape")
    expect_chosen()
    columns = page.evaluate("somnet.sheet.columns()")
    start, end = (page.locator(tile(page, place)).bounding_box() for place in (1, columns + 2))
    assert start is not None
    assert end is not None
    page.mouse.move(start["x"] + 5, start["y"] + 5)
    page.mouse.down()
    page.mouse.move(end["x"] + 20, end["y"] + 20, steps=5)
    page.mouse.up()
    expect_chosen(1, 2, columns + 1, columns + 2)
    expect(page.locator("#card")).to_be_hidden()  # a lasso opens nothing
    page.keyboard.press("Escape")
    page.locator(tile(page, 4)).focus()
    page.keyboard.press("a")
    expect_chosen(*range(4, 300))
    page.keyboard.press("Control+a")
    expect_chosen(*range(300))
    page.keyboard.press("s")
    expect_decisions(page, {str(row): "s" for row in rows})
    expect_chosen()
    page.keyboard.press("u")
    expect_decisions(page, {})


def test_undo_outlives_the_page(many: Run, visit: Visits) -> None:
    opened = visit(many.path / "report")
    page = opened.go("list.html")
    rows = shown_rows(page)
    for key in ("ArrowRight", "d", "k"):
        page.keyboard.press(key)
    page.locator(tile(page, 9)).click(modifiers=["Shift"])
    page.keyboard.press("d")
    expect_count(page, 10)
    page = opened.go("class.html")
    expect_count(page, 10)
    page.keyboard.press("u")
    expect_decisions(page, {str(rows[0]): "d", str(rows[1]): "k"})
    page = opened.go("decisions.html")
    page.keyboard.press("u")
    expect_decisions(page, {str(rows[0]): "d"})
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.click("#undo")
    expect_decisions(page, {})
    expect(page.locator("#undo")).to_be_disabled()


def test_keys_behind_the_last_image_change_nothing(many: Run, visit: Visits) -> None:
    opened = visit(many.path / "report")
    page = opened.go("list.html#kind=all&search=photo%20007")
    (only,) = shown_rows(page)
    for key in ("ArrowRight", "d", "k", "k", "s"):
        page.keyboard.press(key)
    expect_decisions(page, {str(only): "d"})
    expect(page.locator("#note")).to_contain_text("last image")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("k")
    expect_decisions(page, {str(only): "k"})
    page.locator("#sheet .tile").click()
    expect(page.locator("#card")).to_be_visible()
    for key in ("d", "k", "k"):
        page.keyboard.press(key)
    expect_decisions(page, {str(only): "d"})
    expect(page.locator("#card-end")).to_be_visible()
    page.click("#mark-unsure")  # a click means this image
    expect_decisions(page, {str(only): "s"})


def test_no_key_decides_before_an_image_is_walked_to(many: Run, visit: Visits) -> None:
    page = visit(many.path / "report").go("list.html")
    for key in ("d", "k", "r", "s"):
        page.keyboard.press(key)
    expect_decisions(page, {})
    expect(page.locator("#note")).to_contain_text("Walk to an image")


def test_a_new_label_is_asked_for(many: Run, visit: Visits) -> None:
    records = read_records(many)
    differs = records.predicted != records.label
    page = visit(many.path / "report").go("list.html#kind=all")
    rows = shown_rows(page)
    agreed = next(place for place in range(9) if not differs[rows[place]])
    page.locator(tile(page, agreed)).focus()
    page.keyboard.press("r")
    expect(page.locator("#ask-label")).to_be_visible()
    page.keyboard.type("du")
    page.keyboard.press("Escape")  # not only what was typed goes
    expect(page.locator("#ask-label")).to_be_hidden()
    expect_decisions(page, {})
    other = int(records.label[rows[agreed]] + 5) % 8
    page.keyboard.press("r")
    expect(page.locator("#ask-label")).to_be_visible()
    page.keyboard.type(CLASSES[other].upper())
    page.keyboard.press("Enter")
    expect(page.locator("#ask-label")).to_be_hidden()
    expect_decisions(page, {str(rows[agreed]): f"r{other}"})
    page.keyboard.press("u")
    expect_decisions(page, {})
    page.keyboard.press("Control+a")
    page.keyboard.press("r")
    expect(page.locator("#label-options li").first).to_contain_text("Each as suggested")
    page.keyboard.press("Enter")
    expect(page.locator("#note")).to_contain_text(f"{int(differs.sum())} images: relabel")
    expect_decisions(page, {str(row): f"r{records.predicted[row]}" for row in np.flatnonzero(differs)})


def refused(page: Page, file: Path, text: str) -> str:
    file.write_text(text)
    page.set_input_files("#file", file)
    expect(page.locator("#note")).to_contain_text("Nothing was loaded")
    note = page.locator("#note").inner_text()
    page.evaluate("document.getElementById('note').textContent = ''")
    expect_decisions(page, {})
    with pytest.raises(ConfigError):  # as strict as the command line
        read_decisions(file)
    return note


def test_decisions_are_read_as_strictly_as_the_command_line_does(tmp_path: Path, visit: Visits) -> None:
    names = ["constructor", "__proto__", "toString", "=b.jpg", "a.jpg"]
    made = made_up_run(tmp_path / "run", [(name, label) for name, label in zip(names, "xyxyx", strict=True)])
    page = visit(write_report(made).parent).go("decisions.html")
    file = tmp_path / "decisions.csv"
    head = "file_name,decision,label\n"
    for word in ("constructor", "__proto__", "toString", "hasOwnProperty", "Keep", ""):
        assert "line 2 is not a decision" in refused(page, file, f"{head}a.jpg,{word},\n")
    assert "no column decision" in refused(page, file, "file_name,constructor,label\na.jpg,keep,\n")
    assert "no column file_name" in refused(page, file, "")
    assert "line 3 contradicts" in refused(page, file, f"{head}a.jpg,keep,\na.jpg,drop,\n")
    assert "line 2 is not a decision" in refused(page, file, f"{head}a.jpg,relabel,\n")
    for line, said in (("valueOf,keep,", "does not have, valueOf"), ("a.jpg,relabel,toString", "class that the run")):
        file.write_text(f"{head}{line}\n")
        page.set_input_files("#file", file)
        expect(page.locator("#note")).to_contain_text(said)
        expect_decisions(page, {})
    file.write_text(
        f"{head}constructor,keep,\r\n__proto__,drop,\ntoString,unsure,\n'=b.jpg,relabel,x\na.jpg,keep,\na.jpg,keep,\n"
    )
    page.set_input_files("#file", file)
    expect(page.locator("#note")).to_have_text("5 decisions loaded.")
    expect_decisions(page, {"0": "k", "1": "d", "2": "s", "3": "r0", "4": "k"})
    kept = read_decisions(file)
    file.write_bytes(download(page))
    assert read_decisions(file) == kept


def test_tables_are_taken_apart_as_pythons_reader_does(many: Run, visit: Visits) -> None:
    """Quotes where none belong, lines that end in any way: a name must not become another one's."""
    rng = random.Random(0)
    texts = ["".join(rng.choices('"",\r\n\'=ab', k=rng.randint(0, 14))) for _ in range(3000)]
    texts += [
        '5" pipe.jpg,keep,\nb.jpg,drop,\n',
        'x"y",keep',
        '"a"b"c,d',
        '""',
        '"',
        "a\r\n\r\nb",
        '"open,keep,\nb.jpg',
    ]
    found = visit(many.path / "report").go("decisions.html").evaluate("texts => texts.map(somnet.readCsv)", texts)
    expected = [[row for row in csv.reader(io.StringIO(text, newline="")) if row] for text in texts]
    different = [(t, f, e) for t, f, e in zip(texts, found, expected, strict=True) if f != e]
    assert different == []


def test_a_label_beside_another_decision_says_nothing(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    page, file = visit(write_report(made).parent).go("decisions.html"), tmp_path / "decisions.csv"
    file.write_text("file_name,decision,label\na.jpg,keep,elsewhere\na.jpg,keep,x\nb.jpg,drop,constructor\n")
    assert len(read_decisions(file)) == 2
    page.set_input_files("#file", file)
    expect(page.locator("#note")).to_have_text("2 decisions loaded.")


def test_a_list_of_hostile_names_holds_its_layout(tmp_path: Path, visit: Visits) -> None:
    names = ["W" * 200, f"{HOSTILE}.jpg", "a/b/c/\u202e\u05d0.jpg", "ends with a slash/"]
    made = made_up_run(tmp_path / "run", [(name, "M" * 150 if n % 2 else HOSTILE) for n, name in enumerate(names)])
    page = visit(write_report(made).parent).go("list.html#kind=all")
    expect(page.locator("#sheet .tile")).to_have_count(4)
    page.keyboard.press("Control+a")
    assert holds_its_layout(page)
    page.keyboard.press("r")
    expect(page.locator("#ask-label")).to_be_visible()
    assert holds_its_layout(page, "#ask-label")
    assert page.locator("main img:not([id]), main script").count() == 0


def test_a_hundred_thousand_images_are_a_few_tiles(tmp_path: Path, visit: Visits) -> None:
    """Pages of more images than a run of a test could have: what the browser gets of them."""
    count, each = 100_000, 5000
    rng = np.random.default_rng(0)
    frame = Frame("large")
    frame.write_static(tmp_path)
    for page_name, name in (("list", "Issues"), ("class", "Classes")):
        frame.write_page(tmp_path, f"{page_name}.html", f"{page_name}.html", page=name)
    label, score = np.arange(count, dtype=np.int32) % 100, rng.random(count).astype(np.float32)
    flags = np.where(score < 0.3, 1 << STATES.index("label"), 1).astype(np.uint16)
    run = {"fingerprint": "large", "classes": [f"class {n}" for n in range(100)], "rows": count, "images": count}
    run |= {"kinds": [{"name": state, "title": state} for state in STATES], "counts": [1000] * 100, "threshold": 25}
    run |= {
        "order": list(range(100)),
        "below": [1000 * n for n in range(101)],
        "imagesPerFile": 100,
        "namesPerFile": each,
    }
    write_data(tmp_path, "run", run)
    write_data(tmp_path, STORE, {"served": False})
    columns: dict[str, Any] = {
        "label": label,
        "seen": label,
        "sure": np.zeros(count, np.uint8),
        "score": score,
        "flags": flags,
    }
    columns["pictured"] = np.zeros(count, np.uint8)
    write_data(tmp_path, "images", {name: packed(column) for name, column in columns.items()})
    for first in range(0, count, each):
        write_data(tmp_path, f"names-{first // each}", [f"a/b/{row:06d}.jpg" for row in range(first, first + each)])
    opened = visit(tmp_path)
    page = opened.go("list.html#kind=all")
    expect(page.locator("#list-count")).to_have_text("100,000 of 100,000 images")
    assert page.locator(".tile").count() < 200
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Control+a")
    page.keyboard.press("d")
    expect(page.locator("#note")).to_have_text("100,000 images: drop.")
    page.keyboard.press("u")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator(tile(page, count - 1))).to_be_visible()
    assert page.locator(".tile").count() < 200
    page.fill("#filter-search", "99998")
    expect(page.locator("#list-count")).to_have_text("1 of 100,000 images")
    expect(page.locator("#sheet .tile bdi").first).to_have_text("099998.jpg")
    page = opened.go("class.html#7")
    expect(page.locator("#list-count")).to_have_text("1,000 of 1,000 images")
    assert page.locator(".tile").count() < 200
