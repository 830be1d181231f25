"""All that can be checked in a document without running it, one check for each command, snippet, setting and link."""

import ast
import csv
import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import yaml

import somnet
from somnet.config import validated
from somnet.data.noise import NoiseRecipe
from somnet.errors import SomnetError
from tests.docs.commands import (
    check_command,
    check_flags,
    check_line,
    check_paths,
    check_setting,
    command_lines,
    is_command,
    names_paths,
    settings,
    simple_commands,
)
from tests.docs.markdown import Document, Piece
from tests.docs.programs import ROOT, VERBS, Wrong, check_python

OTHER_TOML = {"build-system", "project", "tool"}  # tables of pyproject.toml, all other TOML is a config of somnet
ENDINGS = {
    "csv",
    "html",
    "json",
    "jsonl",
    "jpg",
    "js",
    "md",
    "onnx",
    "parquet",
    "png",
    "py",
    "safetensors",
    "toml",
    "txt",
}
_COMMAND_IN_TEXT = re.compile(
    rf"^\s*(\$ \S|(somnet ({'|'.join(VERBS)})|make [a-z]|torchrun|python3?|pip install)\b)", re.MULTILINE
)
_SETTING = re.compile(r"(?P<section>[a-z_]+)(\.[A-Za-z_]\w*)+(?P<value>=\S.*)?")
_ASSIGNED = re.compile(r"(?P<name>[a-z_]+)=(?P<value>\S+)")


@dataclass(frozen=True)
class Check:
    """Something of a document, and how to find out whether it is right."""

    piece: Piece
    run: Callable[[], None]

    def __str__(self) -> str:
        return str(self.piece)


def documents() -> list[Document]:
    """All Markdown files of the repository."""
    folders = ("benchmarks", "configs", "docs", "examples", "somnet", "tests", ".github")
    files = [*ROOT.glob("*.md"), *(file for folder in folders for file in (ROOT / folder).rglob("*.md"))]
    return [Document.read(ROOT, file) for file in sorted(files)]


def mistakes(checks: Iterator[Check]) -> list[str]:
    """What is wrong, with its place."""
    found = []
    for check in checks:
        try:
            check.run()
        except Wrong as problem:
            found.append(f"{check}: {problem}")
    return found


def checks_of(document: Document) -> Iterator[Check]:
    """Blocks, inline code, links and named files of a document."""
    for block in document.blocks():
        yield from _of_block(block)
    for span in document.spans():
        if found := _of_span(span):
            yield found
    for link in document.links():
        if not re.match(r"[a-z]+:|//", link.text):
            yield Check(link, partial(check_link, document, link))
    for number, line in enumerate(document.prose().splitlines(), 1):
        if names_paths(line):
            yield Check(Piece(document.name, number, line), partial(check_paths, line))


# Blocks


def kind_of(block: Piece) -> str:
    """The word behind the fence; without it, a block that begins as a command does is one of commands."""
    if block.kind:
        return block.kind.lower()
    text = block.text.strip()
    return "bash" if text.startswith("$ ") or is_command(text.split()) else ""


def _of_block(block: Piece) -> Iterator[Check]:
    kind = kind_of(block)
    if kind in ("bash", "console", "sh", "shell"):
        try:
            lines = command_lines(block.text, block.line)
        except Wrong as problem:
            yield Check(block, partial(_fail, str(problem)))
            return
        if not lines:
            yield Check(block, partial(_fail, "a block of commands without a command"))
        for number, line in lines:
            yield Check(replace(block, line=number, text=line), partial(check_line, line))
    elif kind in _KINDS:
        yield Check(block, partial(_KINDS[kind], block.text))
    else:
        yield Check(block, partial(_fail, f"say what this block is: ```{' or ```'.join(('bash', *_KINDS))}"))


def _fail(message: str) -> None:
    raise Wrong(message)


def check_text(text: str) -> None:
    """What a program prints, or how a folder is laid out: no commands, and files of this repository exist."""
    if found := _COMMAND_IN_TEXT.search(text):
        raise Wrong(f"'{found[0].strip()}' looks like a command: call the block ```bash or ```console")
    check_paths(text)


def check_toml(text: str) -> None:
    try:
        tree = tomllib.loads(text)
        if not OTHER_TOML & set(tree):
            validated(tree)
    except (tomllib.TOMLDecodeError, SomnetError) as error:
        raise Wrong(str(error)) from None


def check_yaml(text: str) -> None:
    """YAML, with the commands in it."""
    try:
        trees = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise Wrong(f"not YAML: {error}") from None
    for command in (command for tree in trees for command in _commands_in(tree)):
        check_command(command)


def _commands_in(node: object) -> Iterator[list[str]]:
    """Values of `command` and `args`, joined where both are there, and lines of `run`."""
    if isinstance(node, dict):
        words = [*(node.get("command") or []), *(node.get("args") or [])]
        if words and all(isinstance(word, str | int | float) for word in words):
            yield [str(word) for word in words]
        if isinstance(node.get("run"), str):
            yield from (words for _, line in command_lines(node["run"]) for words in simple_commands(line))
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _commands_in(child)


def check_json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise Wrong(f"not JSON: {error}") from None


def check_json_lines(text: str) -> None:
    for line in text.splitlines():
        check_json(line)


def check_csv(text: str) -> None:
    rows = list(csv.reader(text.splitlines(), strict=True))
    if len({len(row) for row in rows}) != 1:
        raise Wrong("rows of different lengths, or none")


def check_bibtex(text: str) -> None:
    """An entry whose braces match, with the fields that a citation needs."""
    if not re.fullmatch(r"@\w+\{\w+,.*\}", text.strip(), re.DOTALL) or text.count("{") != text.count("}"):
        raise Wrong("not a BibTeX entry")
    if missing := {"title", "author", "year"} - set(re.findall(r"^\s*(\w+)\s*=", text, re.MULTILINE)):
        raise Wrong(f"the citation has no {missing.pop()}")


_KINDS: dict[str, Callable[[str], None]] = {
    "bibtex": check_bibtex,
    "csv": check_csv,
    "json": check_json,
    "jsonl": check_json_lines,
    "mermaid": check_text,
    "python": check_python,
    "text": check_text,
    "toml": check_toml,
    "yaml": check_yaml,
    "yml": check_yaml,
}


# Inline code


def _of_span(span: Piece) -> Check | None:
    """The check for inline code that is a command, a flag, a setting or a call; None for a mere name."""
    text, words = span.text, span.text.split()
    if is_command(words):
        return Check(span, partial(_check_synopsis, text))
    if re.match(r"--[a-z]", text):
        return Check(span, partial(check_flags, words))
    if (setting := _SETTING.fullmatch(text)) and setting["section"] in {name.partition(".")[0] for name in settings()}:
        if text.rpartition(".")[2] not in ENDINGS:
            return Check(span, partial(check_setting, text))
    elif assigned := _ASSIGNED.fullmatch(text):
        return Check(span, partial(_check_assigned, assigned["name"]))
    elif is_call(text):
        return Check(
            span, partial(check_python, text, {name: getattr(somnet, name) for name in somnet.__all__} | _SELF)
        )
    return None


_SELF: dict[str, object] = {"somnet": somnet}


def _check_synopsis(text: str) -> None:
    text = re.sub(r"(?<=\S)\|(?=\S)", "\0", text)  # a|b is a choice here, not a pipe
    for words in simple_commands(text):
        check_command([word.replace("\0", "|") for word in words], synopsis=True)


def _check_assigned(name: str) -> None:
    """`regions=false`: some section has such a setting, or a noise recipe has such a part."""
    if name not in {field.name for field in fields(NoiseRecipe)} | {known.rpartition(".")[2] for known in settings()}:
        raise Wrong(f"no setting is called {name}")


def is_call(text: str) -> bool:
    """Whether inline code is a call of something that the package promises: `somnet.train(...)`, `Run.predict(...)`."""
    if not re.match(rf"(somnet\.[\w.]+|({'|'.join(somnet.__all__)})(\.\w+)*)\(", text):
        return False
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Call)
    except SyntaxError:
        return False


# Links


def check_link(document: Document, link: Piece) -> None:
    """A relative link leads to a file or folder, and to a heading of it if it names one."""
    path, _, anchor = link.text.partition("#")
    target = (ROOT / document.name).parent / unquote(path) if path else ROOT / document.name
    if path.startswith("/") or not target.resolve().is_relative_to(ROOT):
        raise Wrong(f"{link.text} leads out of the repository")
    if path and not target.exists():
        raise Wrong(f"there is no {link.text}")
    if anchor and target.suffix == ".md":
        there = Document.read(ROOT, target.resolve()) if path else document
        if anchor not in there.anchors():
            raise Wrong(f"no heading of {there.name} makes the anchor #{anchor}")


# Other files with commands in them


def checks_of_examples() -> Iterator[Check]:
    """Files of examples/, usage lines of benchmarks/ and the commands of the Makefile."""
    for file in sorted((ROOT / "examples").iterdir()):
        name, text = str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")
        yield Check(Piece(name, 1, "paths"), partial(check_paths, text))
        if file.suffix in (".yaml", ".yml"):
            yield Check(Piece(name, 1, "all of it"), partial(check_yaml, text))
        elif file.suffix == ".sh":
            yield Check(Piece(name, 1, "syntax"), partial(_check_shell_syntax, file))
            yield from _of_script(name, text)
        elif file.suffix == ".py":  # tests/test_examples.py runs them; here are the commands that they tell
            for line in re.findall(r"^ {4}(somnet .*)$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE):
                yield Check(Piece(name, 1, line), partial(check_line, line))
        elif file.suffix == ".ipynb":  # they run that, too
            yield Check(Piece(name, 1, "all of it"), partial(check_json, text))
        else:
            yield Check(Piece(name, 1, "all of it"), partial(_fail, f"no check for {file.suffix} files"))
    for file in sorted((ROOT / "benchmarks").glob("*.py")):
        usage = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        name = str(file.relative_to(ROOT))
        for line in re.findall(r"^ {4}(python .*)$", usage, re.MULTILINE):
            yield Check(Piece(name, 1, line), partial(_check_synopsis, line))
    for number, line in enumerate((ROOT / "Makefile").read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("\t$(BIN)/somnet "):
            yield Check(Piece("Makefile", number, line.strip()), partial(check_line, line.replace("$(BIN)/", "")))


def _check_shell_syntax(file: Path) -> None:
    done = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(done.stderr.strip())


def _of_script(name: str, text: str) -> Iterator[Check]:
    """The commands of a shell script that call somnet, its arrays put in."""
    arrays = dict(re.findall(r"\b(\w+)=\(([^)]+)\)", text))
    for number, line in command_lines(text):
        if re.search(r"\bsomnet (-|[a-z])", line):
            line = re.sub(r"\"?\$\{(\w+)\[@\]\}\"?", lambda found: arrays.get(found[1], found[0]), line)
            yield Check(Piece(name, number, line), partial(check_line, line))
