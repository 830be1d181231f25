"""Messages serve who types a command and who calls a function."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import somnet
from somnet.benchmark.bench import run_bench
from somnet.benchmark.trials import Benchmark
from somnet.config import Config
from somnet.errors import ARGUMENTS, SETTINGS, RunError, SomnetError, TrainingStopped
from somnet.report.review_server import ReviewServer
from somnet.runs.estimate import plan_training

if TYPE_CHECKING:
    from tests.conftest import Outcome

    Cli = Callable[..., Outcome]

OTHERS = {
    "--force-reinstall",
    "--upgrade",
    "--sparse",
    "--nproc-per-node",
    "--max-restarts",
}  # pip's, tar's, torchrun's
NAMED = {"--set"}  # followed by the setting itself
FLAG = re.compile(r"--[a-z][a-z-]*")


def raised_texts() -> list[tuple[str, str]]:
    """Every text inside of a raise or of what it may be made of, with its place."""
    found = []
    for file in sorted(Path(somnet.__file__).parent.rglob("*.py")):
        if "cli" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found += [(f"{file.name}:{node.lineno}", text) for text in texts if isinstance(text, str)]
    return found


def test_every_flag_of_a_message_is_told_in_python_too() -> None:
    flags = {(place, flag) for place, text in raised_texts() for flag in FLAG.findall(text)}
    assert len(flags) > 50
    assert {(place, flag) for place, flag in flags if flag not in {*ARGUMENTS, *SETTINGS, *OTHERS, *NAMED}} == set()


def test_what_is_told_exists() -> None:
    functions = (somnet.train, somnet.clean, somnet.export, run_bench, plan_training, ReviewServer, Benchmark)
    known = {name for function in functions for name in inspect.signature(function).parameters}
    assert {text.partition("=")[0] for text in ARGUMENTS.values()} <= known
    for name in SETTINGS.values():
        value: object = Config()
        for part in name.split("."):
            value = getattr(value, part)


@pytest.mark.parametrize(
    ("message", "remark"),
    [
        ("x exists: add --resume, or --resume, or another --out", " (in Python: resume=True, out=...)"),
        (
            "too large: a smaller --batch-size and --overwrite",
            " (in Python: overwrite=True; train.batch_size of Config)",
        ),
        ("cannot be cut: use --freeze none, or another --model", " (in Python: model.freeze, model.name of Config)"),
        ("damaged: pip install --force-reinstall timm", ""),
        ("nothing is typed here", ""),
    ],
)
def test_the_remark_behind_a_message(message: str, remark: str) -> None:
    for error in (RunError(message), TrainingStopped(message, 2)):
        assert error.typed == message
        assert str(error) == message + remark


def test_an_error_that_quotes_another_has_one_remark() -> None:
    inner = RunError("x exists: add --overwrite")
    outer = SomnetError(f"not written ({inner}): the run is complete")
    assert outer.typed == "not written (x exists: add --overwrite): the run is complete"
    assert str(outer) == f"{outer.typed} (in Python: overwrite=True)"


def test_an_error_without_words_stays_one() -> None:
    assert str(SomnetError()) == ""


def test_a_program_is_told_the_argument_and_a_terminal_the_flag(tmp_path: Path, cli: "Cli") -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    told = cli("train", tmp_path / "data", "--out", taken)
    assert told.err.strip().endswith(f"{taken} is a file: give another --out")
    with pytest.raises(SomnetError, match=r"give another --out \(in Python: out=\.\.\.\)$"):
        somnet.train(tmp_path / "data", out=taken)


def test_a_path_that_looks_like_a_flag_is_none() -> None:
    assert str(RunError("/home/me/cats--data/x.npy is not a run")) == "/home/me/cats--data/x.npy is not a run"
    assert str(RunError("photos/--out.jpg is broken")) == "photos/--out.jpg is broken"
    assert str(RunError("it is there: add --overwrite.")).endswith("(in Python: overwrite=True)")
