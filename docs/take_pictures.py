"""Takes the pictures of docs/report.md from the report of a run: `python docs/take_pictures.py RUN`, with Chromium.

Those here are of a run at the defaults, on 1,098 photos of garments that write_noisy() had changed by
flip=0.15,open=0.05,foreign=LEAVES,seed=1, in class folders; two caps with slogans were left out.
"""

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).with_name("pictures")
WIDTH, HEIGHT = 1280, 960
QUALITY = 74
WRONG = "list.html#kind=label"
CARD = 30  # which of the wrong labels has its card shown, and is pointed at on the map
SLOT = (0.04, 0.37)  # how far from the left and from the top of the memory the slot is that is opened
RELABEL = ("r", "Enter")  # as was suggested
STILL = 800  # milliseconds until thumbnails are there and nothing fades any more


def take_all(page: Page, report: Path) -> None:
    """All of them, in an order in which those after the list show what was decided there."""

    def go(address: str) -> None:
        page.goto("about:blank")
        page.goto(f"{report.resolve().as_uri()}/{address}")
        page.wait_for_selector("html[data-ready]", state="attached")

    def take(name: str) -> None:
        page.wait_for_timeout(STILL)
        file = PICTURES / f"report-{name}.png"
        page.screenshot(path=file)
        with Image.open(file) as picture:
            picture.convert("RGB").save(file.with_suffix(".jpg"), quality=QUALITY, optimize=True)
        file.unlink()

    go(WRONG)
    for key in ("ArrowRight", *RELABEL, *RELABEL, "d", *RELABEL, "s", *["Shift+ArrowRight"] * 9):
        page.keyboard.press(key)
    take("list")
    page.keyboard.press("d")
    go("list.html#kind=background")
    for key in ("ArrowRight", "k", "k", "k"):
        page.keyboard.press(key)
    for name, address in {"overview": "index.html", "class": "class.html", "training": "training.html"}.items():
        go(address)
        take(name)
    go(WRONG)
    for _ in range(CARD):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    take("card")
    row = int(page.url.rpartition("row=")[2])
    go("map.html")
    box = page.locator("#points").bounding_box() or {}
    left, top = page.evaluate(f"somnet.mapPoints.toScreen({row})")
    page.mouse.move(box["x"] + left, box["y"] + top)
    take("map")
    go("memory.html")
    box = page.locator("#map").bounding_box() or {}
    page.locator("#map").click(position={"x": SLOT[0] * box["width"], "y": SLOT[1] * box["height"]})
    page.evaluate("scrollTo(0, document.querySelector('.map-page').offsetTop - 20)")
    take("memory")
    go("decisions.html")
    take("decisions")


def main(run: Path) -> None:
    """Of a run."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        take_all(browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}), run / "report")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
