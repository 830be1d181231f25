"""What a resume needs, and what it refuses."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import safetensors.torch
import timm
import torch

from somnet.errors import RunError
from somnet.training.train import train

if TYPE_CHECKING:
    from tests.conftest import Tiny


def write_weights(file: Path, seed: int) -> None:
    torch.manual_seed(seed)
    model: Any = timm.create_model("test_resnet", num_classes=0)
    safetensors.torch.save_file(model.state_dict(), file)


def test_a_resume_with_other_pretrained_weights_is_refused(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    """The same file name, another content: features of one trunk, and a tail that was trained on another's."""
    file, out = tmp_path / "weights.safetensors", tmp_path / "run"
    write_weights(file, 0)
    settings = {"model.pretrained": True, "model.weights": str(file), "train.epochs": 1}
    config = tiny.config("plain", **settings)
    train(data, config, out=out, workers=0)
    (out / "summary.json").unlink()
    train(data, config, out=out, workers=0, resume=True)
    (out / "summary.json").unlink()
    write_weights(file, 1)
    with pytest.raises(RunError, match=r"other pretrained weights.*--overwrite"):
        train(data, config, out=out, workers=0, resume=True)
    write_weights(file, 0)
    train(data, config, out=out, workers=0, resume=True)
