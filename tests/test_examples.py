"""The examples do what they say."""

import ast
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from somnet.methods.registry import TRUSTED

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

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


def cell_values(notebook: Path) -> list[Any]:
    """What the cells of a notebook show, run one after the other as Jupyter does: the value of a last expression."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    names: dict[str, Any] = {}
    shown = []
    for cell in content["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []  # nothing of whoever wrote it
        *statements, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(statements, []), str(notebook), "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(notebook), "eval"), names))
        else:
            exec(compile(ast.Module([last], []), str(notebook), "exec"), names)
    return shown


@pytest.mark.slow
def test_the_notebook_runs_from_a_crawl_to_a_classifier(
    photos: "Photos", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos.fill(tmp_path / "crawl", ("elm", "oak"), train=6)
    monkeypatch.chdir(tmp_path)
    run, doubted, sheet, page, schema, cleaned, predicted, evaluated = cell_values(EXAMPLES / "crawl.ipynb")
    assert "elm" in run._repr_html_()
    assert list(doubted.columns) == ["file_name", "given_label", "suggested_label", "label_score"]
    assert sheet.size == (8 * 120, 120)
    assert page == Path("runs/crawl/report/index.html")
    assert page.is_file()
    assert "embedding" in schema.names
    assert "table" in cleaned._repr_html_()
    assert (tmp_path / "crawl-clean").is_dir()
    assert {label for _, label, _ in predicted} <= {"elm", "oak"}
    assert evaluated.n > 0
