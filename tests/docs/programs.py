"""The words of a command, checked by the program's own parser; nothing is carried out.

`somnet` verbs run to the point where their work would begin: `stand_ins` puts something there that stops them.
"""

import argparse
import ast
import inspect
import itertools
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, NoReturn

import pytest
import typer
from torch.distributed.run import get_args_parser

from somnet.benchmark.entries import ENTRIES
from somnet.cli.main import app
from somnet.config import Config
from somnet.errors import SomnetError
from somnet.methods.registry import METHODS
from somnet.runs.run import Run

ROOT = Path(__file__).parent.parent.parent
CONFIG = "CONFIG"  # stands for a reader's own config; such a file exists where commands are tried, and is empty
FILLER = "something"  # stands for all else that a reader fills in
OWN = "mine"  # what the documents call a method, or a file, of the reader's own
WORK = (  # what the verbs call once they have understood everything
    "somnet.benchmark.bench.run_bench",
    "somnet.benchmark.demo.run_demo",
    "somnet.benchmark.together.compare_benchmarks",
    "somnet.cli.doctor.checks",
    "somnet.cli.doctor.gpu_lines",
    "somnet.cli.settings.shared_settings",
    "somnet.data.cache.sizes",
    "somnet.data.sources.open_source",
    "somnet.report.site.write_report",
    "somnet.runs.predictions.image_files",
    "somnet.runs.embedding.embed",
    "somnet.runs.estimate.plan_training",
    "somnet.training.train.train",
)
RUNS = (
    "somnet.cleaning.clean.RunFolder",
    "somnet.exports.network.Run",
    "somnet.runs.run.Run",
    "somnet.runs.run_folder.RunFolder",
)
VERBS: Mapping[str, Any] = getattr(typer.main.get_command(app), "commands", {})
COMPLETION = {
    option
    for parameter in typer.main.get_command(app).params
    for option in parameter.opts
    if option in ("--install-completion", "--show-completion")
}
OTHER_PROGRAMS = {
    *("apt", "apt-get", "cat", "cd", "cp", "curl", "deactivate", "export", "git", "head", "kubectl", "less", "ls"),
    *("mkdir", "mypy", "ruff", "sbatch", "source", "tail", "tar", "tee", "tensorboard", "unzip", "wget", "xdg-open"),
}


class Wrong(Exception):
    """What is wrong with a command or a snippet."""


class Reached(Exception):
    """A verb has understood its command and would begin to work."""


class _Run(Run):
    """Stands in for a run: it can be made, and stops whoever wants to know more of it than where it is."""

    __module__ = Run.__module__

    def __init__(self, path: Path | str) -> None:
        self.path, self.data = Path(path), {"path": "data"}

    def __getattribute__(self, name: str) -> Any:
        if name in ("path", "data", "__class__"):
            return super().__getattribute__(name)
        raise Reached


def stand_ins(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make verbs and scripts stop where their work begins; `folder` is where commands are tried."""
    for name in WORK:
        patch.setattr(name, _stop(_named(name)))
    for name in RUNS:
        patch.setattr(name, _Run)
    patch.setitem(METHODS, OWN, METHODS["plain"])
    patch.setitem(ENTRIES, OWN, ENTRIES["plain"])
    patch.setattr("somnet.methods.registry.known_methods", lambda: METHODS)
    patch.setattr(argparse.ArgumentParser, "error", _refuse)
    patch.chdir(folder)
    for name in ("configs", "benchmarks", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / CONFIG).touch()
    (folder / "own_method.py").symlink_to(ROOT / "examples" / "own_method.py")
    (folder / f"{OWN}.py").write_text(f"from somnet.methods.plain import Plain as {OWN.title()}\n", encoding="utf-8")


def _named(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _stop(work: Callable[..., object]) -> Callable[..., NoReturn]:
    @wraps(work)
    def instead(*values: object, **named: object) -> NoReturn:
        bound = inspect.signature(work).bind(*values, **named)
        for value in bound.arguments.values():
            if isinstance(value, Config) and value.method not in METHODS and ":" not in value.method:
                raise Wrong(f"there is no method '{value.method}'")
        raise Reached

    return instead


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    raise Wrong(message)


# The programs


def _somnet(words: Sequence[str], synopsis: bool) -> None:
    words = list(words)
    if COMPLETION.issuperset(words) and words:
        return  # typer's own, which would write to the shell of whoever runs the tests
    for before, word in itertools.pairwise(words):
        if before == "--config" and "/" not in word:
            Path(word).touch()  # a file of the reader's own
    if synopsis and words:
        words, synopsis = _shortened(words)
    for _ in range(10):
        try:
            app(words, prog_name="somnet", standalone_mode=False)
        except Reached:
            return
        except SomnetError as error:
            raise Wrong(str(error)) from None
        except Exception as error:  # the parser's own, of a module that typer keeps to itself
            if not hasattr(error, "format_message"):
                raise
            missing = getattr(error, "param", None)
            if not synopsis or type(error).__name__ != "MissingParameter" or missing is None:
                raise Wrong(error.format_message()) from None
            filler = CONFIG if missing.name == "config" else FILLER
            words += [filler] if missing.param_type_name == "argument" else [missing.opts[0], filler]
        else:
            break
    if not {"--help", "--version"} & set(words):
        raise Wrong("the verb ended before its work: WORK in tests/docs/programs.py has to name what it calls")


def _shortened(words: list[str]) -> tuple[list[str], bool]:
    """Without flags that lack a value, or have NAME or a.b=c: they must exist, no more. And whether other things may
    be missing: where there are dots, or nothing but a verb and flags.
    """
    options = {name: option for option in getattr(VERBS.get(words[0]), "params", ()) for name in option.opts}
    kept, given, rest = words[:1], False, [word for word in words[1:] if word != "..."]
    open_ended = len(rest) < len(words) - 1
    while rest:
        kept.append(rest.pop(0))
        if kept[-1] not in options:
            given |= not kept[-1].startswith("-")
        elif options[kept[-1]].param_type_name == "option" and not options[kept[-1]].is_flag:
            if rest and not rest[0].startswith("--"):
                kept.append(rest.pop(0))
                if kept[-1] == "a.b=c" or (kept[-1].isupper() and not options[kept[-2]].required):
                    del kept[-2:]
            else:
                kept.pop()
    open_ended |= not given
    if open_ended and "--out" in options and "--out" not in kept:
        kept += ["--out", FILLER]
    return kept, open_ended


def _torchrun(words: Sequence[str], synopsis: bool) -> None:
    given = get_args_parser().parse_args(words)
    if PurePath(given.training_script).name == "somnet":
        _somnet(given.training_script_args, synopsis)
    else:
        _python([*(["-m"] if given.module else []), given.training_script, *given.training_script_args], synopsis)


def only_torchrun(words: Sequence[str]) -> None:
    """Flags of torchrun alone, without what it starts."""
    get_args_parser().parse_args([*words, "1", "1"])  # a value that may be missing, and the script


def _python(words: Sequence[str], synopsis: bool) -> None:
    match list(words):
        case ["-m", "pytest", *rest]:
            _pytest(rest, synopsis)
        case ["-m", "pip", *rest]:
            _pip(rest, synopsis)
        case ["-m", "somnet", *rest]:
            _somnet(rest, synopsis)
        case ["-m", module, *rest]:
            if find_spec(module) is None:
                raise Wrong(f"there is no module {module}")
            if module.startswith("benchmarks."):
                _script(ROOT / f"{module.replace('.', '/')}.py", rest, module)
        case ["-c", code]:
            check_python(code)
        case [script, *rest] if not script.startswith("-"):
            if not (ROOT / script).is_file():
                raise Wrong(f"there is no script {script}")
            _script(ROOT / script, rest, None)
        case _:
            raise Wrong("python with neither a script, nor -m, nor -c")


def _script(file: Path, words: Sequence[str], module: str | None) -> None:
    """Run a script up to the point where it has read its flags."""
    code = file.read_text(encoding="utf-8")
    if ".parse_args()" not in code:
        raise Wrong(f"{file.name} reads no flags with argparse, so nobody can tell whether these are right")
    if module is None and re.search(r"^(from|import) benchmarks\b", code, re.MULTILINE):
        raise Wrong(f"{file.name} imports its neighbours: python -m benchmarks.{file.stem}")
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> NoReturn:
        parse(parser)
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        patch.setattr(sys, "argv", [str(file), *words])
        patch.syspath_prepend(ROOT)
        try:
            runpy.run_module(module, run_name="__main__") if module else runpy.run_path(str(file), run_name="__main__")
        except Reached:
            return
        except ImportError as error:
            raise Wrong(f"{file.name} does not start: {error}") from None
    raise Wrong(f"{file.name} ended without a look at its flags")


def _make(words: Sequence[str], synopsis: bool) -> None:
    targets = set(re.findall(r"^([\w./-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in words:
        if not word.startswith("-") and "=" not in word and word not in targets:
            raise Wrong(f"there is no make target {word}")


def _pip(words: Sequence[str], synopsis: bool) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for before, word in itertools.pairwise(["", *words]):
        if before in ("-r", "-c", "--requirement", "--constraint") and not (ROOT / word).is_file():
            raise Wrong(f"there is no file {word}")
        if extras := re.fullmatch(r"(?:somnet|\.)\[([^\]]+)\].*", word):
            for extra in extras[1].split(","):
                if extra.strip() not in project["optional-dependencies"]:
                    raise Wrong(f"there is no extra {extra}")


def _pytest(words: Sequence[str], synopsis: bool) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    markers = {marker.partition(":")[0] for marker in options["markers"]}
    for before, word in itertools.pairwise(["", *words]):
        if before == "-m" and (unknown := set(re.findall(r"\w+", word)) - markers - {"not", "and", "or"}):
            raise Wrong(f"there is no marker {unknown.pop()}")
        if "/" in word and not (ROOT / word.partition("::")[0]).exists():
            raise Wrong(f"there is no {word}")


PROGRAMS: dict[str, Callable[[Sequence[str], bool], None]] = {
    "make": _make,
    "pip": _pip,
    "pytest": _pytest,
    "python": _python,
    "python3": _python,
    "somnet": _somnet,
    "torchrun": _torchrun,
}


# Python code


def exists(name: str) -> bool:
    """Whether a dotted name is that of a module, or of something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def check_python(code: str, known: Mapping[str, object] | None = None) -> None:
    """Code is Python, what it imports exists, and what it calls by an imported name takes these arguments."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise Wrong(f"not Python: {error.msg} in line {error.lineno}") from None
    names = dict(known or {})
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not exists(alias.name):
                    raise Wrong(f"cannot import {alias.name}")
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or top] = import_module(top)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if not exists(f"{node.module}.{alias.name}"):
                    raise Wrong(f"cannot import {alias.name} from {node.module}")
                module = import_module(node.module or "")
                if hasattr(module, alias.name):
                    names[alias.asname or alias.name] = getattr(module, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node, names)
        elif isinstance(node, ast.Attribute):
            _value(node, names)


def _check_call(call: ast.Call, names: Mapping[str, object]) -> None:
    called = _value(call.func, names)
    if isinstance(call.func, ast.Attribute) and inspect.isclass(owner := _value(call.func.value, names)):
        if called is None:
            raise Wrong(f"{ast.unparse(call.func.value)} has no {call.func.attr}")
        is_method = not isinstance(inspect.getattr_static(owner, call.func.attr), classmethod | staticmethod)
    else:
        is_method = False
    starred = any(isinstance(value, ast.Starred) for value in call.args) or any(not word.arg for word in call.keywords)
    if not callable(called) or starred or not (getattr(called, "__module__", None) or "").startswith("somnet"):
        return
    values = [object() for _ in (*call.args, *[call] * is_method)]  # Run.predict(files) stands for that of an object
    try:
        inspect.signature(called).bind(*values, **{word.arg: object() for word in call.keywords if word.arg})
    except TypeError as error:
        raise Wrong(f"{ast.unparse(call)}: {error}") from None


def _value(node: ast.expr, names: Mapping[str, object]) -> object:
    """What a dotted name stands for, as far as imports tell."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _value(node.value, names)
    if owner is None:
        return None
    if inspect.ismodule(owner) and not hasattr(owner, node.attr):
        raise Wrong(f"{ast.unparse(node.value)} has no {node.attr}")
    return getattr(owner, node.attr, None)
