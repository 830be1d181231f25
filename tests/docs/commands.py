"""Commands as a reader would type them, taken apart, and the files and settings that a text names."""

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePath

import pytest

from somnet.config import Config
from somnet.errors import ConfigError
from somnet.methods.registry import METHODS
from tests.docs.programs import FILLER, OTHER_PROGRAMS, OWN, PROGRAMS, ROOT, VERBS, Wrong, exists, only_torchrun

PREFIXES = {"env", "exec", "nohup", "srun", "sudo", "time"}
FOLDERS = ("benchmarks", "configs", "docs", "examples", "somnet", "tests")
_PATH = re.compile(rf"(?<![\w./:-])(?:{'|'.join(FOLDERS)})/[\w./+-]*(?P<open>[<*{{]?)")
_CODE_FILE = re.compile(r"(?<![\w.<*}-])(?:[\w-]+/)*[\w-]+\.(?:py|sh)\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FILES = frozenset(
    str(file.relative_to(ROOT))
    for pattern in ("*.*", *(f"{folder}/**/*.*" for folder in FOLDERS))
    for file in ROOT.glob(pattern)
)


# From text to words


def command_lines(text: str, first: int = 1) -> list[tuple[int, str]]:
    """The commands of a shell block with their line numbers: behind `$ ` in a session, else every line."""
    lines = text.splitlines()
    session = any(line.startswith("$ ") for line in lines)
    found: list[tuple[int, str]] = []
    goes_on = False
    for number, line in enumerate(lines, first):
        if session and not goes_on:
            if not line.startswith("$ "):
                continue  # what the command before has printed
            line = line.removeprefix("$ ")
        elif session:
            line = line.removeprefix("> ")
        line = without_comment(line).rstrip()
        if goes_on:
            number, before = found.pop()
            line = f"{before} {line.strip()}"
        goes_on = line.endswith("\\")
        line = line.removesuffix("\\").rstrip()
        if line or goes_on:
            found.append((number, line))
    if goes_on:
        raise Wrong("the last line goes on, but there is none")
    return found


def without_comment(line: str) -> str:
    """A line of a shell up to a # that begins a word outside of quotes."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and (place == 0 or line[place - 1] != "\\"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each program that a line starts: parts of a pipe, and what is joined by && or ;."""
    line = re.sub(r"\$\(which (\S+)\)", r"\1", line)
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    try:
        tokens = list(reader)
    except ValueError as error:
        raise Wrong(f"not a command: {error}") from None
    words: list[str] = []
    while tokens:
        token = tokens.pop(0)
        if token in ("|", "||", "&&", ";", "&"):
            yield words
            words = []
        elif token in (">", ">>", "<", ">&", "&>"):
            if words and words[-1].isdigit():
                words.pop()
            if not tokens:
                raise Wrong(f"nothing behind {token}: a shell takes < and > for files")
            tokens.pop(0)
        elif not token.strip("();<>|&"):
            raise Wrong(f"{token} is not understood")
        else:
            words.append(token)
    if words:
        yield words


# From words to programs


def check_line(line: str) -> None:
    """A line of a shell, complete as it stands."""
    for words in simple_commands(line):
        check_command(words)


def check_command(words: Sequence[str], *, synopsis: bool = False) -> None:
    """One program with its words. A synopsis may have [brackets], a|b and ... in it, and be a verb or flags alone."""
    words = list(words)
    while words and (_ASSIGNMENT.match(words[0]) or PurePath(words[0]).name in PREFIXES):
        name, equals, _ = words.pop(0).partition("=")
        if equals and name.startswith("SOMNET_") and name not in _environment():
            raise Wrong(f"the package does not know the variable {name}")
    if not words:
        return
    program = PurePath(words[0]).name
    if program in PROGRAMS:
        for choice in _alternatives(words[1:]) if synopsis else [words[1:]]:
            PROGRAMS[program](choice, synopsis)
    elif program not in OTHER_PROGRAMS:
        raise Wrong(f"the program {words[0]} is not understood: teach tests/docs/programs.py what to do with it")
    for word in words:
        check_paths(word)


def is_command(words: Sequence[str]) -> bool:
    """Whether inline code is a command, and not the name of a program."""
    words = list(itertools.dropwhile(lambda word: _ASSIGNMENT.match(word) or word in PREFIXES, words))
    return len(words) > 1 and words[0][-1] != "/" and PurePath(words[0]).name in {*PROGRAMS, *OTHER_PROGRAMS}


def check_flags(words: Sequence[str]) -> None:
    """Flags alone, with or without values: some verb must take them, or else torchrun."""
    problems: list[str] = []
    for choice in _alternatives(words):
        for try_it in (*((lambda w, v=verb: PROGRAMS["somnet"]([v, *w], True)) for verb in VERBS), only_torchrun):
            try:
                try_it(choice)
                break
            except Wrong as problem:
                problems.append(str(problem))
        else:
            raise Wrong(next((text for text in problems if not _is_unknown(text)), f"no verb has {choice[0]}"))


def _is_unknown(problem: str) -> bool:
    return "o such option" in problem or "unrecognized" in problem


def _alternatives(words: Sequence[str]) -> Iterator[list[str]]:
    """A synopsis without its marks, once for each of a|b."""
    plain = []
    for word in words:
        word = word.removeprefix("[")
        word = word[:-1] if word.count("]") > word.count("[") else word
        plain.append((word if word == "..." else word.removesuffix("...")).split("|"))
    return (list(choice) for choice in itertools.product(*plain))


def _environment() -> set[str]:
    """Variables that the package reads."""
    files = (ROOT / "somnet").rglob("*.py")
    return {name for file in files for name in re.findall(r"\bSOMNET_\w+", file.read_text(encoding="utf-8"))}


# Files and settings


def names_paths(text: str) -> bool:
    """Whether files of this repository are named."""
    return bool(_PATH.search(text) or _CODE_FILE.search(text))


def check_paths(text: str) -> None:
    """Files of this repository that are named must exist, by their whole path or by its end."""
    for found in _PATH.finditer(text):
        path = found[0].rstrip(".<*{")
        if found["open"]:  # a name with a gap, as tests/<folder>/test_*.py: what leads there must exist
            path = path.rpartition("/")[0]
        if Path(path).stem != OWN and not (ROOT / path).exists():
            raise Wrong(f"there is no {path}")
    for found in _CODE_FILE.finditer(text):
        if Path(found[0]).stem != OWN and not any(f"/{file}".endswith(f"/{found[0]}") for file in _FILES):
            raise Wrong(f"there is no file {found[0]}")


def check_setting(text: str) -> None:
    """`a.b.c` or `a.b.c=value` as --set takes it, or else a name of the package: `somnet.core.memory.winner`."""
    if "=" in text:
        PROGRAMS["somnet"](["propose", FILLER, "--set", text], False)
    elif not any(f"{name}.".startswith(f"{text}.") for name in settings()) and not exists(text):
        raise Wrong(f"{text} is neither a setting nor a name of the package")


@cache
def settings() -> frozenset[str]:
    """The names of all settings, of whatever method, as --set takes them."""
    sections = {*Config.model_fields, *(name.replace("-", "_").replace("+", "_plus") for name in METHODS)}
    return frozenset(name for section in sections for name in _settings_in(section))


def _settings_in(place: str) -> Iterator[str]:
    """The names in a section; the place itself if it is a setting; nothing if there is no such place."""
    inside, above = _names_in(place), _names_in(place.rpartition(".")[0])
    if inside != above:
        for name in inside:
            yield from _settings_in(f"{place}.{name}")
    elif place.rpartition(".")[2] in above:
        yield place


def _names_in(place: str) -> list[str]:
    """The names that an unknown one is answered with: those of the section, or of the last one on the way there."""
    with pytest.raises(ConfigError) as answer:
        Config().with_settings({f"{place}.?".removeprefix("."): 0})
    return str(answer.value).partition("the names here are ")[2].split(", ")
