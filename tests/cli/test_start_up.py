"""Help comes in a good order, and commands load no more than they need: torch alone takes two seconds."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from somnet.cli.app import VERBS
from somnet.cli.main import app
from somnet.runs.predictions import image_files, write_predictions
from somnet.runs.run import Run

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


def test_predict_loads_no_torch_once_the_network_is_in_the_cache(trained: Path, data: Path, tmp_path: Path) -> None:
    files = image_files([data / "test"])
    write_predictions(Run(trained).predict(files, device="cpu", top=2), tmp_path / "first.csv", top=2)
    words = ("predict", trained, data / "test", "--device", "cpu", "--top-k", 2, "--out", tmp_path / "second.csv")
    assert loaded_by(*words).isdisjoint(HEAVY - {"onnxruntime"})
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()


def test_a_report_needs_no_torch(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    assert loaded_by("report", run).isdisjoint({"torch", "torchvision", "timm", "onnxruntime"})
    assert (run / "report" / "memory.html").is_file()
