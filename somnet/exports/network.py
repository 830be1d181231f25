"""A run's network for other programs: a timm folder or an ONNX file, each with a model card."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from timm.models._hub import save_config_for_hf

from somnet.errors import ExportError, did_you_mean
from somnet.exports.model_card import model_card
from somnet.exports.preprocessing import preprocessing
from somnet.nn.backbones import as_timm_model, licence_of
from somnet.runs.run import FromPixels, Run
from somnet.system.files import flush_to_disk
from somnet.system.folders import EXPORT, refuse_inside
from somnet.system.replacing import replaced_folder
from somnet.system.version import VERSION

log = logging.getLogger("somnet")

EXTRA = 'pip install "somnet[export]"'
TOLERANCE = 1e-4  # of a logit, between torch and what was written
CARD, WEIGHTS, CONFIG, GRAPH = "README.md", "model.safetensors", "config.json", "model.onnx"


def export(
    run: Run | Path | str, format: str = "onnx", out: Path | str | None = None, *, overwrite: bool = False
) -> Path:
    """Write the network of a finished run as a folder for timm or for ONNX; by default RUN/export/FORMAT."""
    run = run if isinstance(run, Run) else Run(run)
    if format not in _WRITERS:
        raise ExportError(
            f"there is no format '{format}':{did_you_mean(format, _WRITERS)} choose one of {', '.join(_WRITERS)}"
        )
    out = run.path / EXPORT / format if out is None else Path(out)
    if run.config.model.embeddings:
        raise ExportError(
            f"{run.path} has no network, only a linear classifier for the vectors of {run.config.model.embeddings}: "
            "take its weights from run.model.classifier in Python"
        )
    refuse_inside(out, Path(run.data["path"]))
    card = model_card(run, format)  # an unfinished run is refused before any work
    with replaced_folder(out, EXPORT, overwrite=overwrite) as folder:
        _WRITERS[format](run, folder)
        (folder / CARD).write_text(card, encoding="utf-8")
        for file in folder.iterdir():
            file.chmod(0o644)  # some writers leave theirs to the owner alone
            flush_to_disk(file)
        run.refuse_rewritten()
    return out


def _write_timm(run: Run, folder: Path) -> None:
    network, side = run.model.cpu(), run.config.model.imgsz
    model, arguments = as_timm_model(network, run.config.model)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    try:
        safetensors.torch.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:  # of a full disk
        raise OSError(str(error)) from error
    about_the_original = ("test_input_size", "test_crop_pct", "origin_url", "paper_ids", "paper_name", "notes", "tag")
    known = {name: value for name, value in model.pretrained_cfg.items() if name not in about_the_original}
    model.pretrained_cfg = {
        **known,
        "num_classes": len(run.classes),
        "input_size": [3, side, side],
        "mean": network.mean.flatten().tolist(),
        "std": network.std.flatten().tolist(),
        "interpolation": "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "squash",  # the whole image, its aspect ratio not kept: what to_square does
        "license": licence_of(run.config.model),
    }
    more = {"label_names": list(run.classes), "somnet_version": VERSION}
    save_config_for_hf(model, folder / CONFIG, more, arguments)  # type: ignore[arg-type]  # timm means a Path


def _write_onnx(run: Run, folder: Path) -> None:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise ExportError(f"--format onnx needs the package {error.name}: {EXTRA}") from None
    model, side = FromPixels(run.model.cpu()).eval(), run.config.model.imgsz
    pixels = torch.randint(0, 256, (3, 3, side, side), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    try:
        program = torch.onnx.export(
            model,
            (pixels,),
            input_names=["pixels"],
            output_names=["logits"],
            dynamic_shapes={"pixels": {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
    except RuntimeError as error:  # pages of it; most often torch and onnxscript are of different times
        raise ExportError(
            f"torch {torch.__version__} cannot write this network as ONNX ({type(error).__name__}): use --format timm, "
            f"or {EXTRA} --upgrade"
        ) from None
    assert program is not None
    graph = program.model_proto
    onnx.helper.set_model_props(graph, _metadata(run, side))
    onnx.checker.check_model(graph)
    onnx.save_model(graph, folder / GRAPH)
    session = onnxruntime.InferenceSession(folder / GRAPH, providers=["CPUExecutionProvider"])
    for batch in (pixels, pixels[:1]):
        [logits] = session.run(["logits"], {"pixels": batch.numpy()})
        with torch.no_grad():
            difference = float(np.abs(logits - model(batch).numpy()).max())
        if not difference < TOLERANCE:
            raise ExportError(
                f"onnxruntime's logits are {difference:.2g} away from torch's: use --format timm, or another --model"
            )


def _metadata(run: Run, side: int) -> dict[str, str]:
    return {
        "labels": json.dumps(run.classes),
        "preprocessing": json.dumps(preprocessing(run.model, side)),
        "architecture": run.config.model.name,
        "license": licence_of(run.config.model),
        "somnet_version": VERSION,
    }


_WRITERS: Mapping[str, Callable[[Run, Path], None]] = {"timm": _write_timm, "onnx": _write_onnx}
