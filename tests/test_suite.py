"""What the tests themselves rely on."""

import re
from pathlib import Path

import pytest

from tests.suite import NOTHING_LEFT_OUT, SLOW, leave_out, sendable


def test_a_name_that_is_no_utf8_can_be_sent() -> None:
    told = {"sections": [("log", "caf\udce9")], "duration": 0.5, "longrepr": None}
    assert sendable(told) == {"sections": [("log", "caf\\udce9")], "duration": 0.5, "longrepr": None}


def test_a_test_is_left_out_only_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTHING_LEFT_OUT, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        leave_out("no browser")
    monkeypatch.setenv(NOTHING_LEFT_OUT, "1")
    with pytest.raises(pytest.fail.Exception, match="no browser"):
        leave_out("no browser")


def test_the_fixtures_that_make_a_test_slow_exist() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("*.py"))
    assert [name for name in SLOW if f"\ndef {name}(" not in text] == []


def test_what_a_page_is_asked_to_wait_for_is_a_function() -> None:
    """An expression is evaluated anew at each look, which the policy of our pages forbids from the second look on."""
    asked = [
        (file.name, words)
        for file in Path(__file__).parent.rglob("test_*.py")
        for words in re.findall(r"wait_for_function\(\s*f?\"([^\"]*)", file.read_text(encoding="utf-8"))
        if file.name != Path(__file__).name
    ]
    assert asked
    assert [(name, words) for name, words in asked if "=>" not in words.partition("document")[0]] == []
