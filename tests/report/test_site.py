"""The report in a real browser."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, TimeoutError, expect

from somnet.report.site import is_report, write_report
from somnet.runs.run import Run
from somnet.system.files import csv_cell
from tests.report.conftest import HOSTILE, Visit, made_up_run, visiting

Visits = Callable[..., Visit]
WIDTHS = (1280, 390)


def place_of(run: Run, label: str) -> int:
    return run.classes.index(label)


def holds_its_layout(page: Page, part: str = "html") -> bool:
    """Whether nothing sticks out sideways, on a laptop and on a phone, once the page has heard of its new width."""
    fits = "part => { const seen = document.querySelector(part); return seen.scrollWidth <= seen.clientWidth; }"
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        try:
            page.wait_for_function(fits, arg=part)
        except TimeoutError:
            return False
    return True


def decisions_of(page: Page) -> dict[str, str]:
    return dict(page.evaluate("Object.fromEntries(somnet.decisions.all().map(([row, d]) => [String(row), d]))"))


def expect_decisions(page: Page, wanted: dict[str, str]) -> None:
    """What a key does may take a moment: a dialog closes, a server answers."""
    same = "wanted => JSON.stringify(somnet.decisions.all()) === wanted"
    page.wait_for_function(
        same, arg=json.dumps([[int(row), wanted[row]] for row in sorted(wanted, key=int)]).replace(" ", "")
    )


def expect_count(page: Page, wanted: int) -> None:
    """So many decisions."""
    page.wait_for_function("wanted => somnet.decisions.all().length === wanted", arg=wanted)


def expect_rows(page: Page, wanted: list[int]) -> None:
    page.wait_for_function("wanted => String(somnet.sheet.rows()) === String(wanted)", arg=wanted)


def shown_rows(page: Page) -> list[int]:
    return list(page.evaluate("[...somnet.sheet.rows()]"))


def relabel(page: Page, label: str) -> None:
    """By key, with the label's name typed."""
    page.keyboard.press("r")
    expect(page.locator("#ask-label")).to_be_visible()
    page.locator("#label-search").fill(label)
    page.keyboard.press("Enter")
    expect(page.locator("#ask-label")).to_be_hidden()


def download(page: Page) -> bytes:
    with page.expect_download() as waiting:
        page.click("#download")
    return Path(waiting.value.path()).read_bytes()


def test_train_leaves_the_report_and_it_needs_nothing_else(run: Run, visit: Visits, tmp_path: Path) -> None:
    assert is_report(run.path / "report")
    assert "report" in (run.path / "train.log").read_text()
    shutil.copytree(run.path / "report", tmp_path / "sent" / "elsewhere")
    page = visit(tmp_path / "sent" / "elsewhere").go("class.html")
    expect(page.locator("#sheet .tile")).not_to_have_count(0)
    page.wait_for_function("() => [...document.images].filter((image) => image.naturalWidth > 0).length > 2")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_every_page_opens_without_a_complaint(run: Run, visit: Visits, width: int, dark: bool) -> None:
    pages = sorted(file.name for file in (run.path / "report").glob("*.html"))
    assert {"index.html", "class.html", "decisions.html"} <= set(pages)
    opened = visit(run.path / "report", width=width, dark=dark)
    for name in pages:
        page = opened.go(name)
        policy = page.get_attribute("meta[http-equiv='Content-Security-Policy']", "content") or ""
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not opened.overflows(), name
    text = (run.path / "report" / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=(?!alert)", text)


def test_the_overview_counts_what_the_tables_say(run: Run, visit: Visits) -> None:
    page = visit(run.path / "report").go("index.html")
    table = run.scores()
    for state, column in (("label", "is_label_issue"), ("duplicate", "is_near_duplicate_issue")):
        count = sum(table[column].to_pylist())
        expect(page.locator(f".figures .{state} dd")).to_contain_text(re.compile(rf"^{count}\D"))
    expect(page.locator(".figures .unreadable dd")).to_contain_text(re.compile(r"^1\D"))
    expect(page.locator("table.classes tbody tr")).to_have_count(3)
    body = page.locator("main").inner_text()
    assert "Near duplicates" not in body  # they were looked for
    for expected in (
        "@broken.jpg",
        "not an image",
        run.data["fingerprint"],
        "torch",
        "somnet train",
    ):
        assert expected in body


def test_the_threshold_tells_which_images_go(run: Run, visit: Visits) -> None:
    label = place_of(run, "oak, red")
    page = visit(run.path / "report").go(f"class.html#{label}")
    table = run.scores().filter(pa.compute.invert(run.scores()["is_unreadable_issue"])).to_pylist()
    for step in (0, 37, 50, 100):
        page.locator("#threshold").fill(str(step))
        go = [r for r in table if r["label_score"] < step / 100]
        mine = [r for r in go if r["given_label"] == "oak, red"]
        expect(page.locator("#would-go")).to_have_text(
            f"Below {step / 100:.2f}: {len(mine)} of 8 images here would go, {len(go)} of {len(table)} in all classes."
        )
        expect(page.locator("#sheet .tile.removed")).to_have_count(len(mine))
    page.select_option("#filter-kind", "go")
    expect(page.locator("#sheet .tile")).to_have_count(len(mine))
    page.locator("#threshold").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#would-go b").first).to_have_text("0.99")


def test_the_heat_map_sums_the_weights(run: Run, visit: Visits) -> None:
    page = visit(run.path / "report").go("class.html#0")
    page.locator("#sheet .tile").first.click()
    expect(page.locator("#card")).to_be_visible()
    expect(page.locator("#heat")).to_be_hidden()
    page.keyboard.press("h")
    expect(page.locator("#heat")).to_be_visible()
    name = page.locator("#card-name").inner_text()
    regions = pa.parquet.read_table(run.path / "regions.parquet").to_pylist()
    heat = np.zeros((64, 64))
    for region in (row for row in regions if row["file_name"] == name):
        x1, y1, x2, y2 = np.rint(region["box"]).astype(int)
        heat[y1:y2, x1:x2] += region["roi_weight"]
    shown = float(page.locator("#scale-top").inner_text())
    assert shown == pytest.approx(heat.max(), abs=0.02)
    bright = page.evaluate(
        "[...document.getElementById('heat').getContext('2d').getImageData(0, 0, 128, 128).data]"
        ".filter((_, at) => at % 4 === 0)"
    )
    expected = np.kron(heat, np.ones((2, 2))).ravel()
    assert np.corrcoef(bright, expected)[0, 1] > 0.9 or heat.std() < 1e-6
    boxes = page.locator("#boxes rect").count()
    page.keyboard.press("x")
    assert page.locator("#boxes rect").count() >= boxes
    page.keyboard.press("x")
    page.keyboard.press("b")
    expect(page.locator("#boxes rect")).to_have_count(0)
    page.click("#toggle-heat")
    expect(page.locator("#heat")).to_be_hidden()


def test_a_class_is_walked_and_decided_by_keyboard(run: Run, visit: Visits) -> None:
    label = place_of(run, HOSTILE)
    page = visit(run.path / "report").go(f"class.html#{label}")
    rows = shown_rows(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#card-place")).to_have_text("1 of 8")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#card-place")).to_have_text("2 of 8")
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(page.locator("#card-place")).to_have_text("4 of 8")
    relabel(page, run.classes[(label + 1) % 3])
    expect(page.locator("#card-place")).to_have_text("5 of 8")
    wanted = {str(rows[1]): "k", str(rows[2]): "d", str(rows[3]): f"r{(label + 1) % 3}"}
    expect_decisions(page, wanted)
    page.keyboard.press("d")
    page.keyboard.press("u")
    expect(page.locator("#card-place")).to_have_text("5 of 8")
    expect_decisions(page, wanted)
    page.keyboard.press("Escape")
    expect(page.locator("#card")).to_be_hidden()
    expect(page.locator("#sheet .tile[data-decision='d']")).to_have_count(1)


def test_decisions_survive_download_and_reload(run: Run, visit: Visits, tmp_path: Path) -> None:
    opened = visit(run.path / "report")
    page = opened.go("class.html#0")
    page.locator("#threshold").fill("100")
    page.locator("#sheet .tile").first.click()
    expect(page.locator("#card")).to_be_visible()
    relabel(page, run.classes[1])
    page.keyboard.press("Escape")
    page.click("#drop-all")
    expect(page.locator("#bulk-note")).to_contain_text("of all classes marked drop")
    every = page.evaluate("somnet.loaded('run').below[100]")
    made = decisions_of(page)
    assert set(made.values()) <= {"d", "r1"}
    assert len(made) == every
    page = opened.go("decisions.html")
    expect_decisions(page, made)
    expect(page.locator("#decisions li")).to_have_count(len(made))
    text = download(page)
    lines = list(csv.DictReader(io.StringIO(text.decode())))
    names = [csv_cell(name) for name in run.scores()["file_name"].to_pylist()]
    words = {"d": ("drop", ""), "r1": ("relabel", csv_cell(run.classes[1]))}
    assert {line["file_name"]: (line["decision"], line["label"]) for line in lines} == {
        names[int(row)]: words[decision] for row, decision in made.items()
    }
    (tmp_path / "decisions.csv").write_bytes(text)
    page.click("#clear")
    page.click("#sure-yes")
    expect_decisions(page, {})
    page.set_input_files("#file", tmp_path / "decisions.csv")
    expect(page.locator("#note")).to_have_text(f"{len(made)} decisions loaded.")
    expect_decisions(page, made)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    page.set_input_files("#file", tmp_path / "other.csv")
    expect(page.locator("#note")).to_contain_text("not a decisions.csv")


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200)
NASTY = st.sampled_from(
    [
        HOSTILE,
        '"><script>alert(1)</script>',
        "=cmd()",
        "+1",
        "@sum",
        "'=quoted",
        "\u202eright to left \u05d0\u05d1\u05d2.jpg",
        "W" * 200,
        "</script><script>alert(2)</script>",
        "{{ 7 * 7 }}${alert(3)}",
        'a\nb,"c"\r',
    ]
)
TEXTS = st.one_of(NASTY, ANY_TEXT)


@settings(max_examples=4)
@given(
    names=st.lists(TEXTS, min_size=3, max_size=6, unique=True),
    labels=st.lists(TEXTS, min_size=2, max_size=3, unique=True),
)
@example(
    names=["W" * 200, '"><script>alert(1)</script>', "=cmd()", "\u202e\u05d0.jpg", "a\nb", "\t=x"],
    labels=[HOSTILE, "M" * 200, "=1+1"],
)
def test_no_name_runs_or_breaks_the_layout(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, names: list[str], labels: list[str]
) -> None:
    files = [(name, labels[place % len(labels)]) for place, name in enumerate(names)]
    made = made_up_run(tmp_path_factory.mktemp("hostile") / "run", files, bad=[(names[0] + "!", labels[0])])
    folder = write_report(made).parent
    with visiting(chromium, folder) as opened:
        page = opened.go("index.html")
        assert made.classes[0].strip() in (page.locator("main").text_content() or "")
        assert holds_its_layout(page)
        page = opened.go("class.html")
        assert holds_its_layout(page)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator("#card")).to_be_visible()
        page.wait_for_function("names => names.includes(document.getElementById('card-name').textContent)", arg=names)
        assert holds_its_layout(page, "#card")
        page.evaluate(
            f"somnet.decisions.set([...Array({len(names)}).keys()].map((row) => [row, row % 2 ? 'd' : 'r0']))"
        )
        page = opened.go("decisions.html")
        expect(page.locator("#decisions li")).to_have_count(len(names))
        assert holds_its_layout(page)
        cells = list(csv.reader(io.StringIO(download(page).decode(), newline="")))
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for line in cells for cell in line)
        assert [line[0] for line in cells[1:]] == [csv_cell(name) for name in names]
        assert page.locator("main img, main script").count() == 0


def test_a_run_whose_images_are_gone_still_has_a_report(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y"), ("c.jpg", "x")])
    opened = visit(write_report(made).parent)
    assert "Pictures: 3 of 3" in opened.go("index.html").locator("main").inner_text()
    page = opened.go("class.html#0")
    expect(page.locator("#sheet .missing")).to_have_count(2)
    page.locator("#sheet .tile").first.click()
    expect(page.locator("#card-missing")).to_be_visible()
    expect(page.locator("#boxes rect")).to_have_count(2)


def test_the_choice_of_a_class_stays_on_one_line_of_a_phone(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "a class with quite a long name"), ("b.jpg", "y")])
    page = visit(write_report(made).parent, width=390).go("class.html#0")
    names = ("#previous-class", "#class-choice", "#next-class")
    middles = [box["y"] + box["height"] / 2 for name in names if (box := page.locator(name).bounding_box())]
    assert len(middles) == 3
    assert max(middles) - min(middles) < 4
    assert holds_its_layout(page)


def test_a_class_of_many_images_comes_in_parts(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [(f"{n}.jpg", "many" if n % 50 else "few") for n in range(1000)])
    folder = write_report(made).parent
    page = visit(folder).go(f"class.html#{made.classes.index('many')}")
    assert page.locator("#sheet .tile").count() <= 300
    row = shown_rows(page)[777]
    page.evaluate(f"location.hash = '#1/{row}'")
    expect(page.locator("#card-place")).to_have_text("778 of 980")
    expect(page.locator("#card-name")).to_have_text(f"{row}.jpg")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#card-place")).to_have_text("779 of 980")


def test_leaks_between_train_and_test_are_named(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [("a.jpg", "x"), ("b.jpg", "y")])
    lines = ["group,file_name,split,label,exact", "0,a.jpg,train,x,true", "0,b.jpg,train,y,true"]
    lines += ["1,'=b.jpg,train,y,false", f"1,{HOSTILE},test,y,false"]
    (made.path / "duplicates.csv").write_text("\n".join(lines))
    text = visit(write_report(made).parent).go("index.html").locator("main").inner_text()
    assert "2 groups" in text
    assert "1 of them lie in train and held-out images at once" in text
    duplicates = text[text.index("2 groups") :]
    assert "\n=b.jpg" in duplicates
    assert duplicates.index(HOSTILE) < duplicates.index("same content")  # leaks come first
