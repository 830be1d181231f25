"""All methods by name, one line each, and their settings. Nothing here loads torch, so it is in the lowest layer.

Another package brings a method by an entry point of the group `somnet.methods`: `name = "package.module:Class"`.
`package.module:Class` itself is a name too, where the person at the keyboard gives it.
"""

import ast
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import tomli_w

from somnet.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from somnet.methods.settings import MethodSettings  # pydantic, which `--help` need not wait for

METHODS = {
    "admil": "somnet.methods.admil:Admil",
    "attend-groups": "somnet.methods.attend_groups:AttendGroups",
    "confident": "somnet.methods.confident:Confident",
    "curriculumnet": "somnet.methods.curriculumnet:CurriculumNet",
    "divide-mix": "somnet.methods.divide_mix:DivideMix",
    "drae": "somnet.methods.drae:Drae",
    "elr": "somnet.methods.elr:EarlyLearning",
    "linear-probe": "somnet.methods.linear_probe:LinearProbe",
    "mlnt": "somnet.methods.mlnt:Mlnt",
    "mopro": "somnet.methods.mopro:MoPro",
    "pencil": "somnet.methods.pencil:Pencil",
    "plain": "somnet.methods.plain:Plain",
    "plain-roi": "somnet.methods.plain:PlainRoi",
    "sl": "somnet.methods.sl:SymmetricCrossEntropy",
    "somnet": "somnet.methods.somnet:SomNet",
    "somnet+": "somnet.methods.somnet_plus:SomNetPlus",
    "ssr": "somnet.methods.ssr:Ssr",
    "sukhbaatar": "somnet.methods.sukhbaatar:Sukhbaatar",
    "tanaka": "somnet.methods.tanaka:Tanaka",
    "wann": "somnet.methods.wann:Wann",
}
GROUP = "somnet.methods"  # of entry points
TRUSTED = "SOMNET_METHODS"  # environment variable: module:Class,... that a file may name
LIGHT = ("typing", "pydantic", "somnet.methods.settings")  # what settings may use, and modules *_settings

_given: dict[str, str] = {}  # module:Class that the person at the keyboard has named


@cache
def known_methods() -> dict[str, str]:
    """Name and place, `module:Class`, of our own methods and of those that installed packages bring."""
    return METHODS | {point.name: point.value for point in entry_points(group=GROUP) if point.name not in METHODS}


def method_place(name: str) -> str:
    """Where a method is: `module:Class`."""
    known = known_methods()
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if colon and all(word.isidentifier() for word in (*module.split("."), attribute)):
        return name
    near = did_you_mean(name, known)
    raise ConfigError(
        f"there is no method '{name}':{near} choose one of {', '.join(sorted(known))}, or a package.module:Class of "
        "your own"
    )


def trust(name: str) -> None:
    """The person at the keyboard has named this method, so what a file says of it may be believed."""
    if name not in known_methods():
        _given[name] = method_place(name)


def is_trusted(name: str) -> bool:
    """Whether a file may choose this method: loading a stranger's run must not import what it likes."""
    return name in known_methods() or name in _given or name in os.environ.get(TRUSTED, "").split(",")


def import_method_module(module: str) -> ModuleType:
    """The module of a method; that of somebody's own may be in the working folder."""
    file_of(module)
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"cannot import the method's module '{module}' ({error}): install what it needs, or fix it"
        ) from None


def file_of(module: str) -> Path:
    """The file of a module, which is not run; the working folder is looked at last, and stays on the path then."""
    for folder in ("", os.getcwd()):
        if folder and folder not in sys.path:
            sys.path.append(folder)
        try:
            spec = find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            return Path(spec.origin)
    raise ConfigError(f"there is no module '{module}' with a method: install it, or run in the folder that holds it")


@cache
def sections_of(name: str) -> "dict[str, type[MethodSettings]]":
    """The sections of the config that a method takes its settings from, by name."""
    kinds = _settings_in(method_place(name).partition(":")[0])
    for section, kind in kinds.items():
        try:
            tomli_w.dumps(kind().model_dump())
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the settings '{section}' need defaults that TOML can write ({error}): give them"
            ) from None
    return kinds


def section_named(section: str) -> "type[MethodSettings] | None":
    """The settings that a section of the config belongs to, whichever method is chosen; None: there is no such one."""
    for name, place in (known_methods() | _given).items():
        if place.partition(":")[0].rpartition(".")[2] == section:
            return sections_of(name).get(section)
    return None


def _settings_in(module: str) -> "dict[str, type[MethodSettings]]":
    """The settings in a module's file, beside it, and in those of the methods that it builds on; the file is not run.

    torch takes seconds to load, and `--help` or a mistake in a setting should not wait for it.
    """
    from somnet.methods.settings import MethodSettings

    file = file_of(module)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": module}
    for node in tree.body:
        if _is_light(node, names):
            try:
                exec(compile(ast.Module([node], []), str(file), "exec"), names)
            except NameError as error:
                raise ConfigError(
                    f"{file}: settings are read without the rest of the file ({error}): use nothing but "
                    f"{', '.join(LIGHT)}"
                ) from None
    kinds: dict[str, type[MethodSettings]] = {}
    for other in _bases_from(tree, module):
        kinds |= _settings_in(other)
    own = [value for value in names.values() if isinstance(value, type) and issubclass(value, MethodSettings)]
    return kinds | {kind.section(): kind for kind in own if kind is not MethodSettings}


def _is_light(node: ast.stmt, names: dict[str, object]) -> bool:
    """Whether a statement is a class of settings, or imports what such classes may use."""
    from somnet.methods.settings import Section

    if isinstance(node, ast.ImportFrom):
        return node.module in LIGHT or (node.module or "").endswith("_settings")
    if not isinstance(node, ast.ClassDef):
        return False
    bases = [names.get(base.id) for base in node.bases if isinstance(base, ast.Name)]
    return any(isinstance(base, type) and issubclass(base, Section) for base in bases)


def _bases_from(tree: ast.Module, module: str) -> Iterator[str]:
    """Modules of methods, ours or of the same package, that classes of this one are derived from."""
    derived = {
        base.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    near = ("somnet.methods.", module.partition(".")[0] + ".")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(near) and node.module not in LIGHT:
            if derived.isdisjoint(alias.asname or alias.name for alias in node.names):
                continue
            yield str(node.module)
