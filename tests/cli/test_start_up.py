"""Help comes in a good order, and commands load no more than they need: torch alone takes two seconds."""

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from somnet.cli.app import VERBS
from somnet.cli.main import app

HEAVY = {"torch", "torchvision", "timm", "sklearn", "scipy", "onnxruntime"}  # pandas is pyarrow's to load


def loaded_by(*words: object) -> set[str]:
    """The packages that a command has imported, as Python itself tells."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "somnet", *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-1000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_help_loads_little() -> None:
    found = loaded_by("--help")
    assert "typer" in found
    assert found.isdisjoint({*HEAVY, "numpy", "pyarrow", "pydantic", "cv2"})


def test_help_lists_the_verbs_in_the_order_of_a_session() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert re.findall(r"^│ (\w+) {2,}\S", done.stdout, re.MULTILINE) == list(VERBS)


def test_the_settings_load_no_torch() -> None:
    assert loaded_by("settings", "elr").isdisjoint(HEAVY)


def test_clean_loads_no_torch(trained: Path, tmp_path: Path) -> None:
    assert loaded_by("clean", trained, "--out", tmp_path / "clean", "--dry-run").isdisjoint(HEAVY)


REPORT = "import sys; import somnet.report.site; print(*sys.modules)"


def test_a_report_begins_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()}.isdisjoint(HEAVY)
