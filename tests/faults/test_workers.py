"""The number of processes that load the data changes no byte of the result, with frozen trunk and without."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import somnet
from tests.faults.conftest import Result

if TYPE_CHECKING:
    from tests.conftest import Tiny


@pytest.mark.slow
@pytest.mark.parametrize("freeze", ["trunk", "none"])
def test_workers_change_no_byte(
    freeze: str, data: Path, tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config("somnet", **{"model.freeze": freeze, "train.epochs": 2, "somnet.memory.init_epochs": 1})
    results = []
    for workers in (0, 3):
        monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / f"{workers}" / "cache"))
        run = somnet.train(data, config, out=tmp_path / str(workers) / "run", workers=workers)
        results.append(Result.of(run.path))
    results[1].must_equal(results[0])
