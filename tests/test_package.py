"""What users get: a wheel and an sdist that hold what they should, and a wheel that works in an empty environment.

`SOMNET_TEST_BORROW=1` lets the empty environment borrow the dependencies of this one instead of installing them, which
is quicker but proves less: it does not show that the wheel names all that it needs.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from somnet.system.version import VERSION
from tests.suite import leave_out

ROOT = Path(__file__).parents[1]
BORROW = os.environ.get("SOMNET_TEST_BORROW") == "1"
LONGEST = 3600  # seconds for what takes ten minutes on a machine that is not busy
NOT_IN_THE_SDIST = (".ci/", ".github/", ".gitignore")  # they say how this repository is run


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
        return found


def test_the_constraints_lie_within_the_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    extras = project()["optional-dependencies"]
    for text in [*project()["dependencies"], *extras["export"], *extras["dev"]]:
        needed = Requirement(text)
        if needed.name != "somnet":
            assert needed.specifier, f"{needed.name} has no bounds"
            assert versions[canonicalize_name(needed.name)] in needed.specifier, needed.name


def test_the_version_is_the_same_everywhere() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^(## \[{VERSION}\]|What {VERSION},)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def run(*words: object, cwd: Path, **environment: str) -> str:
    """What a command prints; it must succeed, and it must not see this checkout."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FORCE_COLOR")}
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**clean, "COLUMNS": "200", **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass(frozen=True)
class Built:
    """The files of the project, and what was built from them."""

    tracked: set[str]
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built from a copy: setuptools would take files of older builds in the checkout for new ones."""
    if not (ROOT / ".git").exists():
        leave_out("only git knows which files belong to the project: the tests of the package need a clone")
    base = tmp_path_factory.mktemp("built")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    tracked = {name for name in listed if name and (ROOT / name).is_file()}
    for name in tracked:
        (base / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, base / "copy" / name)
    build = (sys.executable, "-m", "build")
    run(*build, "--outdir", base / "both", "copy", cwd=base)  # the sdist, and the wheel from it
    run(*build, "--wheel", "--outdir", base / "direct", "copy", cwd=base)
    [sdist], [of_sdist], [direct] = (
        list(base.glob(pattern)) for pattern in ("both/*.tar.gz", "both/*.whl", "direct/*.whl")
    )
    return Built(tracked, direct, sdist, of_sdist)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.long
def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    found = contents(built.wheel)
    info = f"somnet-{VERSION}.dist-info"
    package = {name for name in built.tracked if name.startswith("somnet/")}
    assert {name for name in found if not name.startswith(f"{info}/")} == package
    assert {"somnet/py.typed", "somnet/report/pages/base.html", "somnet/report/pages/somnet.js"} <= package
    assert f"{info}/licenses/LICENSE" in found
    about = Parser().parsestr(found[f"{info}/METADATA"].decode())
    assert (about["Name"], about["Version"], about["License-Expression"]) == ("somnet", VERSION, "Apache-2.0")
    assert "@inproceedings" in about.get_payload()
    assert b"somnet = somnet.cli.main:main" in found[f"{info}/entry_points.txt"]


@pytest.mark.long
def test_the_sdist_holds_the_project_and_builds_the_same_wheel(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    needed = {name for name in built.tracked if not name.startswith(NOT_IN_THE_SDIST)}
    assert needed - found == set()
    assert contents(built.wheel_of_sdist) == contents(built.wheel)


@pytest.mark.long
def test_the_wheel_works_in_an_empty_environment(built: Built, tmp_path: Path) -> None:
    venv, away = tmp_path / "venv", tmp_path / "away"
    away.mkdir()
    run(sys.executable, "-m", "venv", venv, cwd=away)
    python, somnet = venv / "bin/python", venv / "bin/somnet"
    if BORROW:
        site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=away).strip())
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(python, "-m", "pip", "install", "--quiet", *(["--no-deps"] if BORROW else []), built.wheel, cwd=away)

    def output(*words: object) -> str:
        return run(*words, cwd=away, SOMNET_CACHE=str(tmp_path / "cache"))

    assert Path(output(python, "-c", "import somnet; print(somnet.__file__)").strip()).is_relative_to(venv)
    if not BORROW:
        output(python, "-m", "pip", "check")
    assert output(somnet, "--version").strip() == VERSION
    commands = output(somnet, "--help")
    assert all(f" {name} " in commands for name in ("doctor", "train", "report", "demo")), commands
    assert output(python, "-m", "somnet", "doctor").count("ok  ") >= 11  # all but the GPU, which need not be there
    table = output(somnet, "demo")
    for method in ("plain", "somnet", "somnet+"):
        assert re.search(rf"^{re.escape(method)} +\d", table, re.MULTILINE), table
        assert (away / f"demo/runs/{method}-seed0/report/index.html").is_file()
    assert list((away / "demo").glob("*.png"))
    assert (tmp_path / "cache").is_dir()
