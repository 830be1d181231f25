"""What an image card shows beside the scores: copies side by side, and with a server the image itself."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Route, expect

from somnet.errors import UnreadableImage
from somnet.report.figures.evidence_figure import evidence_overlay
from somnet.report.records import read_records
from somnet.report.review_server import ReviewServer
from somnet.report.site import write_report
from somnet.runs.run import Run
from tests.report.conftest import HOSTILE, Visit, made_up_run, patient
from tests.report.test_review_server import serving

ALL_SHOWN = "() => [...document.querySelectorAll('#twin-list .thumb')].every((one) => one.firstChild.naturalWidth > 0)"


def test_copies_and_leaks_are_side_by_side(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    names = ["a/1.jpg", "a/2.jpg", f"a/{HOSTILE}.jpg"]
    made = made_up_run(tmp_path / "run", [(name, "x" if place else "y") for place, name in enumerate(names)])
    lines = ["group,file_name,split,label,exact", "0,a/1.jpg,train,y,true", "0,a/2.jpg,train,x,true"]
    lines += ["1,a/2.jpg,train,x,false", f"1,a/{HOSTILE}.jpg,train,x,false", "1,held/9.jpg,test,x,false"]
    (made.path / "duplicates.csv").write_text("\n".join([*lines[:2], *lines[3:]]))
    page = visit(write_report(made).parent).go("list.html#kind=all&row=1")
    twins = page.locator("#twin-list > *")
    expect(twins).to_have_count(2)
    expect(twins.nth(0)).to_contain_text("in test")
    expect(twins.nth(1)).to_contain_text(HOSTILE)
    page.locator("#twin-list a").click()
    expect(page.locator("#card-name")).to_have_text(names[2])
    expect(page.locator("#twin-list a")).to_have_attribute("title", "a/2.jpg")
    page = visit(made.path / "report").go("list.html#kind=all&row=0")
    expect(page.locator("#twins")).to_be_hidden()  # the other file of its group is not there
    expect(page.locator("#open-original")).to_be_hidden()


def test_a_copy_of_a_real_run_has_its_twin_with_a_picture(run: Run, visit: Callable[..., Visit]) -> None:
    names = run.scores()["file_name"].to_pylist()
    row = next(place for place, name in enumerate(names) if name.endswith("copy.png"))
    page = visit(run.path / "report").go(f"list.html#kind=all&row={row}")
    expect(page.locator("#twin-list a[title='train/=birch/1.png']")).to_have_count(1)
    page.wait_for_function(ALL_SHOWN)
    leaked = int(np.flatnonzero(read_records(run).flags["test-leak"])[0])  # photos of this run are alike
    page = visit(run.path / "report").go(f"list.html#kind=all&row={leaked}")
    expect(page.locator("#twin-list > :first-child")).to_contain_text("in test")
    page.wait_for_function(ALL_SHOWN)


def test_the_image_itself_and_the_evidence_of_predict(run: Run, chromium: Browser) -> None:
    names = run.scores()["file_name"].to_pylist()
    with serving(run) as server:
        image = server.original(0)
        with Image.open(Path(run.data["path"]) / names[0]) as file:
            assert image.size == file.size
            assert np.array_equal(np.asarray(image), np.asarray(file.convert("RGB")))
        (found,) = run.predict([Path(run.data["path"]) / names[0]], evidence=True)
        assert found.evidence is not None
        same = evidence_overlay(image, found.evidence, *image.size)
        assert np.array_equal(np.asarray(server.evidence(0)), np.asarray(same))
        context = patient(chromium.new_context())
        page = context.new_page()
        page.goto(server.address.replace("index.html", "list.html#kind=all&row=0"))
        expect(page.locator("#card")).to_be_visible()
        held: list[Route] = []
        page.route("**/heat/*", lambda route: held.append(route))  # playwright takes no built-in
        page.keyboard.press("h")
        expect(page.locator("#toggle-heat")).to_have_attribute("aria-busy", "true")  # it may take a while
        held[0].continue_()
        page.wait_for_function("() => document.getElementById('heat-image').naturalWidth > 0")
        expect(page.locator("#toggle-heat")).not_to_have_attribute("aria-busy", "true")
        page.keyboard.press("o")
        page.wait_for_function(f"() => document.getElementById('original-image').naturalWidth === {image.width}")
        context.close()


def test_a_file_that_is_no_image_is_not_handed_out(run: Run) -> None:
    names = run.scores()["file_name"].to_pylist()
    broken = next(place for place, name in enumerate(names) if name.endswith("@broken.jpg"))
    with ReviewServer(run) as server:
        for row in (broken, len(names)):
            with pytest.raises(UnreadableImage):
                server.original(row)
            with pytest.raises(UnreadableImage):
                server.evidence(row)
