"""An exported model gives the logits of the run it came from, in the hands of the libraries it is meant for."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
import timm
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import somnet
from somnet.data.decode import read_picture
from somnet.data.transforms import to_square
from somnet.errors import ExportError, RunError
from somnet.runs.run import Run
from somnet.system.folders import LAST

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


@pytest.fixture(scope="module")
def runs(trained: Path, data: Path, tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run with frozen trunk and one without, with different backbones."""
    base = tmp_path_factory.mktemp("runs")
    config = tiny.config("plain", **{"model.freeze": "none", "model.name": "test_efficientnet", "train.epochs": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        return {"trunk": Run(trained), "none": somnet.train(data, config, out=base / "run", workers=0)}


@pytest.fixture(scope="module")
def exported(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    known: dict[tuple[str, str], Path] = {}

    def folder(freeze: str, format: str) -> Path:
        if (freeze, format) not in known:
            out = tmp_path_factory.mktemp("exported") / format
            known[freeze, format] = somnet.export(runs[freeze], format, out)
        return known[freeze, format]

    return folder


@pytest.fixture(scope="module")
def photo_files(photos: "Photos", tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Pictures of several shapes, none of them square."""
    folder = tmp_path_factory.mktemp("photos")
    files = [folder / f"{number}.png" for number in range(5)]
    for number, file in enumerate(files):
        photos.picture(number, number).resize((70 + 20 * number, 150 - 20 * number)).save(file)
    return files


def pixels_of(run: Run, files: list[Path]) -> Tensor:
    side = run.config.model.imgsz
    return torch.stack([to_square(read_picture(file, at_least=side).image, side) for file in files])


def logits_of(run: Run, pixels: Tensor) -> NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(run.model(run.model.prepare(pixels)))


def load_in_timm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Model and transform."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    data: Any = timm.data
    return model, data.create_transform(**data.resolve_model_data_config(model))


@pytest.mark.parametrize("freeze", ["trunk", "none"])
def test_timm_loads_the_same_network(
    freeze: str,
    runs: dict[str, Run],
    exported: Callable[[str, str], Path],
    photo_files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = runs[freeze]
    model, transform = load_in_timm(exported(freeze, "timm"), monkeypatch)
    seen = torch.stack([transform(Image.open(file).convert("RGB")) for file in photo_files])
    pixels = pixels_of(run, photo_files)
    torch.testing.assert_close(seen, run.model.normalise(pixels), rtol=0, atol=1e-6)
    with torch.no_grad():
        found = model(seen).numpy()
    expected = logits_of(run, pixels)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.ptp(expected, axis=0).max() > 1e-3  # the pictures are told apart


def test_a_large_jpeg_looks_nearly_the_same_to_timm(
    runs: dict[str, Run],
    exported: Callable[[str, str], Path],
    photos: "Photos",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one difference that config.json cannot express: somnet decodes it at a reduced size."""
    file = tmp_path / "large.jpg"
    photos.picture(1, 1).resize((1600, 1200), Image.Resampling.BICUBIC).save(file, quality=95)
    _, transform = load_in_timm(exported("trunk", "timm"), monkeypatch)
    ours, pixels = runs["trunk"].model, pixels_of(runs["trunk"], [file])
    difference = (transform(Image.open(file).convert("RGB")) - ours.normalise(pixels)[0]).abs() * ours.std * 255
    assert 0 < difference.mean() < 2  # of 255 grey levels


def test_the_config_has_the_form_that_timm_writes(runs: dict[str, Run], exported: Callable[[str, str], Path]) -> None:
    config = json.loads((exported("none", "timm") / "config.json").read_text(encoding="utf-8"))
    assert config["architecture"] == "test_efficientnet"
    assert config["label_names"] == list(runs["none"].classes)
    assert config["num_classes"] == config["pretrained_cfg"]["num_classes"] == 3
    wanted = {"input_size": [3, 64, 64], "interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash"}
    assert config["pretrained_cfg"].items() >= wanted.items()
    assert {file.name for file in exported("none", "timm").iterdir()} == {
        ".somnet.json",  # what somnet wrote, and may replace
        "README.md",
        "config.json",
        "model.safetensors",
    }


@pytest.mark.parametrize("freeze", ["trunk", pytest.param("none", marks=pytest.mark.slow)])
def test_onnxruntime_agrees_at_any_batch_size(
    freeze: str, runs: dict[str, Run], exported: Callable[[str, str], Path], photo_files: list[Path]
) -> None:
    session = onnxruntime.InferenceSession(exported(freeze, "onnx") / "model.onnx")
    pixels = pixels_of(runs[freeze], photo_files)
    for size in (1, 2, 5):
        [found] = session.run(None, {"pixels": pixels[:size].numpy()})
        np.testing.assert_allclose(found, logits_of(runs[freeze], pixels[:size]), atol=1e-4)


def test_the_graph_explains_itself(runs: dict[str, Run], exported: Callable[[str, str], Path]) -> None:
    session = onnxruntime.InferenceSession(exported("trunk", "onnx") / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert tuple(json.loads(about["labels"])) == runs["trunk"].classes
    assert about["somnet_version"] == somnet.__version__
    steps = json.loads(about["preprocessing"])
    assert (steps["size"], steps["layout"], steps["range"]) == ([64, 64], "NCHW", [0, 255])
    assert steps["mean"] == runs["trunk"].model.mean.flatten().tolist()
    assert (steps["background"], steps["resize"]["keep_aspect_ratio"]) == ([255, 255, 255], False)
    assert set(steps["order"]) == set(steps["steps"])
    assert [(node.name, node.type, node.shape[1:]) for node in session.get_inputs()] == [
        ("pixels", "tensor(uint8)", [3, 64, 64])
    ]


@pytest.mark.parametrize("format", ["timm", "onnx"])
def test_the_code_on_the_model_card_runs(
    format: str,
    runs: dict[str, Run],
    exported: Callable[[str, str], Path],
    photos: "Photos",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = exported("trunk", format)
    card = (folder / "README.md").read_text(encoding="utf-8")
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    photos.picture(2, 3).save(tmp_path / "photo.jpg", quality=95)
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("PATH/OF/THIS/FOLDER", str(tmp_path)), {})
    [found] = runs["trunk"].predict([tmp_path / "photo.jpg"], device="cpu")
    assert capsys.readouterr().out.strip().splitlines()[-1] == found.labels[0]
    [classes] = re.findall(r"```json\n(.*?)```", card, re.DOTALL)
    assert tuple(json.loads(classes)) == runs["trunk"].classes
    assert f"top-1 {100 * runs['trunk'].summary['test']['top1']:.2f} %" in card


def test_an_existing_folder_is_replaced_only_if_asked_to(trained: Path, tmp_path: Path, photos: "Photos") -> None:
    out = somnet.export(trained, "timm", tmp_path / "model")
    before = photos.fingerprint(out)
    with pytest.raises(RunError, match="--overwrite"):
        somnet.export(trained, "timm", out)
    assert photos.fingerprint(out) == before
    (out / "config.json").write_text("{}")
    somnet.export(trained, "timm", out, overwrite=True)
    assert photos.fingerprint(out) == before
    (out / "thesis.txt").write_text("years of work")
    somnet.export(trained, "timm", out, overwrite=True)
    assert (out / "thesis.txt").read_text() == "years of work"
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_failed_export_leaves_the_old_one(trained: Path, tmp_path: Path, photos: "Photos") -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    out = somnet.export(run, "timm")
    assert out == run / "export" / "timm"
    before = photos.fingerprint(out)
    (run / LAST).write_bytes(b"damaged")
    with pytest.raises(RunError, match="not a somnet checkpoint"):
        somnet.export(run, "timm", overwrite=True)
    assert photos.fingerprint(out) == before
    assert [file.name for file in out.parent.iterdir()] == ["timm"]


def test_an_unfinished_run_is_refused(trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "summary.json").unlink()
    with pytest.raises(RunError, match="--resume"):
        somnet.export(run, "timm")
    assert not (run / "export").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(
    package: str, trained: Path, tmp_path: Path, cli: "Cli", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    outcome = cli("export", trained, "--format", "onnx", "--out", tmp_path / "model")
    assert outcome.code == 2
    assert f'the package {package}: pip install "somnet[export]"' in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_what_torch_cannot_write_is_told_in_a_line(
    trained: Path, tmp_path: Path, cli: "Cli", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("pages of advice\n" * 100)

    monkeypatch.setattr(torch.onnx, "export", fail)
    outcome = cli("export", trained, "--format", "onnx", "--out", tmp_path / "model")
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
    assert "cannot write this network as ONNX (OnnxExporterError): use --format timm" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_vote_of_neighbours_is_exported_to_onnx_alone(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    """The writer itself compares the logits of onnxruntime and torch, for batches of two sizes."""
    run = somnet.train(data, tiny.config("wann"), out=tmp_path / "run", workers=0)
    assert (somnet.export(run, "onnx", tmp_path / "onnx") / "model.onnx").is_file()
    with pytest.raises(ExportError, match=r"not linear.*--format onnx"):
        somnet.export(run, "timm", tmp_path / "timm")
    assert not (tmp_path / "timm").exists()


def test_the_command_says_how_to_go_on(trained: Path, tmp_path: Path, cli: "Cli") -> None:
    out = tmp_path / "model"
    outcome = cli("export", trained, "--format", "timm", "--out", out)
    assert outcome.code == 0, outcome.err
    assert "config.json, model.safetensors" in outcome.out
    assert f"next: how to load it is in {out / 'README.md'}" in outcome.out
    assert "timm, onnx" in cli("export", trained, "--format", "coreml").err
