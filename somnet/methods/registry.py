"""All methods by name, one line each, and their settings. Nothing here loads torch, so it is in the lowest layer.

Another package brings a method by an entry point of the group `somnet.methods`: `name = "package.module:Class"`.
`package.module:Class` itself is a name too, where the person at the keyboard gives it.
"""

import ast
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from somnet.errors import ConfigError
from somnet.methods.settings import MethodSettings, Section

METHODS = {
    "admil": "somnet.methods.admil:Admil",
    "attend-groups": "somnet.methods.attend_groups:AttendGroups",
    "confident": "somnet.methods.confident:Confident",
    "curriculumnet": "somnet.methods.curriculumnet:CurriculumNet",
    "divide-mix": "somnet.methods.divide_mix:DivideMix",
    "drae": "somnet.methods.drae:Drae",
    "elr": "somnet.methods.elr:EarlyLearning",
    "mlnt": "somnet.methods.mlnt:Mlnt",
    "mopro": "somnet.methods.mopro:MoPro",
    "pencil": "somnet.methods.pencil:Pencil",
    "plain": "somnet.methods.plain:Plain",
    "plain-roi": "somnet.methods.plain:PlainRoi",
    "sl": "somnet.methods.sl:SymmetricCrossEntropy",
    "somnet": "somnet.methods.somnet:SomNet",
    "somnet+": "somnet.methods.somnet_plus:SomNetPlus",
    "sukhbaatar": "somnet.methods.sukhbaatar:Sukhbaatar",
    "tanaka": "somnet.methods.tanaka:Tanaka",
}
GROUP = "somnet.methods"  # of entry points
TRUSTED = "SOMNET_METHODS"  # environment variable: module:Class,... that a file may name
WITHOUT_TORCH = ("typing", "pydantic", "somnet.methods.settings")  # what settings may use, and modules *_settings


@cache
def known_methods() -> dict[str, str]:
    """Name and place, `module:Class`, of our own methods and of those that installed packages bring."""
    return {point.name: point.value for point in entry_points(group=GROUP)} | METHODS


def method_place(name: str) -> str:
    """Where a method is: `module:Class`."""
    known = known_methods()
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if colon and all(word.isidentifier() for word in (*module.split("."), attribute)):
        return name
    raise ConfigError(
        f"there is no method '{name}': choose one of {', '.join(sorted(known))}, or a package.module:Class of your own"
    )


def is_trusted(name: str) -> bool:
    """Whether a file may choose this method: loading a stranger's run must not import what it likes."""
    if name in known_methods() or ":" not in name:
        return True
    return name in os.environ.get(TRUSTED, "").split(",") or name.partition(":")[0] in sys.modules


def import_method_module(module: str) -> ModuleType:
    """The module of a method; the one of somebody's own may lie in the working folder."""
    ours = module.startswith("somnet.")
    path = [] if ours or _importable(module) else [os.getcwd()]
    sys.path[:0] = path
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"cannot import the method's module '{module}' ({error}): install it, or run in the folder that contains it"
        ) from None
    finally:
        for folder in path:
            sys.path.remove(folder)


def _importable(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@cache
def sections_of(name: str) -> dict[str, type[MethodSettings]]:
    """The sections of the config that a method takes its settings from, by name: all that its module knows."""
    module = method_place(name).partition(":")[0]
    known = _without_torch(module) if module.startswith("somnet.") else vars(import_method_module(module)).values()
    return {kind.section(): kind for kind in _settings_among(known)}


def section_named(section: str) -> type[MethodSettings] | None:
    """The settings that a section of the config belongs to, whichever method is chosen; None: there is no such one."""
    for name, place in known_methods().items():
        if place.partition(":")[0].rpartition(".")[2] == section:
            return sections_of(name).get(section)
    return None


def _settings_among(values: Iterable[object]) -> list[type[MethodSettings]]:
    return [
        value
        for value in values
        if isinstance(value, type) and issubclass(value, MethodSettings) and value is not MethodSettings
    ]


def _without_torch(module: str) -> list[object]:
    """What the settings in a module's file are, or are imported from beside it, without running the rest of the file.

    torch takes seconds to load, and `--help` or a mistake in a setting should not wait for it.
    """
    file = Path(__file__).parent.joinpath(module.rpartition(".")[2]).with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": module}
    for node in tree.body:
        light = isinstance(node, ast.ImportFrom) and _is_light(node.module or "")
        if light or (isinstance(node, ast.ClassDef) and _is_section(node, names)):
            exec(compile(ast.Module([node], []), str(file), "exec"), names)
    return list(names.values())


def _is_light(module: str) -> bool:
    return module in WITHOUT_TORCH or module.endswith("_settings")


def _is_section(node: ast.ClassDef, names: dict[str, object]) -> bool:
    bases = [names.get(base.id) for base in node.bases if isinstance(base, ast.Name)]
    return any(isinstance(base, type) and issubclass(base, Section) for base in bases)
