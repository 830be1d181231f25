"""Two trainings that are given one folder at the same time: one of them has it."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.config import load_config
from tests.faults.conftest import Result
from tests.faults.disturbed import Ended, somnet_process

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny


@pytest.mark.parametrize(
    "rounds", [pytest.param(range(1), marks=pytest.mark.slow), pytest.param(range(1, 11), marks=pytest.mark.long)]
)
def test_two_trainings_into_one_folder(rounds: range, photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    data = photos.fill(tmp_path / "web", names=("ash", "oak"), train=6, test=2)

    def train(seed: int, out: Path, notes: Path, wait: float = 0.0) -> Ended:
        time.sleep(wait)
        words = ["train", data, *tiny.flags(), "--method", "plain", "--epochs", 4, "--seed", seed, "--workers", 0]
        return somnet_process([*words, "--out", out], notes, cache=tmp_path / "cache")

    alone = {}
    for seed in (0, 1):
        assert train(seed, tmp_path / f"alone{seed}" / "run", tmp_path / "notes").code == 0
        alone[seed] = Result.of(tmp_path / f"alone{seed}" / "run")
    for number in rounds:
        out, rng = tmp_path / f"both{number}" / "run", random.Random(number)
        notes, waits = [tmp_path / "notes0", tmp_path / "notes1"], [rng.uniform(0, 0.3), rng.uniform(0, 0.3)]
        with ThreadPoolExecutor(2) as pool:
            ends = list(pool.map(train, (0, 1), (out, out), notes, waits))
        assert sorted(end.code for end in ends) == [0, 2], [end.text for end in ends]
        refused = next(end for end in ends if end.code == 2)
        told = (
            f"{out} is being written by process",
            f"{out} is being written by another process",  # which has the lock, but has not yet put its name there
            f"{out} exists: add --resume",
        )
        assert any(words in refused.text for words in told), refused.text
        assert "Traceback" not in refused.text
        winner = [end.code for end in ends].index(0)
        assert load_config(out / "config.toml").seed == winner
        Result.of(out).must_equal(alone[winner])
        assert not [path for path in out.rglob("*") if ".somnet-" in path.name]
