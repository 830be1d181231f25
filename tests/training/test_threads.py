"""A run is computed in as many threads as it was started with: the last bits of sums depend on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from somnet.config import load_config
from somnet.core.types import BagBatch, Phase
from somnet.errors import RunError
from somnet.methods.base import Step
from somnet.methods.plain import Plain
from somnet.system.compute import threads
from somnet.system.folders import LAST
from somnet.training.train import train

if TYPE_CHECKING:
    from tests.conftest import Tiny


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The threads of torch at each step."""
    counts: list[int] = []
    step = Plain.step

    def counted(self: Plain, batch: BagBatch, phase: Phase) -> Step:
        counts.append(torch.get_num_threads())
        return step(self, batch, phase)

    monkeypatch.setattr(Plain, "step", counted)
    before = torch.get_num_threads()
    yield counts
    torch.set_num_threads(before)


def test_a_run_keeps_its_threads_when_it_is_resumed(data: Path, tiny: "Tiny", tmp_path: Path, seen: list[int]) -> None:
    config, out = tiny.config("plain", **{"train.epochs": 2}), tmp_path / "run"
    torch.set_num_threads(3)
    train(data, config, out=out, workers=0)
    assert load_config(out / "config.toml").threads == 3
    (out / "summary.json").unlink()
    (out / LAST).unlink()
    torch.set_num_threads(1)
    train(data, config, out=out, workers=0, resume=True)
    assert set(seen) == {3}
    assert torch.get_num_threads() == 1
    (out / "summary.json").unlink()
    with pytest.raises(RunError, match="was started with threads = 3: leave out yours, or add --overwrite"):
        train(data, config.with_settings({"threads": 2}), out=out, workers=0, resume=True)


def test_threads_can_be_set(data: Path, tiny: "Tiny", tmp_path: Path, seen: list[int]) -> None:
    config = tiny.config("plain", **{"train.epochs": 1, "threads": 2})
    run = train(data, config, out=tmp_path / "run", workers=0)
    assert (set(seen), run.config.threads) == ({2}, 2)
    assert config.hash() == tiny.config("plain", **{"train.epochs": 1}).hash()  # the same work


def test_numpy_and_torch_have_the_same_threads() -> None:
    with threads(3):
        np.ones((2, 2)) @ np.ones((2, 2))
        assert {pool["num_threads"] for pool in threadpool_info()} == {3}
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 1
