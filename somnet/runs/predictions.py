"""Which files to predict, who does it, and the table of predictions."""

import csv
import glob
import json
import logging
import mimetypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from somnet.data.sources.folder import files_below
from somnet.data.sources.links import LEADS_OUT
from somnet.errors import DataError, RunError
from somnet.runs.network_graph import open_network
from somnet.runs.prediction import Prediction, classifier, predicted
from somnet.runs.run_folder import RunFolder
from somnet.system.files import atomic_path, csv_cell, display_name, some

log = logging.getLogger("somnet")

GPUS = (  # where Linux has them: of NVIDIA, two of its small boards, in Windows' subsystem, of AMD
    *("/dev/nvidiactl", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu", "/dev/dxg", "/dev/kfd"),
)

_KINDS = mimetypes.MimeTypes()  # Python's own list, the same on every machine


def image_files(paths: Sequence[Path], *, follow_links: bool = False) -> list[str]:
    """The files that names, folders and patterns such as photos/**/*.jpg stand for, each once, in a fixed order.

    What was named is always tried, and has to be there. In folders and behind patterns, files whose name says that
    they are something other than an image are passed over, and links that lead out of a folder are named and left out,
    unless they are to be followed.
    """
    left_out: list[str] = []
    files = list(dict.fromkeys(file for path in paths for file in _expand(str(path), follow_links, left_out)))
    if left_out:
        log.warning("left out: %s: each is %s", some(left_out), LEADS_OUT)
    if not files:
        raise DataError(f"no images in {', '.join(map(str, paths))}: give image files, folders or patterns")
    return files


def _expand(path: str, follow_links: bool, left_out: list[str]) -> Iterator[str]:
    if os.path.isdir(path):
        links: list[bytes] = []
        for name in files_below(os.fsencode(path), b"", follow_links=follow_links, left_out=links):
            if _may_be_an_image(file := os.path.join(path, os.fsdecode(name))):
                yield file
        left_out += [os.path.join(path, display_name(name)) for name in links]
    elif os.path.lexists(path):
        yield path
    elif not glob.has_magic(path):
        raise DataError(f"{path} does not exist: give image files, folders or patterns")
    else:
        matches = sorted(glob.glob(path, recursive=True), key=os.fsencode)
        if not matches:
            raise DataError(f"no file matches {path}: check the pattern, or give a folder")
        for match in matches:
            if os.path.isdir(match):
                yield from _expand(match, follow_links, left_out)
            elif _may_be_an_image(match):
                yield match


def _may_be_an_image(file: str) -> bool:
    kind, _ = _KINDS.guess_type("file" + os.path.splitext(file)[1])
    return kind is None or kind.startswith("image/")


def predict_files(
    run: RunFolder, files: Sequence[str], *, device: str, top: int, batch_size: int, evidence: bool
) -> Iterator[Prediction]:
    """What `Run.predict` gives; torch is loaded only where the cache has not the network yet, or a GPU may be here."""
    on_cpu = device == "cpu" or (device == "auto" and _surely_no_gpu())
    if on_cpu and not evidence and (logits := open_network(run)) is not None:
        run.warn_of_half()
        return predicted(files, classifier(logits, run.classes, top), run.config.model.imgsz, batch_size)
    from somnet.runs.run import Run

    return Run(run.path).predict(files, device=device, top=top, batch_size=batch_size, evidence=evidence)


def _surely_no_gpu() -> bool:
    return sys.platform == "linux" and not any(map(os.path.exists, GPUS))


def check_table(out: Path, *, overwrite: bool) -> None:
    """Refuse a name that tells no format, and a file that is there already."""
    if out.suffix.lower() not in _WRITERS:
        raise DataError(f"cannot tell the format of {out}: let its name end with {' or '.join(_WRITERS)}")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: add --overwrite to replace it, or give another --out")


def write_predictions(predictions: Iterable[Prediction], out: Path, *, top: int) -> tuple[int, int]:
    """A row per file with its `top` classes, as CSV or JSON lines by the name of `out`, written as they come.

    Returns how many rows there are, and how many of them are of unreadable files. Where all are, nothing is written,
    and what stood there stays.
    """
    check_table(out, overwrite=True)
    rows = bad = 0
    first = ""
    with atomic_path(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write = _WRITERS[out.suffix.lower()](file, top)
        for prediction in predictions:
            write(prediction)
            rows += 1
            bad += prediction.unreadable_reason is not None
            first = first or prediction.unreadable_reason or ""
        if rows == bad:
            raise DataError(
                f"none of {rows} files can be read (the first: {first}), so {out} is not written: give other images"
            )
    return rows, bad


Writer = Callable[[Prediction], object]


def _csv_writer(file: IO[str], top: int) -> Writer:
    writer = csv.writer(file)
    places = [name for place in range(2, top + 1) for name in (f"label_{place}", f"probability_{place}")]
    writer.writerow(["file_name", "predicted_label", "probability", *places, "unreadable_reason", "heatmap"])

    def write(row: Prediction) -> None:
        pairs = zip(row.labels, row.probabilities, strict=True)
        cells = [cell for label, probability in pairs for cell in (label, f"{probability:.6f}")]
        cells += [""] * (2 * top - len(cells))
        texts = (_shown(row.file_name), *cells, row.unreadable_reason or "", _shown(row.heatmap or ""))
        writer.writerow([csv_cell(text) for text in texts])

    return write


def _jsonl_writer(file: IO[str], _: int) -> Writer:
    def write(row: Prediction) -> None:
        values = {
            "file_name": _shown(row.file_name),
            "labels": row.labels,
            "probabilities": [round(probability, 6) for probability in row.probabilities],
            "unreadable_reason": row.unreadable_reason,
            "heatmap": None if row.heatmap is None else _shown(row.heatmap),
        }
        file.write(json.dumps(values, ensure_ascii=False) + "\n")

    return write


def _shown(name: str) -> str:
    return display_name(os.fsencode(name))


_WRITERS: dict[str, Callable[[IO[str], int], Writer]] = {".csv": _csv_writer, ".jsonl": _jsonl_writer}
