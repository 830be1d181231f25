"""The examples do what they say."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.methods.registry import TRUSTED

if TYPE_CHECKING:
    from tests.conftest import Outcome, Tiny

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_method_of_ones_own_is_short() -> None:
    assert len((EXAMPLES / "own_method.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_a_method_of_ones_own_is_trained_like_any_other(
    cli: "Callable[..., Outcome]", data: Path, tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    words = ("train", data, "--out", tmp_path / "run", "--method", "own_method:Bootstrapping", *tiny.flags())
    done = cli(*words, "--set", "own_method.trust=0.7")
    assert done.code == 0, done.err
    assert "trust = 0.7" in (tmp_path / "run" / "config.toml").read_text()
    assert cli(*words, "--set", "own_method.trust=0.7", "--resume").code == 0
    refused = cli(*words, "--set", "own_method.trust=0.6", "--resume")
    assert refused.code == 2
    assert "own_method.trust was 0.7, now 0.6" in refused.err
    assert (tmp_path / "run" / "report" / "index.html").is_file()
    monkeypatch.setenv(TRUSTED, "own_method:Bootstrapping")
    assert cli("eval", tmp_path / "run", data).code == 0


def test_the_memory_works_in_a_foreign_loop(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "memory_in_your_loop.py"))
    right, wrong = map(
        float, re.findall(r"mean weight of right labels (\S+), of wrong ones (\S+)", capsys.readouterr().out)[0]
    )
    assert right > 3 * wrong
