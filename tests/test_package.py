"""Wheel and sdist: what is in them, and that the wheel works in an empty environment, far from this checkout."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {f"somnet/report/pages/{file.name}" for file in (ROOT / "somnet" / "report" / "pages").iterdir()}
MODULES = {str(file.relative_to(ROOT)) for file in (ROOT / "somnet").rglob("*.py")}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True)
    return out


def test_the_wheel_holds_the_package_its_pages_and_its_types(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= MODULES | PAGES | {"somnet/py.typed"}
    assert not [name for name in names if not name.startswith(("somnet/", "somnet-"))]


def test_the_sdist_holds_what_a_packager_needs(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= MODULES | PAGES | {"LICENSE", "README.md", "pyproject.toml"}


def test_the_wheel_runs_the_demo_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    [wheel] = built.glob("*.whl")
    subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel], check=True)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    environment = {**known, "SOMNET_CACHE": str(tmp_path / "cache"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}

    def somnet(*words: str) -> str:
        command = [str(home / "bin" / "somnet"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import somnet.training.train as t; print(t.__file__)"
    python = [str(home / "bin" / "python"), "-c", where]
    place = subprocess.run(python, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(place.strip()).is_relative_to(home)
    assert somnet("--version").strip()
    assert "EdgeBoxes (cv2.ximgproc): present" in somnet("doctor")
    table = somnet("demo", "--out", "demo")
    assert {"plain", "somnet", "somnet+"} <= set(table.split())
    assert (tmp_path / "demo" / "runs" / "somnet+-seed0" / "report" / "index.html").is_file()
