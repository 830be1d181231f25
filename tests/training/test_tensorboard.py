"""Event files for TensorBoard: all figures of all epochs, also of a resumed run; without the library, an error."""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from somnet.errors import ConfigError
from somnet.training.tensorboard import EventFiles
from somnet.training.train import train

if TYPE_CHECKING:
    from tests.conftest import Outcome, Tiny

Scalars = dict[tuple[str, int], float]
MODULE = "torch.utils.tensorboard"


@pytest.fixture
def scalars(monkeypatch: pytest.MonkeyPatch) -> Scalars:
    """What a stand-in for the library was given: by name and step, less what a later writer has purged."""
    found: Scalars = {}

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            Path(folder).mkdir(exist_ok=True)
            (Path(folder) / f"events.out.tfevents.{purge_step}").touch()
            for name, step in list(found):
                if step >= purge_step:
                    del found[name, step]

        def add_scalar(self, name: str, value: float, step: int) -> None:
            assert (name, step) not in found
            found[name, step] = value

        def flush(self) -> None:
            pass

    module: Any = types.ModuleType(MODULE)
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, MODULE, module)
    return found


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def expected(rows: list[dict[str, Any]]) -> Scalars:
    return {(name, at): value for at, row in enumerate(rows, start=1) for name, value in row.items() if "/" in name}


def test_every_figure_of_every_epoch_is_written(data: Path, tiny: "Tiny", tmp_path: Path, scalars: Scalars) -> None:
    config = tiny.config("plain").with_settings({"tensorboard": True})
    train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    rows = rows_of(tmp_path / "run")
    assert {"loss/cls", "test/top1"} <= {name for name, _ in scalars}
    assert scalars == expected(rows)
    train(data, config, out=tmp_path / "run", device="cpu", workers=0, overwrite=True)
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    assert scalars == expected(rows_of(tmp_path / "run"))


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path, scalars: Scalars) -> None:
    rows = [{"phase": "a", "epoch": number, "loss/cls": 1.0 / (number + 1)} for number in range(4)]
    EventFiles(tmp_path, 0).write(rows[:3])
    EventFiles(tmp_path, 2).write(rows)  # the third epoch was not saved, and is trained again
    assert scalars == expected(rows)


def test_epochs_before_it_was_asked_for_are_written_too(tmp_path: Path, scalars: Scalars) -> None:
    rows = [{"loss/cls": 1.0, "test/top1": 0.5}] * 3
    EventFiles(tmp_path, 2).write(rows)
    assert scalars == expected(rows)


def test_without_the_library_the_extra_is_named(
    data: Path, tiny: "Tiny", tmp_path: Path, cli: "Callable[..., Outcome]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    with pytest.raises(ConfigError, match=r"somnet\[tensorboard\]"):
        train(data, tiny.config("plain").with_settings({"tensorboard": True}), out=tmp_path / "run", device="cpu")
    done = cli("train", data, "--out", tmp_path / "run", "--tensorboard", *tiny.flags())
    assert done.code == 2
    assert "somnet[tensorboard]" in done.err
    assert not (tmp_path / "run").exists()
