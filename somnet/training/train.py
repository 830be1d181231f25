"""Training from a data set to a folder of results."""

import contextlib
import logging
import os
import platform
import shlex
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from somnet.config import Config, load_config
from somnet.data.bags import Boxes, named_worker_death
from somnet.data.dataset import (
    FORWARD_IMAGES,
    DataSet,
    describe,
    held_out_split,
    make_inputs,
    need_training,
    open_dataset,
    uncached,
    write_duplicates,
)
from somnet.data.maps import MapStore
from somnet.data.sources import absolute, open_source, split_name
from somnet.errors import RunError, SomnetError, TrainingStopped
from somnet.methods.base import Method
from somnet.methods.registry import find_method
from somnet.report.site import REPORT, is_report, is_whole_report, remove_report, write_report
from somnet.runs.checkpoint import LAST
from somnet.runs.estimate import ReadPace, describe_estimate, estimate, measure_reading, measure_steps, work_of
from somnet.runs.run import (
    CONFIG,
    DATA,
    SUMMARY,
    Evaluation,
    Run,
    build_method,
    choose_device,
    loading_processes,
    measure,
    worker_count,
)
from somnet.runs.scoring import against_truth, inspect_images, with_unreadable, write_tables
from somnet.system.allocator import keep_memory
from somnet.system.files import (
    cache_folder,
    clear_leftovers,
    display_name,
    is_leftover,
    parse_json,
    write_json,
    write_text,
)
from somnet.system.parallel import cores_here
from somnet.system.progress import LineFormatter, duration
from somnet.system.ranks import Ranks, begun, device_of_rank, joined_ranks
from somnet.system.signals import stopping_signals
from somnet.training.loop import Trainer

log = logging.getLogger("somnet")

DUPLICATES = "duplicates.csv"
FINISHED = (SUMMARY, "issues.parquet", "regions.parquet")  # a run that has lost one of them is scored again
OURS = (SUMMARY, "metrics.jsonl", "train.log", "issues.csv", "issues.parquet", "regions.parquet", DUPLICATES)


def train(
    data: Path | str,
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    device: str = "auto",
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: bool = True,
) -> Run:
    """Train on a data set and leave a run folder: model, scores of every image, summary, and a report to look at."""
    keep_memory()
    config = config or Config()
    device = device_of_rank(choose_device(device))
    _check_precision(config, device)
    with named_worker_death(), stopping_signals(), joined_ranks(device) as ranks:
        if out is None and ranks.world > 1:
            raise RunError("several ranks need to know the folder of the run: add --out")
        data, out = Path(data), next_run_folder() if out is None else Path(out)
        _, folder = split_name(data)
        if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
            raise RunError(f"{out} lies inside the data {data}, where it would be taken for images: give another --out")
        if ranks.noted(begun(out)):  # by this very command, before torchrun started it again
            resume, overwrite = True, False
        _check_free(out, config, resume=resume, overwrite=overwrite)
        finished = resume and all((out / name).is_file() for name in FINISHED)
        ranks.barrier()  # nobody writes before all have looked
        if finished:
            log.info("%s is finished already", out)
        else:
            _train(data, config, out, device, workers, ranks, anew=overwrite)
        if report and ranks.first and not is_whole_report(out / REPORT):
            _write_report(out)
        return Run(out)


def _check_precision(config: Config, device: str) -> None:
    if config.train.precision != "fp32" and torch.device(device).type != "cuda":
        raise RunError(
            f"train.precision={config.train.precision} needs a CUDA GPU, but this is {device}: use --precision fp32"
        )


def _check_ranks(method: Method, config: Config, ranks: Ranks) -> None:
    """Refuse what several ranks could not do exactly as one does."""
    if ranks.world == 1:
        return
    if not method.divisible:
        raise RunError(
            f"'{config.method}' compares the images of a whole batch, which cannot be shared by {ranks.world} ranks: "
            "train it without torchrun, or on one process"
        )
    fewest = min(max(1, config.train.batch_size // phase.images_per_bag) for phase in method.plan())
    if fewest < ranks.world:
        raise RunError(f"a batch of {fewest} bags cannot be shared by {ranks.world} ranks: raise train.batch_size")


def _write_report(out: Path) -> None:
    """The run is complete without its report, so nothing that goes wrong here may lose it."""
    again = f"somnet report {shlex.quote(str(out))}"
    try:
        with _logging_to(out / "train.log"):
            log.info("look at it: %s", write_report(Run(out)))
    except TrainingStopped:
        log.error("stopped before the report was written: %s", again)
        raise
    except Exception as error:
        raise SomnetError(
            f"the report could not be written ({error}): the run is complete; try again with: {again}"
        ) from error


def _train(
    path: Path, config: Config, out: Path, device: str, workers: int | None, ranks: Ranks, *, anew: bool
) -> None:
    """Nothing is written to the run folder before data and model are known to be good."""
    began = time.monotonic()
    find_method(config.method)
    data = open_dataset(path, config, workers, ranks)
    proposed = time.monotonic()
    method = build_method(config, data.train.labels, len(data.classes)).to(device)
    _check_ranks(method, config, ranks)
    if ranks.first:
        _begin(out, config, data, anew=anew)
        ranks.note(begun(out))
    ranks.barrier()
    with _logging_to(out / "train.log") if ranks.first else contextlib.nullcontext():
        _train_and_score(data, method, config, out, device, workers, ranks, began, proposed)


def _train_and_score(
    data: DataSet,
    method: Method,
    config: Config,
    out: Path,
    device: str,
    workers: int | None,
    ranks: Ranks,
    began: float,
    proposed: float,
) -> None:
    network = method.network
    for line in describe(data, max(phase.images_per_bag for phase in method.plan())):
        log.info(line)
    where = device if ranks.world == 1 else f"{ranks.world} ranks, this one on {device},"
    log.info("%s on %s with %s (weights: %s)", config.method, where, config.model.name, network.licence)
    log.info("estimate: about %s", duration(estimate_seconds(data, method, config, device) / ranks.world))
    count = worker_count(workers)
    with_maps = partial(make_inputs, network=network, config=config, device=device, workers=count, ranks=ranks)
    inputs = with_maps(data.train)
    test_inputs = with_maps(data.test) if data.test else None
    mapped = time.monotonic()

    def on_test() -> Evaluation | None:
        if data.test is None or test_inputs is None:
            return None
        return measure(network, test_inputs, data.test.labels, data.classes, device=device, workers=count, ranks=ranks)

    trainer = Trainer(
        method,
        config,
        data.train.labels,
        inputs,
        Boxes(data.train.scan),
        out,
        device=device,
        workers=loading_processes(network, count),
        evaluate=lambda: test.top1 if (test := on_test()) else None,
        look_again=lambda views: with_maps(data.train, views=views),
        groups=data.train.groups,
        ranks=ranks,
    )
    trainer.run(resume=True)
    earlier, trained = trainer.earlier_seconds, time.monotonic()
    test = on_test()
    images, regions = inspect_images(
        method,
        data.train.index,
        data.train.scan,
        data.train.groups,
        inputs,
        batch_size=FORWARD_IMAGES,
        device=device,
        workers=loading_processes(network, count),
        ranks=ranks,
        folder=out,
    )
    if not ranks.first:
        return
    truth = against_truth(images, data.train.index, data.train.scan)
    bad = [file for file in data.unreadable if file.split == "train"]
    images = with_unreadable(
        images, [file.file_name for file in bad], [file.label for file in bad], [file.reason for file in bad]
    )
    write_tables(out, images, regions)
    write_duplicates(out / DUPLICATES, data)
    summary = {
        "method": config.method,
        "seed": config.seed,
        "config_hash": config.hash(),
        "data": {
            "classes": len(data.classes),
            "train": len(data.train),
            "test": len(data.test) if data.test else 0,
            "unreadable": len(data.unreadable),
        },
        "test": {"top1": test.top1, "top5": test.top5, "n": test.n} if test else {"top1": None, "top5": None, "n": 0},
        "noise": {"auroc": truth.auroc},
        "regions": {"best_iou": truth.best_iou, "image_iou": truth.image_iou},
        "seconds": {
            "propose": round(proposed - began, 2),
            "features": round(mapped - proposed, 2),
            "train": round(earlier + trained - mapped, 2),
            "total": round(earlier + time.monotonic() - began, 2),
        },
        "versions": {
            "somnet": version("somnet"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "timm": version("timm"),
        },
    }
    write_json(out / SUMMARY, summary)
    _report(out, summary, images)


def _report(out: Path, summary: dict[str, Any], images: pa.Table) -> None:
    if summary["test"]["n"]:
        log.info("test: top-1 %.2f %%, top-5 %.2f %%", 100 * summary["test"]["top1"], 100 * summary["test"]["top5"])
    labels = pc.sum(images["is_label_issue"]).as_py()
    backgrounds = pc.sum(images["is_background_issue"]).as_py()
    log.info("suspicious: %d labels, %d backgrounds, of %d images", labels, backgrounds, images.num_rows)
    log.info(
        "done in %s: every image with its scores is in %s", duration(summary["seconds"]["total"]), out / "issues.csv"
    )
    typed = shlex.quote(str(out))
    log.info("next, see what was found:     somnet report %s --open", typed)
    log.info("      write a clean data set: somnet clean %s --out DIR", typed)
    log.info("      carry the model away:   somnet export %s --format onnx", typed)
    log.info("      classify other images:  somnet predict %s IMAGES", typed)


def estimate_seconds(data: DataSet, method: Method, config: Config, device: str) -> float:
    """Rough time of the work ahead, from one small step measured here."""
    network, pace = method.network, measure_steps(method.network, config, device)
    seconds = sum(phase.epochs * phase.passes for phase in method.plan()) * len(data.train) * pace.step
    if network.frozen_trunk:
        store = MapStore(network.trunk_fingerprint(), network.input_shape)
        parts = [data.train] + ([data.test] if data.test else [])
        seconds += pace.prepare * sum(len(uncached(part, store)) for part in parts)
    return seconds


def plan_training(
    config: Config,
    data: Path | None = None,
    sizes: tuple[int, int, int] | None = None,
    *,
    speedup: float = 1.0,
    cores: int | None = None,
    device: str = "auto",
) -> list[str]:
    """What a training will cost, in lines for people. `sizes`, where the data are elsewhere: training images, test
    images and classes.
    """
    keep_memory()
    device, cores = choose_device(device), cores or cores_here()
    if data is not None:
        index = open_source(data)
        need_training(index, data)
        held_out = held_out_split(index)
        train = index.of_split("train")
        sizes = len(train), len(index.of_split(held_out)) if held_out else 0, len(index.classes)
        reading = measure_reading(train, config)
    elif sizes is not None:
        reading = ReadPace.assumed()
    else:
        raise RunError("there is nothing to plan for: give the data, or --images and --classes")
    labels = np.arange(sizes[0], dtype=np.int64) % sizes[2]
    method = build_method(config, labels, sizes[2], pretrained=False).to(device)  # weights cost no time
    work = work_of(method, config, train=sizes[0], test=sizes[1])
    steps = measure_steps(method.network, config, device)
    apart = device != "cpu" or speedup != 1
    cost = estimate(work, steps, reading, cores=cores, speedup=speedup, apart=apart)
    lines = describe_estimate(cost, work, steps, reading, device=device, cores=cores, speedup=speedup)
    if (others := os.getloadavg()[0]) > 1.5 * cores_here():  # this process alone would make it no more than that
        lines.append(
            f"warning: this machine is busy (load {others:.1f}): the times are too long, measure again when not"
        )
    return lines


def next_run_folder(base: Path = Path("runs")) -> Path:
    """The first of runs/1, runs/2, ... that is free."""
    number = 1
    while (base / str(number)).exists():
        number += 1
    return base / str(number)


def _check_free(out: Path, config: Config, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that was not meant."""
    if resume and overwrite:
        raise RunError("--resume and --overwrite contradict each other: give one of them")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: give another --out")
    is_run = _is_run(out)
    if is_run and resume and (out / CONFIG).is_file():  # without it, the run was killed before it began
        begun_with = load_config(out / CONFIG)
        if begun_with.hash() != config.hash():
            changed = _differences(begun_with, config)
            raise RunError(f"{out} was begun with other settings ({changed}): repeat those, or --overwrite")
        return
    if out.exists() and not all(is_leftover(file) for file in out.iterdir()):
        if not is_run:
            raise RunError(f"{out} exists and is no run of somnet: give another --out")
        if not overwrite and not resume:
            raise RunError(f"{out} exists: add --resume to go on, --overwrite to start anew, or give another --out")


def _begin(out: Path, config: Config, data: DataSet, *, anew: bool) -> None:
    """Make the run folder ours, or find it as it was left. Only what a run wrote is ever deleted."""
    if anew:
        for name in (*OURS, str(LAST)):  # the summary first: it says that the run is finished
            (out / name).unlink(missing_ok=True)
        if is_report(out / REPORT):
            remove_report(out / REPORT)
    clear_leftovers(out)
    clear_leftovers(cache_folder(), hours=1)
    fingerprint = data.fingerprint()
    if (out / LAST).is_file() and (out / DATA).is_file():
        before = parse_json((out / DATA).read_text(encoding="utf-8"))
        if before["fingerprint"] != fingerprint:
            raise RunError(
                f"the training images of {data.path} have changed since {out} was begun: restore them, or --overwrite"
            )
    path = display_name(os.fsencode(absolute(data.path)))
    found = {"path": path, "classes": data.classes, "images": len(data.train), "fingerprint": fingerprint}
    write_json(out / DATA, found)
    write_text(out / CONFIG, config.to_toml())


def _is_run(folder: Path) -> bool:
    """Whether a folder is ours: it has the data.json that only a run has."""
    try:
        return "fingerprint" in parse_json((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _differences(old: Config, new: Config) -> str:
    flat_old, flat_new = (_flatten(config.model_dump()) for config in (old, new))
    return ", ".join(
        f"{name} was {flat_old[name]}, now {flat_new[name]}" for name in flat_old if flat_old[name] != flat_new[name]
    )


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


class _LogFile(logging.FileHandler):
    """The screen has the same lines, so a disk that takes no more of them is no error yet."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Go on without the line."""


@contextlib.contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    handler = _LogFile(file, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()
