"""Losses, gradients and activations that are NaN or infinite, and data from which little can be learnt."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import somnet
from somnet.core.memory import SelfOrganizingMemory
from somnet.core.types import BagBatch, Phase
from somnet.errors import SomnetError
from somnet.methods.base import Step

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny, Toy

    MakeToy = Callable[..., Toy]
    Turns = tuple[bool, ...]
    Spoil = Callable[[Toy, pytest.MonkeyPatch, Turns], None]

TWO_OF_THREE = (False, True, True)  # bad steps: a third in a row would end the run


def must_be_sound(tensors: dict[str, Tensor]) -> None:
    assert [name for name, value in tensors.items() if not torch.isfinite(value).all()] == []


def must_be_on_its_simplex(memory: SelfOrganizingMemory) -> None:
    for values in (memory.d, memory.r):
        assert (values > 0).all()
        assert torch.allclose(values.sum(dim=1), torch.ones(len(values)), atol=1e-5)
    assert torch.allclose(memory.keys.norm(dim=1), torch.ones(len(memory.keys)), atol=1e-5)


def spoil_losses(value: float) -> "Spoil":
    def spoil(made: "Toy", patch: pytest.MonkeyPatch, bad: "Turns") -> None:
        step, turns = made.method.step, cycle(bad)

        def wrapped(batch: BagBatch, phase: Phase) -> Step:
            result = step(batch, phase)
            bad = {name: loss + value for name, loss in result.losses.items()}
            return replace(result, losses=bad) if next(turns) else result

        patch.setattr(made.method, "step", wrapped)

    return spoil


def spoil_gradients(value: float) -> "Spoil":
    """The loss is finite, its gradient is not: a root at 0 is enough for that."""

    def spoil(made: "Toy", _: pytest.MonkeyPatch, bad: "Turns") -> None:
        for group in made.method.param_groups():
            turns = cycle(bad)  # of each group, as not every phase trains it
            parameter = group["params"][0]
            parameter.requires_grad_(True)
            parameter.register_hook(lambda grad, turns=turns: grad * value if next(turns) else grad)

    return spoil


def spoil_inputs(value: float) -> "Spoil":
    """An activation overflows in the forward pass, which batch normalisation takes note of."""

    def spoil(made: "Toy", patch: pytest.MonkeyPatch, bad: "Turns") -> None:
        step, turns = made.method.step, cycle(bad)

        def wrapped(batch: BagBatch, phase: Phase) -> Step:
            if len(batch.images) and next(turns):
                batch.images[0] = value
            return step(batch, phase)

        patch.setattr(made.method, "step", wrapped)

    return spoil


SPOILT = {
    "loss is NaN": spoil_losses(math.nan),
    "loss is infinite": spoil_losses(math.inf),
    "gradient is NaN": spoil_gradients(math.nan),
    "gradient is infinite": spoil_gradients(math.inf),
    "input is NaN": spoil_inputs(math.nan),
    "input is infinite": spoil_inputs(math.inf),
}


@pytest.mark.parametrize("freeze", ["trunk", "none"])
@pytest.mark.parametrize("what", SPOILT)
def test_what_is_no_number_is_skipped_and_reported(
    what: str,
    freeze: str,
    toy: "MakeToy",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = toy("somnet", **{"train.batch_size": 4, "model.freeze": freeze})
    SPOILT[what](made, monkeypatch, TWO_OF_THREE)
    made.trainer(tmp_path).run()
    assert "is NaN or infinite" in caplog.text
    must_be_sound(made.method.state_dict())
    memory = made.method.memory
    assert isinstance(memory, SelfOrganizingMemory)
    must_be_on_its_simplex(memory)


@pytest.mark.parametrize("what", ["gradient is NaN", "input is infinite"])
def test_a_step_that_is_skipped_leaves_no_trace(
    what: str, toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy("plain", **{"train.batch_size": 4, "model.freeze": "none"})
    before = {name: value.clone() for name, value in made.method.state_dict().items()}
    SPOILT[what](made, monkeypatch, (True,))
    with pytest.raises(SomnetError, match=r"NaN or infinite 3 times in a row.*lower train\.lr"):
        made.trainer(tmp_path).run()
    assert [name for name, value in made.method.state_dict().items() if not torch.equal(value, before[name])] == []


def classes_of_0_1_and_2(photos: "Photos", folder: Path) -> str:
    photos.fill(folder, names=("ash",), train=4, test=1)
    photos.fill(folder, names=("oak",), train=2, test=1)
    photos.fill(folder, names=("yew",), train=1, test=1)
    photos.fill(folder, names=("elm",), train=0, test=1)
    return "no training image of elm.*'yew' \\(1\\)"


def more_slots_than_bags(photos: "Photos", folder: Path) -> str:
    photos.fill(folder, names=("ash", "oak"), train=2, test=1)  # 2 bags for 9 slots
    return ""


def all_alike(_: "Photos", folder: Path) -> str:
    for name in ("ash", "oak"):
        for split, count in (("train", 4), ("test", 1)):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(folder / split / name / f"{number}.png")
    return "4 images without any|8 images without any"


def every_label_wrong(photos: "Photos", folder: Path) -> str:
    photos.fill(folder, names=("ash", "oak"), train=4, test=2)
    (folder / "train" / "ash").rename(folder / "train" / "other")
    (folder / "train" / "oak").rename(folder / "train" / "ash")
    (folder / "train" / "other").rename(folder / "train" / "oak")
    return ""


@pytest.mark.parametrize("make", [classes_of_0_1_and_2, more_slots_than_bags, all_alike, every_label_wrong])
def test_data_from_which_little_can_be_learnt(
    make: "Callable[[Photos, Path], str]",
    photos: "Photos",
    tiny: "Tiny",
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = make(photos, tmp_path / "web")
    config = tiny.config("somnet", **{"train.epochs": 6})
    run = somnet.train(tmp_path / "web", config, out=tmp_path / "run", workers=0)
    assert re.search(said, caplog.text, re.DOTALL)
    table = run.scores()
    for name in ("predicted_score", "label_score", "background_score", "roi_weight", "d_score", "r_score", "a_score"):
        column = table[name].to_numpy()
        assert np.isfinite(column).all(), name
        assert ((column >= 0) & (column <= 1 + 1e-6)).all(), name
    must_be_sound(run.method.state_dict())
    assert table.num_rows == run.summary["data"]["train"]
