"""The checkpoint: whole or not at all, and nothing in it can run."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from somnet.errors import RunError, SomnetError
from somnet.runs import checkpoint
from somnet.runs.checkpoint import load_checkpoint, save_checkpoint
from somnet.runs.checkpoint_arrays import load_arrays

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b.c": torch.tensor(3), "t": torch.arange(6.0).view(2, 3).T}
STATE = {"position": {"step": 3, "history": [{"loss": 0.1}]}, "name": "größe"}


def test_round_trip(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "new" / "x.safetensors", TENSORS, STATE)
    tensors, state = load_checkpoint(tmp_path / "new" / "x.safetensors")
    assert state == STATE
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert tensors["b.c"].dtype == torch.int64


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    file = tmp_path / "x.safetensors"
    save_checkpoint(file, TENSORS, STATE)

    def half(tensors: object, target: Path, metadata: object) -> None:
        Path(target).write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises((SomnetError, KeyboardInterrupt)):
        save_checkpoint(file, {}, {})
    assert load_checkpoint(file)[1] == STATE
    assert list(tmp_path.iterdir()) == [file]


def damaged(file: Path) -> list[bytes]:
    save_checkpoint(file, TENSORS, STATE)
    whole = file.read_bytes()
    return [b"", b"{}", whole[:4], whole[: len(whole) // 2], whole[:-1], b"\xff" * len(whole), b"PK\x03\x04" + whole]


@pytest.mark.parametrize("case", range(7))
def test_a_damaged_file_is_named(tmp_path: Path, case: int) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(damaged(file)[case])
    with pytest.raises(RunError, match=r"x\.safetensors"):
        load_checkpoint(file)


@pytest.mark.parametrize("place", [-1, -20, -50])
def test_one_bit_of_a_tensor_is_noticed(tmp_path: Path, place: int) -> None:
    file = tmp_path / "x.safetensors"
    save_checkpoint(file, TENSORS, STATE)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"x\.safetensors is damaged: bring back a copy"):
        load_checkpoint(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"x\.safetensors does not exist"):
        load_checkpoint(tmp_path / "x.safetensors")


@pytest.mark.parametrize("metadata", [None, {"other": "1"}, {"state": "[1]"}, {"state": "{"}])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(TENSORS | {"t": TENSORS["t"].contiguous()}, tmp_path / "x.safetensors", metadata=metadata)
    with pytest.raises(RunError, match=r"x\.safetensors"):
        load_checkpoint(tmp_path / "x.safetensors")


class Trap:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.path),)  # type: ignore[return-value]


@pytest.mark.parametrize("save", [lambda value, file: file.write_bytes(pickle.dumps(value)), torch.save])
def test_a_pickle_is_refused_and_not_run(tmp_path: Path, save: object) -> None:
    assert callable(save)
    save(Trap(tmp_path / "sprung"), tmp_path / "x.safetensors")
    with pytest.raises(RunError):
        load_checkpoint(tmp_path / "x.safetensors")
    assert not (tmp_path / "sprung").exists()


def test_arrays_are_the_same_without_torch(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    tensors = {**TENSORS, "flag": torch.tensor([True, False]), "half": torch.ones(3).half()}
    save_checkpoint(file, tensors, STATE)
    found = load_arrays(file, ["a", "t", "gone"])
    assert found.keys() == {"a", "t"}
    assert found["t"].tolist() == TENSORS["t"].tolist()
    with pytest.raises(RunError, match="not a somnet checkpoint"):
        load_arrays(tmp_path / "no such file", ["a"])
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # of an array that is not asked for, perhaps
    with pytest.raises(RunError, match=r"x\.safetensors is damaged: bring back a copy"):
        load_arrays(file, ["a"])
    save_checkpoint(file, {"a": torch.tensor([float("nan")])}, STATE)
    with pytest.raises(RunError, match="NaN or infinite values in a"):
        load_arrays(file, ["a"])
