"""What a training will cost: hours, memory and disk, from steps measured here and the sizes of data and model."""

import copy
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from somnet.config import Config
from somnet.core.types import Phase
from somnet.data.dataset import DataSet, held_out_split, need_training, uncached
from somnet.data.decode import read_picture
from somnet.data.edgeboxes import edge_boxes
from somnet.data.index import Index
from somnet.data.maps import MapStore
from somnet.data.sources import open_source
from somnet.data.transforms import Augment
from somnet.errors import RunError, UnreadableImage
from somnet.methods.base import Method
from somnet.methods.frozen import with_given_vectors
from somnet.nn.backbones import Network, set_precision
from somnet.nn.engine import open_trunk
from somnet.nn.tables import tables_of
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.compute import choose_device, choose_precision, placed
from somnet.system.cores import cores_here
from somnet.system.transfer import finish

SAMPLE = 12  # images of the data whose reading is timed
LOAD_ASSUMED, PROPOSE_ASSUMED = 0.012, 0.04  # seconds per image of web size on one core, where there are none to time
BOX_BYTES = 16  # four float32: in memory, and in the cache, as they hardly compress
BOX_READ_BYTES = 200  # of a box while the cache is read, as Python numbers
IMAGE_BYTES = 200  # of the tables in memory that are neither boxes nor names
REGION_BYTES, ISSUE_BYTES = 30, 120  # a row of regions.parquet, a row of issues.parquet and issues.csv
VECTOR_BYTES = 4  # of a number of a vector that was given: float32
PROCESS_BYTES = 700_000_000  # Python and torch, before there is any data


@dataclass(frozen=True)
class StepPace:
    """Of the network on this device: seconds per image, and what a step keeps for its backward pass."""

    prepare: float  # through a frozen trunk; 0 where there is none
    forward: float  # from prepared inputs to logits
    step: float  # forward and backward
    saved_bytes: int


@dataclass(frozen=True)
class ReadPace:
    """Of one core: seconds per image."""

    load: float  # decode and augment
    propose: float  # decode and find boxes
    measured: bool = True

    @staticmethod
    def assumed() -> "ReadPace":
        """What is usual for images of web size, where there are none to time."""
        return ReadPace(LOAD_ASSUMED, PROPOSE_ASSUMED, measured=False)


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


@dataclass(frozen=True)
class Estimate:
    """Seconds by stage, and bytes by place."""

    propose: float
    maps: float
    load: float
    train: float
    score: float  # test images after each epoch, and every image at the end
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
    frozen = work.map_bytes > 0
    loaded = work.passes * work.train + work.epochs * work.test + images  # the last time to score
    propose = images * read.propose / cores
    maps = seen * step.prepare / speedup if frozen else 0.0
    load = (seen if frozen else loaded) * read.load / cores
    train = work.passes * work.train * step.step / speedup
    score = (work.epochs * work.test + images) * step.forward / speedup
    busy = maps + train + score
    return Estimate(
        propose=propose,
        maps=maps,
        load=load,
        train=train,
        score=score,
        total=propose + (max(busy, load) if apart else busy + load),
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


def work_of(method: Method, config: Config, *, train: int, test: int) -> Work:
    """What a method is about to do."""
    network, plan = method.network, method.plan()
    cached = network.frozen_trunk and network.reads_images
    trained = (p for group in method.param_groups() for p in group["params"])
    return Work(
        train=train,
        test=test,
        passes=sum(phase.epochs * phase.passes for phase in plan),
        epochs=sum(phase.epochs for phase in plan if phase.passes),
        batch_size=config.train.batch_size,
        max_boxes=config.proposals.max_boxes,
        views=trunk_passes(config, plan),
        map_bytes=2 * math.prod(network.input_shape) if cached else 0,
        held_bytes=method.held_bytes(),
        trained_bytes=sum(p.numel() * p.element_size() for p in trained),
        state_bytes=sum(t.numel() * t.element_size() for t in method.state_dict().values()),
        table_bytes=sum(t.numel() * t.element_size() for t in tables_of(method)),
        vector_bytes=0 if network.reads_images else VECTOR_BYTES * network.width,
    )


def trunk_passes(config: Config, plan: Sequence[Phase]) -> int:
    """How often a frozen trunk sees each training image: once whole, and once for each view that a step may draw."""
    views = config.views
    return 1 + draws_views(plan) * (views.proposals + views.mirror + views.crops)


def draws_views(plan: Sequence[Phase]) -> bool:
    """Whether some step sees views of images."""
    return any(phase.epochs and phase.needs_images for phase in plan)


def measure_steps(network: Network, config: Config, device: str) -> StepPace:
    """Time small steps of a copy of the network."""
    network = copy.deepcopy(network).train()
    few = min(16, config.train.batch_size)
    with torch.no_grad():
        prepared, prepare = _measure_trunk(network, few, device)
        forward = _seconds(lambda: network(prepared), device)
    step = _seconds(lambda: torch.autograd.backward(_learnt_output(network, prepared).sum()), device)
    return StepPace(prepare / few, forward / few, step / few, _saved_bytes(network, prepared[:2]) // 2)


def _learnt_output(network: Network, prepared: Tensor) -> Tensor:
    """Logits; features where the classifier has nothing to learn, as a vote of neighbours."""
    logits: Tensor = network(prepared)
    return logits if logits.requires_grad else network.image_features(prepared)


def _measure_trunk(network: Network, few: int, device: str) -> tuple[Tensor, float]:
    """Inputs (few, ...) of what follows a trunk, and the seconds that it takes for them; 0 where there is none."""
    if not network.reads_images:
        return torch.zeros(few, *network.input_shape, device=device), 0.0
    pixels = torch.zeros(few, 3, network.imgsz, network.imgsz, dtype=torch.uint8, device=device)
    trunk = open_trunk(network)
    prepared = trunk.maps(pixels)
    return prepared, _seconds(lambda: trunk.maps(pixels), device) if network.frozen_trunk else 0.0


def _saved_bytes(network: Network, prepared: Tensor) -> int:
    """What autograd keeps of some images between forward and backward, each tensor once, parameters not at all."""
    own = {tensor.data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _alive = network(prepared)  # while it is, no place in memory is used twice
    return sum(kept.values())


def measure_reading(index: Index, config: Config) -> ReadPace:
    """Time the reading of some images of the data; what is usual where none can be read."""
    rows = np.unique(np.linspace(0, len(index) - 1, SAMPLE).astype(np.int64))
    some, count, proposals = index.take(rows), len(rows), config.proposals
    most = 1 + proposals.max_boxes  # the image itself is one
    boxes, mask = torch.zeros(most, 4), torch.zeros(most, dtype=torch.bool)
    load, propose = [], []
    for row in range(count):
        try:
            began = time.monotonic()
            picture = read_picture(some.location(row), at_least=proposals.edge_side)
            edge_boxes(
                picture.image,
                max_boxes=proposals.max_boxes,
                min_area=proposals.min_area,
                edge_side=proposals.edge_side,
            )
            proposed = time.monotonic()
            image = read_picture(some.location(row), at_least=config.model.imgsz).image
            Augment(config.model.imgsz)(image, boxes, mask, 0)
        except UnreadableImage:
            continue
        propose.append(proposed - began)
        load.append(time.monotonic() - proposed)
    if not load:
        return ReadPace.assumed()
    return ReadPace(float(np.mean(load)), float(np.mean(propose)))


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
        "not counted: fits of linear classifiers, among them those that judge the labels",
        "assumed: all methods' steps cost what the network's do, all cores read equally fast, nothing is cached yet, "
        "tables of usual size" + ("" if speedup == 1 else f", and the {speedup:g} of --speedup"),
    ]


def _seconds(work: Callable[[], object], device: str) -> float:
    finish(device)
    began = time.monotonic()
    times: list[float] = []
    while len(times) < 2 or (len(times) < 5 and time.monotonic() - began < 1):  # the first call pays for set-up
        start = time.monotonic()
        work()
        finish(device)
        times.append(time.monotonic() - start)
    return min(times)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 360 else f"{seconds:.0f} s"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def estimate_seconds(data: DataSet, method: Method, config: Config, device: str) -> float:
    """Rough time of the work ahead, from one small step measured here."""
    network, pace = method.network, measure_steps(method.network, config, device)
    seconds = sum(phase.epochs * phase.passes for phase in method.plan()) * len(data.train) * pace.step
    if network.frozen_trunk:
        store = MapStore(open_trunk(network).fingerprint, network.input_shape)
        missing = [len(uncached([part.scan.keys], store)) for part in (data.train, data.test) if part is not None]
        missing[0] *= trunk_passes(config, method.plan())
        seconds += pace.prepare * sum(missing)
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
    if config.model.embeddings:
        reading = replace(reading, load=0.0)  # no network sees the images
    labels = np.arange(sizes[0], dtype=np.int64) % sizes[2]
    method = placed(build_method(config, labels, sizes[2], pretrained=False), device)  # weights cost no time
    set_precision(method, choose_precision(config.train.precision, device))
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
