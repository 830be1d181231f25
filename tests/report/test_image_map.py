"""The map of the images: laid out so that what is alike is together, and in a real browser drawn around and decided."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from somnet.report import image_map
from somnet.report.image_map import lay_out
from somnet.report.similar import nearest
from somnet.report.site import write_report
from somnet.runs.run import Run
from somnet.system.folders import VECTORS
from tests.report.conftest import HOSTILE, Visit, made_up_run, next_frames
from tests.report.test_similar import clusters
from tests.report.test_site import expect_decisions, shown_rows

Visits = Callable[..., Visit]
GROUPS = 5


def share_of_own(count: int) -> float:
    """How many of the five nearest on the map are of an image's own cluster."""
    places = lay_out(clusters(count, GROUPS))
    assert places.shape == (count, 2)
    assert places.min() >= 0
    assert places.max() <= 1
    near = nearest(places.astype(np.float32), 5)
    return float((near % GROUPS == np.arange(count)[:, None] % GROUPS).mean())


@pytest.mark.parametrize("count", [20, 200])
def test_what_is_alike_is_together(count: int) -> None:
    assert share_of_own(count) > (0.95 if count > image_map.FEWEST else 0.4)


def test_of_many_images_some_are_laid_out_and_the_others_join_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_map, "LAID_OUT", 100)
    assert share_of_own(600) > 0.95


def test_places_do_not_depend_on_how_many_are_found_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_map, "LAID_OUT", 100)
    whole = lay_out(clusters(600, GROUPS))
    monkeypatch.setattr(image_map, "AT_ONCE", 70)
    assert np.array_equal(lay_out(clusters(600, GROUPS)), whole)


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_images_that_do_not_differ_have_places_too(count: int) -> None:
    places = lay_out(np.ones((count, 8), np.float32))
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """200 images of five classes that look different, and a file that is none."""
    names = [HOSTILE, "elm", "fir", "oak", "yew"]
    files = [(f"a/{n:03d}.jpg", names[n % GROUPS]) for n in range(200)]
    made = made_up_run(tmp_path_factory.mktemp("mapped") / "run", files, [("a/broken.jpg", "not an image")])
    np.save(made.path / VECTORS, clusters(200, GROUPS).astype(np.float16))
    write_report(made)
    return made


def place(page: Page, row: int) -> tuple[float, float]:
    """Where an image is on the screen."""
    box = page.locator("#points").bounding_box()
    assert box is not None
    left, top = page.evaluate(f"somnet.mapPoints.toScreen({row})")
    return box["x"] + left, box["y"] + top


def draw_around(page: Page, rows: list[int]) -> None:
    """With the mouse, a rectangle around some images."""
    places = np.array([place(page, row) for row in rows])
    (x1, y1), (x2, y2) = places.min(axis=0) - 6, places.max(axis=0) + 6
    page.mouse.move(x1, y1)
    page.mouse.down()
    for x, y in ((x2, y1), (x2, y2), (x1, y2)):
        page.mouse.move(x, y, steps=3)
    page.mouse.up()


def test_what_is_drawn_around_is_listed_and_decided(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report").go("map.html")
    expect(page.locator("#list-count")).to_have_text("201 of 201 images")
    cluster = list(range(2, 200, GROUPS))
    draw_around(page, cluster)
    expect(page.locator("#lasso-count")).to_have_text("40 images selected on the map")
    expect(page.locator("#selected-count")).to_have_text("40 selected")
    assert sorted(shown_rows(page)) == cluster
    page.keyboard.press("d")
    expect_decisions(page, {str(row): "d" for row in cluster})
    page.keyboard.press("u")
    expect_decisions(page, {})
    page.keyboard.press("Escape")
    expect(page.locator("#list-count")).to_have_text("201 of 201 images")


def test_a_filter_leaves_points_that_cannot_be_chosen(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report").go("map.html")
    page.locator("#points-legend button", has_text="oak").click()
    expect(page.locator("#list-count")).to_have_text("40 of 201 images")
    page.keyboard.press("v")
    expect(page.locator("#lasso-count")).to_have_text("40 images selected on the map")
    assert {row % GROUPS for row in shown_rows(page)} == {3}
    page.locator("#points-legend button", has_text="oak").click()
    expect(page.locator("#list-count")).to_have_text("40 of 201 images")  # those that were selected
    page.click("#lasso-clear")
    expect(page.locator("#list-count")).to_have_text("201 of 201 images")


def test_an_image_is_shown_with_its_nearest_ones(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report").go("map.html")
    page.mouse.move(*place(page, 7))
    pointed = page.locator("#point-tile .tile")
    expect(pointed).to_have_count(1)
    expect(page.locator("#point-nearest .tile")).to_have_count(8)
    row = int(pointed.get_attribute("data-row") or -1)
    near = page.locator("#point-nearest .tile").evaluate_all("(all) => all.map((one) => Number(one.dataset.row))")
    assert {other % GROUPS for other in near} == {row % GROUPS}
    pointed.click()
    expect(page.locator("#card-name")).to_have_text(f"a/{row:03d}.jpg")


def test_the_map_is_used_by_keyboard_alone(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report").go("map.html")
    page.locator("#points").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => somnet.mapPoints.marks.point !== null")
    first = page.evaluate("somnet.mapPoints.marks.point")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("first => somnet.mapPoints.marks.point !== first", arg=first)
    second = page.evaluate("somnet.mapPoints.marks.point")
    assert place(page, second)[0] > place(page, first)[0]
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_function("() => somnet.mapPoints.view.zoom > 10")
    page.keyboard.press("v")
    expect(page.locator("#lasso-note")).to_be_visible()
    chosen = shown_rows(page)
    assert 0 < len(chosen) < 200
    assert second in chosen
    expect(page.locator("#selected-count")).to_have_text(f"{len(chosen)} selected")
    page.keyboard.press("s")
    expect_decisions(page, {str(row): "s" for row in chosen})
    page.keyboard.press("0")
    page.locator("#points").focus()
    page.keyboard.press("0")
    page.wait_for_function("() => somnet.mapPoints.view.zoom === 1")
    page.keyboard.press("Enter")
    expect(page.locator("#card-name")).to_have_text(f"a/{second:03d}.jpg")


def test_the_map_is_moved_and_zoomed_by_mouse(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report").go("map.html")
    before = place(page, 0)
    page.mouse.move(*before)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("() => somnet.mapPoints.view.zoom > 1.5")
    assert place(page, 0) == pytest.approx(before, abs=1)  # it stays below the mouse
    page.click("[data-tool=move]")
    middle = page.locator("#points").bounding_box()
    assert middle is not None
    x, y = middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2
    start = page.evaluate("[...somnet.mapPoints.toScreen(0)]")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 8, y, steps=2)
    page.mouse.move(x - 30, y, steps=3)
    page.mouse.up()
    expect(page.locator("#lasso-note")).to_be_hidden()
    page.wait_for_function("start => String([...somnet.mapPoints.toScreen(0)]) !== String(start)", arg=start)


class Fingers:
    """What several fingers do on a page; playwright itself knows only one at a time."""

    def __init__(self, page: Page) -> None:
        self.page, self.session = page, page.context.new_cdp_session(page)

    def __call__(self, kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        next_frames(self.page)  # a page hears of moves with its next frame


def test_two_fingers_zoom_and_move_the_map(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report", width=390).go("map.html")
    page.locator("#points").scroll_into_view_if_needed()
    (x, y), touch = place(page, 0), Fingers(page)
    touch("touchStart", (x - 10, y))
    touch("touchMove", (x - 20, y))  # a lasso, until the other finger comes
    touch("touchStart", (x - 20, y), (x + 20, y))
    assert page.evaluate("somnet.mapPoints.marks.lasso") is None
    touch("touchMove", (x - 60, y), (x + 60, y))
    assert page.evaluate("somnet.mapPoints.view.zoom") == pytest.approx(3, rel=0.01)
    assert place(page, 0) == pytest.approx((x, y), abs=1)  # it stays between the fingers
    touch("touchMove", (x - 60, y + 30), (x + 60, y + 30))
    assert place(page, 0) == pytest.approx((x, y + 30), abs=1)
    touch("touchMove", (x - 5, y + 30), (x + 5, y + 30))
    assert page.evaluate("somnet.mapPoints.view.zoom") == 1
    touch("touchEnd")
    expect(page.locator("#lasso-note")).to_be_hidden()  # nothing was drawn around


def test_one_finger_draws_around(mapped: Run, visit: Visits) -> None:
    page = visit(mapped.path / "report", width=390).go("map.html")
    box = page.locator("#points").bounding_box()
    assert box is not None
    x1, y1, x2, y2 = box["x"] + 3, box["y"] + 3, box["x"] + box["width"] - 3, box["y"] + box["height"] - 3
    touch = Fingers(page)
    touch("touchStart", (x1, y1))
    for corner in ((x2, y1), (x2, y2), (x1, y2)):
        touch("touchMove", corner)
    touch("touchEnd")
    expect(page.locator("#lasso-count")).to_have_text("200 images selected on the map")


def test_every_class_has_its_name_on_the_map(visit: Visits, tmp_path: Path) -> None:
    """Also where several have their middle at one place."""
    names = [f"kind {number}" for number in range(4)]
    made = made_up_run(tmp_path / "run", [(f"a/{n:03d}.jpg", names[n % 4]) for n in range(80)])
    np.save(made.path / VECTORS, clusters(80, 1).astype(np.float16))
    page = visit(write_report(made).parent).go("map.html")
    written = page.evaluate(
        """() => new Promise((done) => {
            const pen = document.getElementById("points").getContext("2d"), found = [], fill = pen.fillText.bind(pen);
            pen.fillText = (text, ...at) => { found.push(text); fill(text, ...at); };
            somnet.mapPoints.draw();
            requestAnimationFrame(() => requestAnimationFrame(() => done(found)));
        })"""
    )
    assert sorted(set(written)) == names  # a frame may be drawn twice


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_follow_class_verdict_and_decision(mapped: Run, visit: Visits, width: int, dark: bool) -> None:
    opened = visit(mapped.path / "report", width=width, dark=dark)
    page = opened.go("map.html")
    looks = set()
    for what in ("class", "verdict", "decision"):
        page.click(f"[data-colour={what}]")
        expect(page.locator(f"[data-colour={what}]")).to_have_attribute("aria-pressed", "true")
        next_frames(page)
        looks.add(page.evaluate("document.getElementById('points').toDataURL()"))
    assert len(looks) == 3
    assert not opened.overflows()


def test_a_run_of_an_older_version_has_no_map_but_a_page(tmp_path: Path, visit: Visits) -> None:
    made = made_up_run(tmp_path / "run", [("a/1.jpg", "x"), ("a/2.jpg", "y")])
    page = visit(write_report(made).parent).go("map.html")
    expect(page.locator("main")).to_contain_text("Train again")
    expect(page.locator("#points")).to_have_count(0)
