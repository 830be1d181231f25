"""The report of a made-up run: time, peak memory, what index.html loads, and how long a person waits, as tables.

    python benchmarks/report.py [--images 100000] [--classes 1000] [--without-browser]

The images are some thousand photo-like JPEGs under many names. The pages are opened in Chromium, from disk, and used:
each action must be done within a second. Fails if a limit is missed.
"""

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from somnet.config import Config
from somnet.runs.checkpoint import METHOD, save_checkpoint
from somnet.runs.embedding import COMPACT, write_vectors
from somnet.runs.region_table import SCHEMA, region_writer
from somnet.runs.scoring import write_issues
from somnet.system.folders import LAST, REGIONS, VECTORS

SECONDS, MEGABYTES, INDEX_MEGABYTES = 180, 1500, 5
ACTION_SECONDS = 1.0
TIMES = 3  # that each action is done; the median counts
CORES = 2
DISTINCT = 2000  # pictures; the rest are links to them
WIDTH, HEIGHT = 500, 375  # of a picture found on the web
BOXES = 21
SIDE = 12  # of the memory


def main() -> int:
    parser = argparse.ArgumentParser(description="Time, memory and size of the report of a made-up run.")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--without-browser", action="store_true", help="Measure the writing alone.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), arguments.images, arguments.classes)
        seconds, busy, megabytes = measure([sys.executable, "-m", "somnet", "report", str(run)])
        index = run / "report" / "index.html"
        files = [file for file in index.parent.rglob("*") if file.is_file()]
        rows: list[tuple[str, float, float]] = [
            ("seconds", seconds, SECONDS),
            (f"CPU seconds, by {CORES} cores", busy / CORES, SECONDS),
            ("peak memory, MB", megabytes, MEGABYTES),
            ("index.html and what it loads, MB", loaded_bytes(index) / 1e6, INDEX_MEGABYTES),
        ]
        if not arguments.without_browser:
            rows += [(f"{what}, s", taken, ACTION_SECONDS) for what, taken in time_actions(index.parent).items()]
        print("| what | measured | limit |\n| --- | ---: | ---: |")
        for what, measured, limit in rows:
            print(f"| {what} | {measured:.2f} | {limit} |")
        pictures = sum(file.suffix == ".jpg" for file in files)
        print(f"\n{len(files)} files, {pictures} of them pictures, {sum(f.stat().st_size for f in files) / 1e6:.0f} MB")
    return 0 if all(measured < limit for _, measured, limit in rows) else 1


def make_run(folder: Path, images: int, classes: int) -> Path:
    """A run folder with made-up scores, and its data."""
    rng = np.random.default_rng(0)
    names = [f"class {number:04d}" for number in range(classes)]
    label = np.arange(images) % classes
    files = [f"train/{names[label[row]]}/{row:06d}.jpg" for row in range(images)]
    write_images(folder / "data", files, rng)
    run = folder / "run"
    run.mkdir()
    (run / "config.toml").write_text(Config(method="somnet").to_toml())
    data = {"path": str(folder / "data"), "classes": names, "images": images, "fingerprint": "made up"}
    (run / "data.json").write_text(json.dumps(data))
    (run / "summary.json").write_text(json.dumps(summary(images)))
    issues, regions = made_up_tables(files, names, label, rng)
    write_issues(run, issues)
    with region_writer(run / REGIONS) as add:
        add(regions.select(SCHEMA.names).cast(SCHEMA))
    middles = rng.standard_normal((classes, COMPACT))
    vectors = (middles[label] + 0.7 * rng.standard_normal((images, COMPACT))).astype(np.float16)
    write_vectors(run / VECTORS, vectors)
    write_memory(run, classes, rng)
    return run


def write_memory(run: Path, classes: int, rng: np.random.Generator) -> None:
    """A checkpoint that has nothing but a memory."""
    shapes = {"keys": (SIDE**2, COMPACT), "d": (SIDE**2, classes), "r": (classes, SIDE**2)}
    tensors = {f"{METHOD}memory.{name}": torch.from_numpy(rng.random(shape)) for name, shape in shapes.items()}
    (run / LAST).parent.mkdir()
    save_checkpoint(run / LAST, {name: tensor.float() for name, tensor in tensors.items()}, {})


def time_actions(report: Path) -> dict[str, float]:
    """What a person does with the pages, and the median seconds until it is done."""
    with sync_playwright() as driver:
        known = (*map(shutil.which, ("chromium", "chromium-browser", "google-chrome")), driver.chromium.executable_path)
        browser = driver.chromium.launch(
            executable_path=next(path for path in known if path and Path(path).is_file()), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto((report / "index.html").as_uri())  # the browser's own start does not count
        taken: dict[str, list[float]] = {}
        for _ in range(TIMES):
            for what, act in actions(page, report).items():
                began = time.monotonic()
                act()
                taken.setdefault(what, []).append(time.monotonic() - began)
        browser.close()
    return {what: statistics.median(seconds) for what, seconds in taken.items()}


def actions(page: Page, report: Path) -> dict[str, Callable[[], object]]:
    """In the order in which they are done, each until the page shows it."""

    def opened(name: str) -> None:
        page.goto("about:blank")  # else a page that is open would not be loaded again
        page.goto(f"{report.as_uri()}/{name}")
        page.wait_for_selector("html[data-ready]")

    def chosen(field: str, value: str) -> None:
        before = page.evaluate("Number(document.documentElement.dataset.shown)")
        page.select_option(f"#filter-{field}", value)
        page.wait_for_function(f"() => Number(document.documentElement.dataset.shown) > {before}")

    def pressed(key: str, until: str) -> None:
        page.keyboard.press(key)
        page.wait_for_function(f"() => {until}")

    def drawn_around() -> None:
        box = page.locator("#points").bounding_box()
        assert box is not None
        corners = [(0.4, 0.4), (0.6, 0.4), (0.6, 0.6), (0.4, 0.6)]
        (x, y), *others = [(box["x"] + a * box["width"], box["y"] + b * box["height"]) for a, b in corners]
        page.mouse.move(x, y)
        page.mouse.down()
        for x, y in others:
            page.mouse.move(x, y)
        page.mouse.up()
        page.wait_for_selector("#lasso-note:not([hidden])")

    def zoomed() -> None:
        before = page.evaluate("somnet.mapPoints.view.zoom")
        page.click("#zoom-in")
        page.wait_for_function(f"() => somnet.mapPoints.view.zoom > {before}")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # drawn

    some, none = "somnet.sheet.selected().size > 0", "somnet.sheet.selected().size === 0"
    return {
        "open the list": lambda: opened("list.html"),
        "list: one kind": lambda: chosen("kind", "label"),
        "list: one class": lambda: chosen("class", "3"),
        "list: all classes": lambda: chosen("class", ""),
        "list: by name": lambda: chosen("sort", "name"),
        "list: select all": lambda: pressed("Control+a", some),
        "list: drop them": lambda: pressed("d", none),
        "list: undo": lambda: pressed("u", "document.getElementById('note').textContent.includes('undone')"),
        "open a class": lambda: opened("class.html#7"),
        "next class": lambda: pressed("n", "document.getElementById('note').textContent.startsWith('Class')"),
        "open the map": lambda: opened("map.html"),
        "map: zoom": zoomed,
        "map: draw around images": drawn_around,
        "map: drop them": lambda: pressed("d", none),
        "map: undo": lambda: pressed("u", "document.getElementById('note').textContent.includes('undone')"),
    }


def summary(images: int) -> dict[str, object]:
    return {
        "config_hash": "made up",
        "data": {"train": images, "test": 0, "unreadable": 0},
        "test": {"top1": None, "top5": None, "n": 0},
        "seconds": {"total": 0},
    }


def write_images(root: Path, files: list[str], rng: np.random.Generator) -> None:
    """Smooth noise with some grain, which compresses like a photo."""
    for place, name in enumerate(files):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if place >= DISTINCT:
            os.link(root / files[place % DISTINCT], target)
            continue
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((WIDTH, HEIGHT))
        pixels = np.asarray(coarse, np.int16) + rng.integers(-12, 13, (HEIGHT, WIDTH, 1), dtype=np.int16)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(target, quality=85)


def made_up_tables(
    files: list[str], names: list[str], label: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator
) -> tuple[pa.Table, pa.Table]:
    """issues and regions of images that were never looked at."""
    count = len(files)
    wrong = rng.random(count) < 0.3
    predicted = np.where(wrong, rng.integers(0, len(names), count), label)
    score = np.where(predicted != label, rng.beta(1, 4, count), rng.beta(5, 2, count)).astype(np.float32)
    background = rng.beta(2, 1, count).astype(np.float32)
    low = rng.random((count, BOXES, 2)) * (WIDTH / 2, HEIGHT / 2)
    boxes = np.concatenate([low, low + np.array([WIDTH / 3, HEIGHT / 3])], axis=2).astype(np.float32)  # (n, P, 4)
    boxes[:, 0] = (0, 0, WIDTH, HEIGHT)
    weight = rng.random((count, BOXES)) * (rng.random((count, BOXES)) < 0.4)
    weight = (weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)).astype(np.float32)
    classes = np.array(names, object)
    label_issue = (score < 0.5) & (predicted != label)
    images = pa.table(
        {
            "file_name": files,
            "given_label": classes[label],
            "predicted_label": classes[predicted],
            "predicted_score": rng.random(count).astype(np.float32),
            "is_label_issue": label_issue,
            "label_score": score,
            "is_background_issue": (background < 0.5) & ~label_issue,
            "background_score": background,
            "is_unreadable_issue": np.zeros(count, bool),
            "unreadable_reason": pa.nulls(count, pa.string()),
            "is_near_duplicate_issue": rng.random(count) < 0.02,
            "clean_box": _box_column(boxes[:, 1]),
        }
    )
    regions = pa.table(
        {
            "file_name": np.repeat(np.array(files, object), BOXES),
            "region": np.tile(np.arange(BOXES, dtype=np.int32), count),
            "box": _box_column(boxes),
            "roi_weight": weight.ravel(),
            "winner_slot": rng.integers(0, SIDE**2, count * BOXES).astype(np.int32),
            **{f"{name}_score": rng.random(count * BOXES).astype(np.float32) for name in "dra"},
            "similarity": rng.random(count * BOXES).astype(np.float32),
        }
    )
    return images, regions


def _box_column(boxes: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(boxes.ravel()), 4)


def measure(command: list[str]) -> tuple[float, float, float]:
    """Seconds and CPU seconds of a command, and the highest memory of it and its workers together."""
    start = time.monotonic()
    peak = 0.0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(megabytes_of, [process.pid, *children(process.pid)])))
            time.sleep(0.5)
        if process.returncode:
            raise SystemExit(process.returncode)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - start, used.ru_utime + used.ru_stime, peak


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def megabytes_of(pid: int) -> float:
    """Memory of a process; what it shares with others counts by its share."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:  # it has just ended
        return 0.0
    return int(found[1]) / 1e3 if found else 0.0


def loaded_bytes(index: Path) -> int:
    """Size of a page and of the files it names."""
    text = index.read_text(encoding="utf-8")
    named: set[str] = set(re.findall(r'(?:src|href)="([^"#]+\.(?:css|js))"', text))
    return sum((index.parent / name).stat().st_size for name in [index.name, *named])


if __name__ == "__main__":
    sys.exit(main())
