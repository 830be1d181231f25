"""The layers of the package: a file imports from its own layer or from lower ones."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import somnet

ROOT = Path(somnet.__file__).parent
LAYERS = (
    {"errors", "config", "system"},
    {"core"},
    {"nn"},
    {"data"},
    {"methods"},
    {"runs"},
    {"exports", "cleaning"},
    {"report"},
    {"training"},
    {"benchmark"},
    {"cli", "__init__", "__main__"},
)
WITHOUT_TORCH = {f"somnet.methods.{name}" for name in ("registry", "settings", "somnet_settings")}  # for the config
FILES = {".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file for file in sorted(ROOT.rglob("*.py"))}


def module_of(name: str) -> str:
    """Names as they are imported: a package's own file is the package."""
    return name.removesuffix(".__init__")


MODULES = {module_of(name): file for name, file in FILES.items()}


def layer(module: str) -> int:
    if module in WITHOUT_TORCH:
        return 0
    parts = module.split(".")
    top = parts[1] if len(parts) > 1 else "__init__"
    layers = [number for number, names in enumerate(LAYERS) if top in names]
    assert layers, f"{module} is in no layer: add it to LAYERS"
    return layers[0]


def imported(module: str, file: Path) -> Iterator[str]:
    """Modules of the package that a file imports, wherever in it."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            submodules = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else base for name in submodules]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "somnet")


def calls(file: Path) -> Iterator[str]:
    """Dotted names that a file uses: torch.load, yaml.load."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_files_are_found() -> None:
    assert {"somnet", "somnet.core.memory", "somnet.data.sources.folder", "somnet.cli.main"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_imported_from_a_higher_layer(module: str) -> None:
    higher = [name for name in imported(module, MODULES[module]) if layer(name) > layer(module)]
    assert higher == []


def test_imports_do_not_go_in_circles() -> None:
    graph = {
        module: {name for name in imported(module, file) if name != module and layer(name) == layer(module)}
        for module, file in MODULES.items()
        if module != "somnet"  # the package's own names are loaded when asked for
    }
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("somnet.core")])
def test_the_paper_needs_torch_alone(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    allowed = ("torch", "math", "collections", "dataclasses", "typing", "somnet.core.types", "somnet.core")
    assert [name for name in used if not any(name == ok or name.startswith(f"{ok}.") for ok in allowed)] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_file_runs_what_it_reads(module: str) -> None:
    forbidden = {"pickle", "cPickle", "dill", "joblib", "torch.load", "yaml.load", "marshal", "shelve"}
    assert forbidden.isdisjoint(calls(MODULES[module]))


MOST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 400, 60, 7
PROJECT = Path(__file__).parent.parent
CODE = [file for folder in ("somnet", "tests", "benchmarks", "examples") for file in (PROJECT / folder).rglob("*.py")]


@pytest.mark.parametrize("file", CODE, ids=lambda file: str(file.relative_to(PROJECT)))
def test_files_and_functions_are_short(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    if "cli" in file.relative_to(PROJECT).parts:  # a command has as many parameters as it has options
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MOST_FUNCTION_LINES, node.name
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            assert len([name for name in names if name not in ("self", "cls")]) <= MOST_PARAMETERS, node.name
