"""How the tests are run: the slow ones first, in several processes, and what a machine cannot run is left out aloud."""

import os
from collections import Counter
from collections.abc import Generator
from typing import Any, NoReturn

import pytest

NOTHING_LEFT_OUT = "SOMNET_TEST_EVERYTHING"  # set by .ci/run
BROWSER = "chromium"  # the fixture by which a test has a browser
SLOW = {BROWSER, "worked", "undisturbed", "lab", "ends_alike"}  # the same for torchrun, and for many runs of a test


def leave_out(reason: str) -> NoReturn:
    """The machine lacks what the test needs."""
    if os.environ.get(NOTHING_LEFT_OUT):
        pytest.fail(f"{reason} ({NOTHING_LEFT_OUT} is set)", pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each reason to leave out tests in one line, and how many."""
    told = (report.longrepr for report in terminalreporter.getreports("skipped"))
    reasons = Counter(place[2].removeprefix("Skipped: ") for place in told if isinstance(place, tuple))
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} {'test was' if count == 1 else 'tests were'} left out: {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes take whole files: those with slow tests come first, the others fill up what time is left at the end."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if BROWSER in fixtures:
            item.add_marker("browser")
        if SLOW & fixtures:
            item.add_marker("slow")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    return sendable((yield))


def sendable(value: Any) -> Any:
    """What a process tells of a test: names of files that are no UTF-8 cannot be sent as they are."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {name: sendable(inner) for name, inner in value.items()}
    return type(value)(map(sendable, value)) if isinstance(value, list | tuple) else value
