"""Training from a data set to a run folder: fit, score, summarise, report."""

import contextlib
import logging
import platform
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from somnet.config import Config
from somnet.data.bags import Boxes, Inputs
from somnet.data.dataset import DataSet, Part, make_inputs, open_dataset, training_views, write_duplicates
from somnet.data.decisions import describe_decisions, read_rounds
from somnet.data.description import describe
from somnet.data.loading import named_worker_death
from somnet.data.sources import split_name
from somnet.errors import DataError, RunError, SomnetError, TrainingStopped
from somnet.methods.base import Method, find_method
from somnet.methods.frozen import with_given_vectors
from somnet.methods.registry import known_methods
from somnet.nn.backbones import check_name
from somnet.report.confusion import write_wrong
from somnet.report.site import is_report, is_whole_report, remove_report, write_report
from somnet.runs.begin import as_started, begin, check_free, is_of, is_run, next_run_folder, refuse_other_images
from somnet.runs.data_changes import warn_of_changes
from somnet.runs.doubt import flagged_sentence
from somnet.runs.embedding import compact_vectors, untouched_network, write_vectors
from somnet.runs.estimate import draws_views, estimate_seconds
from somnet.runs.file_issues import with_file_issues
from somnet.runs.kinds import counted_kinds, with_reasons
from somnet.runs.label_scores import Beside, score_labels, with_label_scores
from somnet.runs.metrics import top_k
from somnet.runs.run import Evaluation, HeldOut, build_method, class_scores, measure
from somnet.runs.scoring import Truth, against_truth, inspect_images, with_unreadable, write_issues
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute, choose_device, placed, threads
from somnet.system.files import LOCK, write_json
from somnet.system.folders import (
    DUPLICATES,
    FINISHED,
    ISSUES_CSV,
    LOG,
    REPORT,
    SUMMARY,
    TEST_WRONG,
    VECTORS,
    refuse_inside,
)
from somnet.system.locks import one_writer
from somnet.system.progress import duration, logging_to
from somnet.system.ranks import ALONE, Ranks, device_of_rank, joined_ranks, started_note
from somnet.system.signals import stopping_signals
from somnet.system.transfer import on_gpu
from somnet.training.finished_run import Run
from somnet.training.loop import Trainer, TrainingImages
from somnet.training.tensorboard import clear_events, need_tensorboard

log = logging.getLogger("somnet")


def train(
    data: Path | str,
    config: Config | None = None,
    *,
    out: Path | str | None = None,
    device: str = "auto",
    workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Run:
    """Train on a data set and leave a run folder: model, scores of every image, summary, and a report to look at."""
    config = config or Config()
    with _at_work(config, device, workers) as compute:
        if out is None and compute.ranks.world > 1:
            raise RunError("with several processes the run folder has to be given: add --out")
        out = next_run_folder() if out is None else Path(out)
        if resume and compute.ranks.first and not is_run(out):
            log.warning("there is nothing to resume in %s: a new training begins", out)
        began = time.monotonic()
        worked = _train(Path(data), config, out, compute, resume=resume, overwrite=overwrite)
        if compute.ranks.first and not is_whole_report(out / REPORT):
            _write_report(out)
        if compute.ranks.first and worked:
            with logging_to(out / LOG):
                _tell_next(out, time.monotonic() - began)
        return Run(out)


def train_without_report(
    data: Path, config: Config, out: Path, *, device: str = "auto", workers: int | None = None
) -> Run:
    """The same for a benchmark, where nobody looks at the report of a run; one that was interrupted continues."""
    with _at_work(config, device, workers) as compute:
        _train(data, config, out, compute, resume=True, overwrite=False)
        return Run(out)


@contextlib.contextmanager
def _at_work(config: Config, device: str, workers: int | None) -> Iterator[Compute]:
    """This process as one of the ranks that train, on its device; signals are heard at once where nothing is lost."""
    keep_memory()
    device = device_of_rank(choose_device(device))
    _check_precision(config, device)
    with named_worker_death(), stopping_signals(), joined_ranks(device) as ranks, _named_lack_of_room():
        yield Compute(device, workers, ranks)


@contextlib.contextmanager
def _named_lack_of_room() -> Iterator[None]:
    """A step that does not fit says so itself."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RunError(
            f"the device has no room left ({str(error).partition('Tried to')[0].strip(' .')}): what is done is kept; "
            "free the device and continue with --resume, or choose a smaller --imgsz or --model and --overwrite"
        ) from error


def _train(data: Path, config: Config, out: Path, compute: Compute, *, resume: bool, overwrite: bool) -> bool:
    """Train, unless the run is finished: then False. Nothing is written before data and model are known to be good."""
    ranks, laps = compute.ranks, Laps()
    refuse_inside(out, split_name(data)[1])
    if ranks.noted(started_note(out)):  # by this very command, before torchrun started it again
        resume, overwrite = True, False
    config = as_started(out, with_given_vectors(config), resume=resume)
    count = config.threads or torch.get_num_threads()
    config = config.model_copy(update={"threads": count})
    check_free(out, config, resume=resume, overwrite=overwrite)
    finished = resume and all((out / name).is_file() for name in FINISHED)
    ranks.barrier()  # nobody writes before all have looked
    if not finished:
        find_method(config.method)
        if not config.model.embeddings:
            check_name(config.model)  # before all images are looked at
        if config.tensorboard:
            need_tensorboard()
    elif is_of(out, data):
        warn_of_changes(out, data, follow_links=config.follow_links)
        log.info("%s is finished already", out)
        return False
    scanned = open_dataset(data, config, compute)
    if finished:  # its data may have moved
        refuse_other_images(out, scanned)
        log.info("%s is finished already", out)
        return False
    laps.end("propose")
    method = placed(build_method(config, scanned.train.labels, len(scanned.classes)), compute.device)
    method.confirm(torch.from_numpy(scanned.train.verified))
    _check_ranks(method, config, ranks)
    _check_weights(method, config, scanned.train)
    with threads(count), contextlib.ExitStack() as writing:
        if ranks.first:
            writing.enter_context(one_writer(out / LOCK, out))
            check_free(out, config, resume=resume, overwrite=overwrite)  # somebody may have been faster
            if overwrite:
                clear_events(out)
            if overwrite and is_report(out / REPORT):
                remove_report(out / REPORT)  # first: a report that outlived its run would be taken for the new one's
            begin(out, config, scanned, overwrite=overwrite)
            ranks.note(started_note(out))
            writing.enter_context(logging_to(out / LOG))
        ranks.barrier()
        job = Job(scanned, method, config, out, compute, laps)
        test = fit(job)
        scored = score(job)
        if scored is not None:
            summarise(job, test, scored)
    return True


@dataclass
class Laps:
    """Seconds of the stages of the work, one after the other."""

    seconds: dict[str, float] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)

    def end(self, stage: str, earlier: float = 0.0) -> None:
        """A stage ends here; `earlier` sessions have spent so much on it before."""
        now = time.monotonic()
        self.seconds[stage], self.at = now - self.at + earlier, now


@dataclass(frozen=True)
class Job:
    """A training whose data, method and place are known to be good."""

    data: DataSet
    method: Method
    config: Config
    out: Path
    compute: Compute
    laps: Laps

    @cached_property
    def inputs(self) -> Inputs:
        """Of the training images."""
        return self._make_inputs(self.data.train)

    @cached_property
    def test_inputs(self) -> Inputs | None:
        """Of the held-out images, if there are any."""
        return None if self.data.test is None else self._make_inputs(self.data.test)

    def _make_inputs(self, part: Part) -> Inputs:
        return make_inputs(part, self.method.network, self.config.model.imgsz, self.compute)

    @cached_property
    def views(self) -> Sequence[Inputs]:
        """Of the training images: what a step may see of them."""
        return training_views(self.data.train, self.method.network, self.config, self.compute)

    def images(self) -> TrainingImages:
        """The training images for the loop."""
        part = self.data.train
        boxes = Boxes(part.scan)
        return TrainingImages(part.labels, self.inputs, boxes, part.groups, part.weights, lambda: self.views)

    def prepare(self) -> None:
        """Compute the features of all views and of the held-out images now, so that no epoch pays for them.

        The views first: whole images are among them, so that each picture is opened once.
        """
        if draws_views(self.method.plan()):
            _ = self.views
        _ = self.inputs
        _ = self.test_inputs

    def test(self) -> Evaluation | None:
        """How good the network is on the held-out images, if there are any."""
        if self.data.test is None or self.test_inputs is None:
            return None
        test = self.data.test
        held_out = HeldOut(test.labels, test.index.column("file_name"), self.data.classes)
        return measure(self.method.network, self.test_inputs, held_out, self.compute)

    def top1(self) -> float | None:
        """Of the test; after each epoch, so nothing else of it is worked out."""
        if self.data.test is None or self.test_inputs is None:
            return None
        labels = self.data.test.labels
        return top_k(class_scores(self.method.network, self.test_inputs, labels, self.compute), labels, 1)


def fit(job: Job) -> Evaluation | None:
    """Train to the end of the method's plan, or continue where it was interrupted; accuracy at the end."""
    method, config, compute = job.method, job.config, job.compute
    for line in describe(job.data, max(phase.images_per_bag for phase in method.plan())):
        log.info(line)
    if config.decisions:
        log.info(describe_decisions(read_rounds(config.decisions)))
    ranks = compute.ranks
    where = compute.device if ranks.world == 1 else f"{ranks.world} ranks, this one on {compute.device},"
    log.info("%s on %s with %s (weights: %s)", config.method, where, config.model.name, method.network.licence)
    if method.network.reads_images:
        seconds = estimate_seconds(job.data, method, config, compute.device)
        log.info("estimate: about %s", duration(seconds / ranks.world))
    job.prepare()
    job.laps.end("features")
    trainer = Trainer(method, config, job.images(), job.out, compute=compute, evaluate=job.top1)
    trainer.run(resume=True)
    job.laps.end("train", earlier=trainer.earlier_seconds)
    return job.test()


def score(job: Job) -> tuple[pa.Table, Truth] | None:
    """Judge every training image and region, and write the tables; for the first rank what it found."""
    part = job.data.train
    inputs = job.images().shown_to(job.method)
    images = inspect_images(job.method, part, inputs, job.compute, job.out)
    if not job.compute.ranks.first:
        return None
    scores = score_labels(job.method, part, job.config, job.compute, Beside(job.data.dropped, job.data.right))
    images = with_file_issues(with_label_scores(images, scores, job.data.classes), job.data)
    truth = against_truth(images, part)
    images = with_reasons(with_unreadable(images, job.data.unreadable))
    write_issues(job.out, images)
    write_vectors(job.out / VECTORS, describe_images(job))
    write_duplicates(job.out / DUPLICATES, job.data)
    job.laps.end("score")
    return images, truth


def describe_images(job: Job) -> NDArray[np.float16]:
    """What the training images look like to a network that no label has touched, in few numbers each."""
    alone = replace(job.compute, ranks=ALONE)
    network = untouched_network(job.method, job.config, alone)
    inputs = make_inputs(job.data.train, network, job.config.model.imgsz, alone)
    return compact_vectors(network, inputs, len(job.data.train), alone)


def summarise(job: Job, test: Evaluation | None, scored: tuple[pa.Table, Truth]) -> None:
    """Write which held-out images are wrong, then summary.json: the run is finished; and tell what was found."""
    data, config, (images, truth) = job.data, job.config, scored
    seconds = job.laps.seconds
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
        "noise": {"auroc": truth.auroc, "belief_auroc": truth.belief_auroc},
        "regions": {"best_iou": truth.best_iou, "image_iou": truth.image_iou},
        "seconds": {**{stage: round(s, 2) for stage, s in seconds.items()}, "total": round(sum(seconds.values()), 2)},
        "versions": {
            "somnet": version("somnet"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "timm": version("timm"),
        },
    }
    if test:
        write_wrong(test, job.out / TEST_WRONG)
    write_json(job.out / SUMMARY, summary)
    if test:
        log.info("test: top-1 %.2f %%, top-5 %.2f %%", 100 * test.top1, 100 * test.top5)
    log.info("of %d images: %s", images.num_rows, flagged_sentence(images))
    log.info("      %s", counted_kinds(images))


def _tell_next(out: Path, seconds: float) -> None:
    """Said when all is done, the report too."""
    log.info("done in %s: every image with its scores is in %s", duration(seconds), out / ISSUES_CSV)
    typed = shlex.quote(str(out))
    log.info("next, see what was found:     somnet report %s --open", typed)
    log.info("      judge what tells most:  somnet review %s --open", typed)
    log.info("      write a clean data set: somnet clean %s --out DIR", typed)
    if not Run(out).config.model.embeddings:
        log.info("      export the model:       somnet export %s --format onnx", typed)
        log.info("      classify other images:  somnet predict %s IMAGES", typed)


def _write_report(out: Path) -> None:
    """The run is complete without its report, so nothing that goes wrong here may lose it."""
    again = f"somnet report {shlex.quote(str(out))}"
    try:
        with logging_to(out / LOG):
            log.info("look at it: %s", write_report(Run(out)))
    except TrainingStopped:
        log.error("stopped before the report was written: %s", again)
        raise
    except Exception as error:
        raise SomnetError(
            f"the report could not be written ({error}): the run is complete; try again with: {again}"
        ) from error


def _check_precision(config: Config, device: str) -> None:
    if config.train.precision not in ("auto", "fp32") and not on_gpu(device):
        raise RunError(
            f"train.precision={config.train.precision} needs a CUDA GPU, but this is {device}: use --precision fp32"
        )


def _check_weights(method: Method, config: Config, part: Part) -> None:
    """Refuse weights that a method would ignore."""
    if part.weights is None or method.weighted:
        return
    able = [name for name in known_methods() if find_method(name).weighted]
    raise DataError(
        f"the manifest of {part.index.root} has weights, which '{config.method}' does not take: choose one of "
        f"{', '.join(able)}, or remove the column weight"
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
    if config.train.compile and config.train.sync_bn and not method.network.frozen_trunk:
        raise RunError(
            "torch cannot compile normalisation over ranks: leave out --compile, or add --set train.sync_bn=false"
        )
    fewest = min(max(1, config.train.batch_size // phase.images_per_bag) for phase in method.plan())
    if fewest < ranks.world:
        raise RunError(f"a batch of {fewest} bags cannot be shared by {ranks.world} ranks: raise train.batch_size")
