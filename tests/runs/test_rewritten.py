"""A run that is trained anew while somebody reads it: what was read of two runs is not put together."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.cleaning.clean import clean
from somnet.errors import RunError
from somnet.exports.network import export
from somnet.report.site import write_report
from somnet.runs.run import Run
from somnet.training.train import train

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

READERS: dict[str, Callable[[Run, Path], object]] = {
    "predict": lambda run, out: list(run.predict([out])),
    "export": lambda run, out: export(run, "timm", out),
    "clean": lambda run, out: clean(run, out),
    "report": lambda run, out: write_report(run, out),
}


@pytest.fixture(scope="module")
def ground(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rewritten")
    data = photos.fill(place / "web", names=("ash", "oak"), train=3, test=1)
    train(data, tiny.config("plain", **{"train.epochs": 1}), out=place / "run", workers=0)
    return place


@pytest.mark.parametrize("verb", READERS)
def test_what_was_read_of_two_runs_is_not_written(verb: str, ground: Path, tiny: "Tiny", tmp_path: Path) -> None:
    shutil.copytree(ground / "run", tmp_path / "run")
    run = Run(tmp_path / "run")
    config = tiny.config("plain", **{"train.epochs": 1})
    train(ground / "web", config, out=tmp_path / "run", workers=0, overwrite=True)  # the same settings, and weights
    with pytest.raises(RunError, match=r"run was trained anew while it was read: wait until that ends"):
        READERS[verb](run, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_training_that_goes_on_can_be_read(ground: Path, tmp_path: Path) -> None:
    """Only a new beginning counts: checkpoints come and go."""
    shutil.copytree(ground / "run", tmp_path / "run")
    run = Run(tmp_path / "run")
    shutil.copy(ground / "run/checkpoints/last.safetensors", tmp_path / "run/checkpoints/last.safetensors")
    (tmp_path / "run" / "summary.json").unlink()
    train(ground / "web", run.config, out=tmp_path / "run", workers=0, resume=True)
    assert run.model is not None
    assert export(run, "timm", tmp_path / "out")


def test_an_export_that_is_of_the_run_before_is_named(
    ground: Path, tiny: "Tiny", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(ground / "run", tmp_path / "run")
    export(tmp_path / "run", "timm")
    config = tiny.config("plain", **{"train.epochs": 1, "seed": 1})
    train(ground / "web", config, out=tmp_path / "run", workers=0, overwrite=True)
    assert "run/export is still that of the training before: somnet export --overwrite" in caplog.text
    assert (tmp_path / "run/export/timm/model.safetensors").is_file()  # the user may be using it
