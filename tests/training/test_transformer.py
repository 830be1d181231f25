"""A transformer of blocks in the frozen lane, whose cached inputs are tokens: from one command to report and export."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import somnet

if TYPE_CHECKING:
    from tests.conftest import Outcome, Tiny

    Cli = Callable[..., Outcome]


@pytest.mark.parametrize("method", ["plain", "somnet", "somnet+"])  # the image alone, regions, drawn views
def test_a_frozen_transformer_is_trained(method: str, data: Path, tiny: "Tiny", tmp_path: Path, cli: "Cli") -> None:
    run = tmp_path / "run"
    done = cli("train", data, *tiny.flags(), "--model", "test_vit", "--method", method, "--out", run, "--workers", 0)
    assert done.code == 0, done.err
    assert somnet.Run(run).config.model.freeze == "trunk"
    assert np.isfinite(somnet.Run(run).scores()["label_score"].to_numpy()).all()
    assert (run / "report" / "index.html").is_file()
    table = tmp_path / "p.csv"
    done = cli("predict", run, data / "test", "--out", table, "--heatmaps", tmp_path / "heat")
    assert done.code == 0, done.err
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert all((tmp_path / "heat" / Path(row["heatmap"]).name).is_file() for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("name", ["vit_small_patch14_reg4_dinov2", "vit_small_patch16_dinov3"])
def test_what_people_use_is_trained_and_exported(
    name: str, data: Path, tiny: "Tiny", tmp_path: Path, cli: "Cli"
) -> None:
    run = tmp_path / "run"
    done = cli("train", data, *tiny.flags(), "--model", name, "--method", "somnet+", "--out", run, "--workers", 0)
    assert done.code == 0, done.err
    assert (run / "report" / "index.html").is_file()
    done = cli("export", run, "--format", "onnx")
    assert done.code == 0, done.err
