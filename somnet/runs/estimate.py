"""What a training will cost: hours, memory and disk, from steps measured here and the sizes of data and model."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from somnet.config import Config
from somnet.core.types import Phase
from somnet.data.dataset import DataSet, held_out_split, need_training, uncached
from somnet.data.maps import MapStore
from somnet.data.sources import open_source
from somnet.errors import RunError
from somnet.methods import label_evidence, label_judgement
from somnet.methods.base import Method
from somnet.methods.frozen import with_given_vectors
from somnet.methods.logistic import FINE_STRENGTHS, HELD_OUT
from somnet.nn.backbones import set_precision
from somnet.nn.engine import open_trunk
from somnet.nn.tables import tables_of
from somnet.runs.pace import ReadPace, StepPace, measure_reading, measure_steps
from somnet.runs.run import build_method
from somnet.runs.run_folder import PICTURES
from somnet.system.allocator import keep_memory
from somnet.system.compute import choose_device, choose_precision, placed
from somnet.system.cores import cores_here, own_cores

START = 5.0  # seconds to load Python and torch, and to build a network
FETCH = 0.00012  # seconds to bring a cached map into a batch
MOST_DECAY = 5_000  # images by which the classifier's decay is chosen, as in training/decay.py
BOX_BYTES = 16  # four float32: in memory, and in the cache, as they hardly compress
BOX_READ_BYTES = 200  # of a box while the cache is read, as Python numbers
IMAGE_BYTES = 200  # of the tables in memory that are neither boxes nor names
REGION_BYTES, ISSUE_BYTES = 30, 120  # a row of regions.parquet, a row of issues.parquet and issues.csv
VECTOR_BYTES = 4  # of a number of a vector that was given: float32
PROCESS_BYTES = 700_000_000  # Python and torch, before there is any data


@dataclass(frozen=True)
class Work:
    """How much there is to do and to keep."""

    train: int  # images
    test: int
    passes: float  # of the training images through the network, with gradient
    epochs: int  # after each of which the test images are tried
    batch_size: int
    max_boxes: int
    views: int  # of each training image, whose maps are cached
    map_bytes: int  # of one cached map; 0: the network is trained whole
    held_bytes: int  # of one image, in main memory, where a method holds the features of all images at once
    trained_bytes: int  # parameters that the optimiser changes
    state_bytes: int  # all that is saved of the method
    table_bytes: int  # of that, what has a row per image, which is in main memory
    vector_bytes: int = 0  # of one image, in main memory, where another model has made vectors of all
    memory_passes: float = 0.0  # of the training images through a memory alone, each about as long as with the network
    regions: int = 1  # of an image that are looked at to judge it, the image among them
    judgements: int = 1  # of all labels
    missing: int | None = None  # views that have to go through the trunk; None: all


@dataclass(frozen=True)
class Estimate:
    """Seconds by stage, and bytes by place."""

    propose: float
    maps: float
    load: float
    train: float
    score: float  # test images after each epoch, every image at the end, and its regions whenever labels are judged
    fits: float  # of linear classifiers, by which labels are judged
    report: float
    total: float
    device_bytes: int
    host_bytes: int
    cache_bytes: int
    checkpoint_bytes: int
    table_bytes: int


def estimate(work: Work, step: StepPace, read: ReadPace, *, cores: int, speedup: float, apart: bool) -> Estimate:
    """The cost of some work at a pace. `speedup`: how many times faster the device is than the one measured on;
    `apart`: the device leaves the cores free, so that images are loaded while it trains.
    """
    images = work.train + work.test
    seen = work.train * work.views + work.test  # through a frozen trunk
    left = seen if work.missing is None else work.missing
    frozen = work.map_bytes > 0
    judged = work.train * work.regions * (1 + work.judgements)  # once more by the method itself
    scored = (work.epochs + 1) * work.test + judged + work.train  # at last as vectors
    propose = images * read.propose / cores
    maps = left * step.prepare / speedup if frozen else 0.0
    decoded = left * images / seen if frozen else 0.0  # a picture once for all of its views
    loaded = work.passes * work.train + scored
    load = (decoded * read.decode + left * read.cut if frozen else loaded * read.load) / cores
    load = 0.0 if work.vector_bytes else load  # no network sees the images
    fetch = FETCH * loaded / cores if frozen else 0.0
    train = (work.passes + work.memory_passes) * work.train * step.step / speedup + fetch
    score = scored * step.forward / speedup
    fits = _fitted_images(work) * step.fit / cores
    report = 2 * min(work.train, PICTURES) * read.load / cores  # decoded and drawn, and again for its regions
    busy = maps + train + score
    return Estimate(
        propose=propose,
        maps=maps,
        load=load,
        train=train,
        score=score,
        fits=fits,
        report=report,
        total=START + propose + fits + report + (max(busy, load) if apart else busy + load),
        device_bytes=work.state_bytes
        - work.table_bytes
        + 2 * work.trained_bytes  # gradient and momentum
        + work.batch_size * step.saved_bytes,
        host_bytes=PROCESS_BYTES
        + images * (IMAGE_BYTES + work.max_boxes * (BOX_BYTES + BOX_READ_BYTES))
        + work.table_bytes
        + work.train * work.held_bytes
        + images * work.vector_bytes,
        cache_bytes=images * work.max_boxes * BOX_BYTES + seen * work.map_bytes,
        checkpoint_bytes=work.state_bytes + work.trained_bytes,
        table_bytes=work.train * (ISSUE_BYTES + (1 + work.max_boxes) * REGION_BYTES),
    )


def _fitted_images(work: Work) -> float:
    """Images that linear classifiers are fitted to, one fit after the other: a strength is chosen, then folds."""
    kept = 1 - 1 / label_evidence.FOLDS
    chosen = len(FINE_STRENGTHS) * len(HELD_OUT) * kept
    folds = label_evidence.FOLDS * kept * work.regions
    decay = min(work.train, MOST_DECAY) * chosen if work.passes else 0.0
    return decay + work.judgements * min(work.train, label_judgement.MOST) * (chosen + folds)


def work_of(method: Method, config: Config, *, train: int, test: int) -> Work:
    """What a method is about to do."""
    network, plan = method.network, method.plan()
    cached = network.frozen_trunk and network.reads_images
    regions = 1 + config.views.proposals if network.reads_images else 1
    trained = (p for group in method.param_groups() for p in group["params"])
    return Work(
        train=train,
        test=test,
        passes=sum(phase.epochs * phase.passes for phase in plan),
        epochs=sum(phase.epochs for phase in plan if phase.passes),
        batch_size=config.train.batch_size,
        max_boxes=config.proposals.max_boxes,
        views=max(trunk_passes(config, plan), regions),
        map_bytes=2 * math.prod(network.input_shape) if cached else 0,
        held_bytes=method.held_bytes(),
        trained_bytes=sum(p.numel() * p.element_size() for p in trained),
        state_bytes=sum(t.numel() * t.element_size() for t in method.state_dict().values()),
        table_bytes=sum(t.numel() * t.element_size() for t in tables_of(method)),
        vector_bytes=0 if network.reads_images else VECTOR_BYTES * network.width,
        memory_passes=sum(phase.epochs for phase in plan if not phase.passes),
        regions=regions,
        judgements=1 + method.judges_labels,
    )


def trunk_passes(config: Config, plan: Sequence[Phase]) -> int:
    """How often a frozen trunk sees each training image: once whole, and once for each view that a step may draw."""
    views = config.views
    return 1 + draws_views(plan) * (views.proposals + views.mirror + views.crops)


def draws_views(plan: Sequence[Phase]) -> bool:
    """Whether some step sees views of images."""
    return any(phase.epochs and phase.needs_images for phase in plan)


def describe_estimate(
    cost: Estimate, work: Work, step: StepPace, read: ReadPace, *, device: str, cores: int, speedup: float
) -> list[str]:
    """The estimate as lines to read, and what of it was measured and what assumed."""
    where = device if speedup == 1 else f"a device {speedup:g} times as fast as this {device}"
    rows = [
        ("proposals" if work.max_boxes else "looking at the images", cost.propose, f"{cores} cores"),
        ("feature maps", cost.maps, where),
        ("loading images", cost.load, f"{cores} cores"),
        ("training", cost.train, where),
        ("testing and scoring", cost.score, where),
        ("fits of linear classifiers", cost.fits, f"{cores} cores"),
        ("report", cost.report, f"{cores} cores"),
        ("all", cost.total, "as much at once as can be"),
    ]
    reading = "measured on images of the data" if read.measured else "assumed: there are no images here to time"
    return [
        f"{work.train} training images {work.passes:g} times, {work.test} test images",
        *(f"{name}: {_hours(seconds)} ({place})" for name, seconds, place in rows if seconds),
        f"memory of the device: {_size(cost.device_bytes)}; of the machine: {_size(cost.host_bytes)}",
        f"disk: cache {_size(cost.cache_bytes)}, tables {_size(cost.table_bytes)}, checkpoint "
        f"{_size(cost.checkpoint_bytes)} (twice that while it is written)",
        f"measured: {1000 * step.step:.1f} ms per training image, {1000 * step.forward:.1f} ms forward, "
        f"{_size(step.saved_bytes)} kept for the backward pass, on {device}",
        f"{reading}: {1000 * read.load:.1f} ms to load, {1000 * read.propose:.1f} ms to "
        f"{'find boxes' if work.max_boxes else 'look at'}, on one core",
        f"assumed: {START:.0f} s to start, all methods' steps cost what the network's do, all cores read equally fast, "
        "nothing is cached yet, tables of usual size" + ("" if speedup == 1 else f", and the {speedup:g} of --speedup"),
    ]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 360 else f"{seconds:.0f} s"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def estimate_seconds(data: DataSet, method: Method, config: Config, device: str) -> float:
    """Rough time of the work ahead, when the images have been looked at, from one small step measured here."""
    network, train, test = method.network, len(data.train), len(data.test) if data.test else 0
    work = work_of(method, config, train=train, test=test)
    if network.frozen_trunk and network.reads_images:
        store = MapStore(open_trunk(network).fingerprint, network.input_shape)
        missing = [len(uncached([part.scan.keys], store)) for part in (data.train, data.test) if part is not None]
        work = replace(work, missing=missing[0] * work.views + sum(missing[1:]))
    steps = measure_steps(network, config, device, len(data.classes))
    reading = measure_reading(data.train.index, config)
    cost = estimate(work, steps, reading, cores=own_cores(), speedup=1, apart=device != "cpu")
    return cost.total - cost.propose - START


def plan_training(
    config: Config,
    data: Path | None = None,
    sizes: tuple[int, int, int] | None = None,
    *,
    speedup: float = 1.0,
    cores: int | None = None,
    device: str = "auto",
) -> list[str]:
    """What a training will cost, in lines to read. `sizes`, where the data are elsewhere: training images, test
    images and classes.
    """
    keep_memory()
    device, cores = choose_device(device), cores or cores_here()
    config = with_given_vectors(config)
    if data is not None:
        index = open_source(data, follow_links=config.follow_links)
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
    method = placed(build_method(config, labels, sizes[2], pretrained=False), device)  # weights cost no time
    set_precision(method, choose_precision(config.train.precision, device))
    work = work_of(method, config, train=sizes[0], test=sizes[1])
    steps = measure_steps(method.network, config, device, sizes[2])
    apart = device != "cpu" or speedup != 1
    cost = estimate(work, steps, reading, cores=cores, speedup=speedup, apart=apart)
    lines = describe_estimate(cost, work, steps, reading, device=device, cores=cores, speedup=speedup)
    if (others := os.getloadavg()[0]) > 1.5 * cores_here():  # this process alone would make it no more than that
        lines.append(
            f"warning: this machine is busy (load {others:.1f}): the times are too long, measure again when not"
        )
    return lines
