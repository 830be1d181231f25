"""Debian's Chromium, which opens the pages of a report from disk and tells what went wrong."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "there is no chromium: apt-get install -y chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page and what it complained about."""

    page: Page
    folder: Path
    complaints: list[str] = field(default_factory=list)

    def go(self, name: str) -> Page:
        """Open a page of the report, as in class.html#0."""
        self.page.goto(f"{(self.folder / 'index.html').as_uri().removesuffix('index.html')}{name}")
        return self.page

    def overflows(self) -> bool:
        """Whether the page can be scrolled sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens reports; the test fails on a console error, a dialog, or a request that leaves the report's folder."""
    visits: list[Visit] = []

    def begin(folder: Path, *, width: int = 1280, dark: bool = False) -> Visit:
        context = chromium.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        made = Visit(context.new_page(), folder)
        inside = folder.resolve().as_uri() + "/"

        def asked(url: str) -> None:
            if not url.startswith((inside, "blob:")):
                made.complaints.append(f"request to {url}")

        made.page.on("console", lambda m: made.complaints.append(m.text) if m.type in ("error", "warning") else None)
        made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
        made.page.on("request", lambda request: asked(request.url))
        visits.append(made)
        return made

    yield begin
    complaints = [line for made in visits for line in made.complaints]
    for made in visits:
        made.page.context.close()
    assert complaints == []
