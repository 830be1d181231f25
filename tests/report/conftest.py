"""A Chromium, which opens the pages of a report from disk and tells what went wrong; and runs to look at."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from somnet.config import Config
from somnet.data.dataset import Unreadable
from somnet.runs.run import Run
from somnet.runs.scoring import with_unreadable, write_issues
from somnet.training.train import train
from tests.suite import leave_out

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")  # on the PATH, the first there is
HOSTILE = "<img src=x onerror=alert(1)>"
PATIENCE = 120_000  # milliseconds that a page may take, of what takes a moment on a machine that is not busy

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as driver:
        known = (*map(shutil.which, BROWSERS), driver.chromium.executable_path)
        found = [path for path in known if path and Path(path).is_file()]
        if not found:
            leave_out("there is no browser: apt-get install -y chromium, or playwright install chromium")
        browser = driver.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page and what it complained about."""

    page: Page
    folder: Path
    complaints: list[str] = field(default_factory=list)

    def go(self, name: str) -> Page:
        """Open a page of the report, as in class.html#0, and wait for its scripts."""
        self.page.goto("about:blank")  # else a new hash would not load the page again
        self.page.goto(f"{self.folder.resolve().as_uri()}/{name}")
        if name.startswith(("class.html", "decisions.html", "index.html", "list.html")):
            self.page.wait_for_selector("html[data-ready]")
        if name.startswith("map.html"):  # where there is one
            self.page.wait_for_selector("html[data-ready], main:not(:has(#points))", state="attached")
        return self.page

    def overflows(self) -> bool:
        """Whether the page can be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def patient(context: BrowserContext) -> BrowserContext:
    context.set_default_timeout(PATIENCE)
    return context


def next_frames(page: Page) -> None:
    """What a page draws with its next frame is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@contextlib.contextmanager
def visiting(chromium: Browser, folder: Path, *, width: int = 1280, dark: bool = False) -> Iterator[Visit]:
    """A visit that fails on a console error, a dialog, or a request that leaves the report's folder."""
    context = patient(
        chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
    )
    made = Visit(context.new_page(), folder)
    inside = (folder.resolve().as_uri() + "/", "blob:", "about:blank")
    made.page.on("console", lambda m: made.complaints.append(m.text) if m.type in ("error", "warning") else None)
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    made.page.on("dialog", lambda dialog: made.complaints.append(f"dialog {dialog.message}"))
    made.page.on(
        "request",
        lambda request: None if request.url.startswith(inside) else made.complaints.append(f"request {request.url}"),
    )
    try:
        yield made
    finally:
        context.close()
    assert made.complaints == []


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens reports; the test fails on a console error, a dialog, or a request that leaves the report's folder."""
    with contextlib.ExitStack() as visits:
        yield lambda folder, **how: visits.enter_context(visiting(chromium, folder, **how))


@pytest.fixture(scope="session")
def run(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that train left, with its report: hostile names, a copy, and a file that is not an image."""
    data = photos.fill(tmp_path_factory.mktemp("pages") / "web", ("=birch", HOSTILE, "oak, red"), train=8)
    (data / "train" / HOSTILE / "0.png").rename(data / "train" / HOSTILE / '"><script>alert(2)<!--.png')
    (data / "train" / "oak, red" / "@broken.jpg").write_bytes(b"no picture")
    shutil.copy(data / "train" / "=birch" / "1.png", data / "train" / "=birch" / "copy.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        return train(data, tiny.config("somnet"), out=tmp_path_factory.mktemp("runs") / "first", device="cpu")


def made_up_run(folder: Path, files: list[tuple[str, str]], bad: list[tuple[str, str]] | None = None) -> Run:
    """A run of files that never were, each with a label, and of bad ones, each with a reason."""
    rng = np.random.default_rng(len(files))
    classes = sorted({label for _, label in files})
    count = len(files)
    names, labels = ([pair[place] for pair in files] for place in (0, 1))
    predicted = [classes[number] for number in rng.integers(0, len(classes), count)]
    score = rng.random(count).astype(np.float32)
    label_issue = [low and seen != given for low, seen, given in zip(score < 0.5, predicted, labels, strict=True)]
    whole, box = (np.tile(np.array(four, np.float32), (count, 1)) for four in ([0, 0, 80, 60], [10, 5, 50, 45]))
    images: dict[str, Any] = {
        "file_name": pa.array(names, pa.string()),
        "given_label": pa.array(labels, pa.string()),
        "predicted_label": pa.array(predicted, pa.string()),
        "predicted_score": rng.random(count).astype(np.float32),
        "is_label_issue": pa.array(label_issue, pa.bool_()),
        "label_score": score,
        "is_background_issue": pa.array([not issue for issue in label_issue], pa.bool_()),
        "background_score": rng.random(count).astype(np.float32),
        "is_unreadable_issue": np.zeros(count, bool),
        "unreadable_reason": pa.nulls(count, pa.string()),
        "is_near_duplicate_issue": np.zeros(count, bool),
        "clean_box": boxes(box),
    }
    regions = {
        "file_name": pa.array(np.repeat(np.array(names, object), 2), pa.string()),
        "region": np.tile(np.array([0, 1], np.int32), count),
        "box": boxes(np.stack([whole, box], axis=1)),
        "roi_weight": np.tile(np.array([0.25, 0.75], np.float32), count),
        "winner_slot": np.tile(np.array([3, 4], np.int32), count),
        **{f"{name}_score": np.tile(np.array([0.1, 0.2], np.float32), count) for name in "dra"},
    }
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(Config().to_toml())
    data = {"path": "/nowhere", "classes": classes, "images": count, "fingerprint": "made up"}
    (folder / "data.json").write_text(json.dumps(data))
    summary = {
        "config_hash": "0",
        "data": {"unreadable": len(bad or [])},
        "test": {"n": 0},
        "seconds": {"total": 1},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    unreadable = [Unreadable(name, classes[0], "train", reason) for name, reason in bad or []]
    table = with_unreadable(pa.table(images), unreadable)
    write_issues(folder, table)
    pq.write_table(pa.table(regions), folder / "regions.parquet")
    return Run(folder)


def boxes(values: Any) -> pa.Array:
    return pa.ListArray.from_arrays(np.arange(0, values.size + 1, 4), values.ravel())
