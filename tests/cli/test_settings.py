"""The list of settings: complete, with defaults and meanings, and the same in the docs."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.cli.settings import all_method_settings, method_settings, shared_settings
from somnet.config import load_config
from somnet.methods.registry import METHODS

if TYPE_CHECKING:
    from tests.conftest import Outcome

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_can_be_set_to_its_default(method: str) -> None:
    lines = shared_settings() + method_settings(method)
    told = [f"{line.name}={line.default}" for line in lines if line.name != "method"]
    assert load_config(settings=[f"method={method}", *told]) == load_config(settings=[f"method={method}"])


def test_every_setting_has_a_meaning() -> None:
    lines = [*shared_settings(), *(line for lines in all_method_settings().values() for line in lines)]
    assert [line.name for line in lines if not line.meaning] == []


def test_the_docs_list_all_settings() -> None:
    written = runpy.run_path(str(DOCS / "write_settings.py"))
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert text == written["page"](text), "run make docs"


def test_the_verb_lists_them(cli: "Callable[..., Outcome]") -> None:
    shared, more = cli("settings"), cli("settings", "elr")
    assert shared.code == more.code == 0
    assert "train.lr" in shared.out
    assert "elr.beta" not in shared.out
    assert "elr.beta" in more.out
    assert cli("settings", "nobody").code == 2
