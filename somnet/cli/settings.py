"""All settings, with their defaults and what the comments beside them say, for `somnet settings` and the docs."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import tomli_w
from pydantic import BaseModel

from somnet.config import UNSET, Config
from somnet.methods.registry import METHODS, file_of, sections_of
from somnet.methods.settings import MethodSettings


@dataclass(frozen=True)
class Setting:
    """One line of a config."""

    name: str  # dotted, as for --set
    default: str  # as TOML writes it
    meaning: str


def shared_settings() -> list[Setting]:
    """Those of every run."""
    return list(_settings(Config))


def method_settings(method: str) -> list[Setting]:
    """Those of a method: of all sections that it reads."""
    return [line for kind in sections_of(method).values() for line in _settings(kind, f"{kind.section()}.")]


def all_method_settings() -> dict[str, list[Setting]]:
    """Those of our own methods, by section."""
    kinds: dict[str, type[MethodSettings]] = {}
    for method in METHODS:
        kinds |= sections_of(method)
    return {name: list(_settings(kind, f"{name}.")) for name, kind in sorted(kinds.items())}


def markdown(settings: list[Setting]) -> str:
    """A table for the docs."""
    rows = [f"| `{line.name}` | `{line.default}` | {line.meaning.replace('|', '/')} |" for line in settings]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _settings(kind: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    comments = _comments(kind.__module__).get(kind.__name__, {})
    for name, field in kind.model_fields.items():
        value = field.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            yield from _settings(type(value), f"{prefix}{name}.")
        else:
            default = UNSET if value is None else tomli_w.dumps({"x": value}).removeprefix("x = ").strip()
            yield Setting(prefix + name, default, comments.get(name, ""))


@cache
def _comments(module: str) -> dict[str, dict[str, str]]:
    """The comment behind each field of each class in a module's file, which is not run for it."""
    text = file_of(module).read_text(encoding="utf-8")
    lines = text.splitlines()
    return {
        node.name: {
            field.target.id: lines[(field.end_lineno or field.lineno) - 1][field.end_col_offset or 0 :].lstrip(" #")
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }
