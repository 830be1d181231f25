"""The memory map in Chromium: layers, slots, zoom, by mouse and by keys."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Page, expect

from somnet.report.frame import Frame, write_data
from somnet.report.memory_map import quantised, read_memory, u_matrix, write_memory_pages
from somnet.report.originals import Originals
from somnet.report.pictures import draw_run
from somnet.report.records import read_records
from somnet.report.site import describe_run
from somnet.runs.run import Run
from tests.report.conftest import Visit, made_up_run, next_frames
from tests.report.memories import set_regions, with_memory

HOSTILE = ["<img src=x onerror=alert(1)>", '"><script>alert(2)</script>', "=cmd()", "\u05d0\u202eabc", "x" * 200]


def write(run: Run, folder: Path) -> Path:
    """The memory page alone, with what it needs."""
    folder.mkdir()
    frame, records = Frame("test"), read_records(run)
    frame.write_static(folder)
    write_data(folder, "run", describe_run(run, records))
    write_memory_pages(frame, run, records, Originals(run), folder)
    return folder


def data_of(folder: Path, name: str) -> object:
    text = (folder / "data" / f"{name}.js").read_text(encoding="ascii")
    return json.loads(text[text.index(",") + 1 : text.rindex(")")])


@pytest.fixture(scope="module")
def small(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(run, tmp_path_factory.mktemp("small") / "report")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    files = [(f"train/{number}.jpg", f"class {number % 30}") for number in range(6000)]
    return write(with_memory(made_up_run(folder / "run", files), side=100), folder / "report")


def opened(visited: Visit, address: str = "memory.html") -> Page:
    page = visited.go(address)
    expect(page.locator("html[data-ready]")).to_be_attached()
    return page


def click_slot(page: Page, row: int, column: int, side: int) -> None:
    box = page.locator("#map").bounding_box()
    assert box is not None
    cell = box["width"] / side
    page.locator("#map").click(position={"x": (column + 0.5) * cell, "y": (row + 0.5) * cell})


def pixels(page: Page) -> bytes:
    next_frames(page)
    return base64.b64decode(page.evaluate("document.getElementById('map').toDataURL().split(',')[1]"))


def winner_of_most(run: Run) -> int:
    return int(np.bincount(slots_of(run)).argmax())


def slots_of(run: Run) -> NDArray[np.int64]:
    return np.concatenate([some.slot for some in read_records(run).regions.by_slot()])


def test_a_click_opens_a_slot_with_its_regions(small: Path, run: Run, visit: Callable[..., Visit]) -> None:
    slot = winner_of_most(run)
    page = opened(visit(small))
    click_slot(page, slot // 3, slot % 3, 3)
    expect(page.locator("#slot-title")).to_have_text(f"Slot {slot}")
    crops, found = page.locator("#slot-rois img"), data_of(small, "slots-0")
    assert isinstance(found, list)
    assert len(found[slot]["rois"]["row"]) > 0
    expect(crops).to_have_count(len(found[slot]["rois"]["row"]))
    expect(crops.first).to_be_visible()
    page.wait_for_function(
        "() => [...document.querySelectorAll('#slot-rois img')].every((one) => one.naturalWidth > 0)"
    )
    assert found[slot]["rois"]["similarity"] == sorted(found[slot]["rois"]["similarity"], reverse=True)
    expect(page.locator("#slot-scores tr")).to_have_count(3)
    expect(page).to_have_url(re.compile(f"#slot={slot}$"))


def test_the_figures_are_those_of_the_memory(small: Path, run: Run) -> None:
    memory = read_memory(run)
    assert memory is not None
    assert memory.side == 3
    found = data_of(small, "slots-0")
    assert isinstance(found, list)
    for slot, one in enumerate(found):
        assert one["d"] == pytest.approx([float(memory.d[slot, c]) for c in one["classes"]], rel=1e-3)
        assert one["r"] == pytest.approx([float(memory.r[slot, c]) for c in one["classes"]], rel=1e-3)
        score = [d * r for d, r in zip(one["d"], one["r"], strict=True)]
        assert score == pytest.approx(sorted(score, reverse=True), rel=1e-2)
    whole = data_of(small, "memory")
    assert isinstance(whole, dict)
    assert whole["hits"] == np.bincount(slots_of(run), minlength=9).tolist()


def test_crops_show_the_region(small: Path, run: Run) -> None:
    records = read_records(run)
    slot = winner_of_most(run)
    found = data_of(small, "slots-0")
    assert isinstance(found, list)
    for place, (row, region) in enumerate(zip(found[slot]["rois"]["row"], found[slot]["rois"]["region"], strict=True)):
        left, top, right, bottom = records.regions.of_image(row).box[region].tolist()
        name = found[slot]["rois"]["name"][place]
        with (
            Image.open(Path(run.data["path"]) / name) as original,
            Image.open(small / "crops" / "0" / f"{slot}-{place}.jpg") as crop,
        ):
            assert crop.size == (right - left, bottom - top)
            expected = np.asarray(original.convert("RGB").crop((left, top, right, bottom)), float).mean(axis=(0, 1))
            assert np.abs(np.asarray(crop, float).mean(axis=(0, 1)) - expected).max() < 6


def test_keys_move_and_open(small: Path, visit: Callable[..., Visit]) -> None:
    page = opened(visit(small), "memory.html#slot=0")
    expect(page.locator("#slot-title")).to_have_text("Slot 0")
    page.locator("#map").focus()
    for key, here in (
        ("ArrowRight", "Slot 1"),
        ("ArrowDown", "Slot 4"),
        ("ArrowLeft", "Slot 3"),
        ("ArrowUp", "Slot 0"),
    ):
        page.keyboard.press(key)
        expect(page.locator("#map-here b")).to_have_text(here)
    page.keyboard.press("ArrowLeft")  # the border holds
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#slot-title")).to_have_text("Slot 3")


def test_every_layer_is_another_picture(small: Path, visit: Callable[..., Visit]) -> None:
    page = opened(visit(small))
    seen = {pixels(page)}
    for layer in ("hits", "distance", "d", "r", "s"):
        page.click(f"[data-layer={layer}]")
        expect(page.locator(f"#map[data-layer={layer}]")).to_be_attached()
        expect(page.locator(f"[data-layer={layer}][aria-pressed=true]")).to_have_count(1)
        seen.add(pixels(page))
    assert len(seen) == 6


def test_a_plane_is_that_of_the_chosen_class(small: Path, run: Run, visit: Callable[..., Visit]) -> None:
    page = opened(visit(small))
    page.click("[data-layer=d]")
    page.select_option("#plane-class", "2")
    expect(page.locator("#map[data-label='2']")).to_be_attached()
    expect(page.locator("#layer-note")).to_contain_text(run.classes[2])
    memory = read_memory(run)
    assert memory is not None
    assert float(page.locator("#scale-high").inner_text()) == pytest.approx(memory.d[:, 2].max(), rel=0.05)


def test_a_hundred_by_a_hundred_slots_are_blocks_that_can_be_zoomed(large: Path, visit: Callable[..., Visit]) -> None:
    page = opened(visit(large))
    page.click("[data-layer=hits]")
    expect(page.locator("#map")).to_have_attribute("data-span", "100")
    expect(page.locator("#map-here b")).to_have_text("2 × 2 slots")
    expect(page.locator("#layer-note")).to_contain_text("2 × 2 slots")
    click_slot(page, 60, 40, 100)  # a block: looked at more closely
    expect(page.locator("#map-here b")).to_have_text("Slot 6040")
    span = int(page.get_attribute("#map", "data-span") or 0)
    assert span < 60
    expect(page.locator("#slot-none")).to_be_visible()
    page.locator("#map").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#slot-title")).to_have_text("Slot 6040")
    page.keyboard.press("+")
    page.wait_for_function("span => Number(document.getElementById('map').dataset.span) < span", arg=span)
    for _ in range(40):
        page.keyboard.press("ArrowRight")  # beyond the edge of what is shown: the view follows
    expect(page.locator("#map-here b")).to_have_text("Slot 6080")
    page.keyboard.press("0")
    expect(page.locator("#map")).to_have_attribute("data-span", "100")
    page.click("[data-layer=classes]")
    expect(page.locator("#layer-note")).to_contain_text("3 × 3 slots")  # a pie needs more room


def test_a_large_map_loads_little(large: Path) -> None:
    assert (large / "data" / "memory.js").stat().st_size < 500_000
    assert max(file.stat().st_size for file in (large / "data").glob("plane-*.js")) < 40_000
    assert max(file.stat().st_size for file in (large / "data").glob("slots-*.js")) < 200_000


def test_the_map_opens_with_classes_and_explains_itself(large: Path, visit: Callable[..., Visit]) -> None:
    page = opened(visit(large), "memory.html")
    expect(page.locator("#map[data-layer=classes]")).to_be_attached()
    expect(page.locator("[data-layer=classes][aria-pressed=true]")).to_have_count(1)
    expect(page.get_by_text("regions of images that look alike share a slot")).to_be_visible()
    page.click(".explained summary")
    expect(page.get_by_text("So a class that looks one way is a patch of one colour")).to_be_visible()


def test_dead_slots_say_so(large: Path, visit: Callable[..., Visit]) -> None:
    page = opened(visit(large), "memory.html#slot=0")
    expect(page.locator("#slot-empty")).to_be_visible()
    expect(page.locator("#map-summary")).to_contain_text("of them dead")


def test_images_that_are_gone_leave_their_names(large: Path, visit: Callable[..., Visit]) -> None:
    whole = data_of(large, "memory")
    assert isinstance(whole, dict)
    page = opened(visit(large), f"memory.html#slot={np.argmax(whole['hits'])}")
    expect(page.locator("#slot-rois .missing").first).to_be_visible()
    assert (page.locator("#slot-rois a").first.get_attribute("title") or "").startswith("train/")


@pytest.mark.parametrize("width", [390, 1280])
def test_hostile_names_are_text(width: int, tmp_path: Path, visit: Callable[..., Visit]) -> None:
    made = with_memory(made_up_run(tmp_path / "run", [(name, name) for name in HOSTILE * 6]), side=3)
    visited = visit(write(made, tmp_path / "report"), width=width)
    page = opened(visited, "memory.html#slot=4")
    expect(page.locator("#slot-title")).to_have_text("Slot 4")
    for layer in ("classes", "s"):
        page.click(f"[data-layer={layer}]")
        page.select_option("#plane-class", "1")
        expect(page.locator("#map[data-label='1']")).to_be_attached()
    same = re.compile(f"^{re.escape(HOSTILE[0])}$")
    expect(page.locator("#slot-scores bdi", has_text=same)).to_have_count(1)
    assert page.locator("main script, main img[src=x]").count() == 0
    assert not visited.overflows()


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_readable_on_a_phone(small: Path, visit: Callable[..., Visit], dark: bool) -> None:
    visited = visit(small, width=390, dark=dark)
    page = opened(visited, "memory.html#slot=4")
    for layer in ("hits", "classes", "distance", "s"):
        page.click(f"[data-layer={layer}]")
    assert not visited.overflows()


def test_a_method_without_memory_has_a_page_that_says_so(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    made = made_up_run(tmp_path / "run", [("1.jpg", "a"), ("2.jpg", "b")])
    set_regions(made, winner_slot=pa.nulls(4, pa.int32()))
    page = visit(write(made, tmp_path / "report")).go("memory.html")
    expect(page.locator("main")).to_contain_text("has no memory")
    assert not (tmp_path / "report" / "crops").exists()


def test_a_run_without_its_checkpoint_still_has_a_page(tmp_path: Path, visit: Callable[..., Visit]) -> None:
    made = made_up_run(tmp_path / "run", [("1.jpg", "a"), ("2.jpg", "b")])
    page = visit(write(made, tmp_path / "report")).go("memory.html")
    expect(page.locator("main")).to_contain_text("checkpoint")


def test_the_papers_pictures_share_the_regions(run: Run, tmp_path: Path) -> None:
    files = draw_run(run, tmp_path)
    assert [file.name for file in files] == ["memory.png", "prototypes.png", "bags.png"]
    for file in files:
        with Image.open(file) as picture:
            assert min(picture.size) > 100


def test_quantised_values_are_close() -> None:
    values = np.random.default_rng(0).random(50) * 7
    found = quantised(values)
    levels = np.frombuffer(base64.b64decode(found["levels"]), np.uint8)
    assert np.abs(levels / 255 * found["top"] - values).max() <= 7 / 255 / 2 + 1e-9
    assert quantised(np.zeros(3))["top"] == 0.0


def test_u_matrix_by_hand() -> None:
    """Three slots alike, the fourth at a right angle to them: it is 1 away from both neighbours."""
    keys = np.array([[1, 0], [1, 0], [1, 0], [0, 1]], np.float32)
    assert u_matrix(keys, 2).tolist() == pytest.approx([0.0, 0.5, 0.5, 1.0])


def test_u_matrix_is_the_mean_over_the_slots_beside() -> None:
    keys = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    beside = [1, 3, 5, 7]  # of the middle of 3 x 3
    assert float(u_matrix(keys, 3)[4]) == pytest.approx(float((1 - keys[beside] @ keys[4]).mean()), abs=1e-6)
    assert u_matrix(keys[:1], 1).tolist() == [0.0]
