"""Does a GPU do what a CPU does, and how fast? For the first person with a card: somnet doctor --gpu."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import timm
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.data.bags import BagBatches, Boxes, draw_bags, each_image_once
from somnet.data.loading import load
from somnet.data.proposals import Scan
from somnet.methods.base import Method
from somnet.runs.run import build_method
from somnet.system.compute import Compute, placed
from somnet.system.transfer import finish
from somnet.training.loop import TrainingImages
from somnet.training.optim import enter_phase, learning_rates, set_rates
from somnet.training.step import Stepper

T = TypeVar("T")

IMAGES, CLASSES, SIDE, BOXES = 24, 3, 64, 4  # made up, to compare
STEPS = 2
TIMED_STEPS = 10
SMALL = {
    "model.name": "test_resnet",
    "model.pretrained": False,
    "model.freeze": "none",
    "model.imgsz": SIDE,
    "proposals.max_boxes": BOXES,
    "train.batch_size": IMAGES,
    "train.precision": "fp32",
    "somnet.memory.side": 3,
}


@dataclass(frozen=True)
class Agreement:
    """How far a method's phase is away from the CPU after some steps."""

    method: str
    phase: str
    difference: float  # of the losses, the largest, as a share of them
    waits: int | None  # of the last step; None where nobody counts
    megabytes: float | None  # on the device, at most


@dataclass(frozen=True)
class Speed:
    """Training steps of a whole network on images that are there already."""

    name: str
    images_per_second: float
    megabytes: float | None


def compare_method(name: str, device: str) -> list[Agreement]:
    """Two steps in each phase of a method on the device, beside the same on the CPU."""
    expected, found = ([*_phases(name, where)] for where in ("cpu", device))
    rows = []
    for (phase, mine, _), (_, theirs, waits) in zip(expected, found, strict=True):
        apart = max(abs(mine[key] - theirs[key]) / max(abs(mine[key]), 1e-3) for key in mine)
        rows.append(Agreement(name, phase, apart, waits, _megabytes(device)))
    return rows


def _phases(name: str, device: str) -> Iterator[tuple[str, dict[str, float], int | None]]:
    """Each phase that trains, the losses of its last step, and how often that waited."""
    config = Config(method=name).with_settings(SMALL)
    labels = np.arange(IMAGES, dtype=np.int64) % CLASSES
    method = placed(build_method(config, labels, CLASSES), device)
    images, compute = _images(labels), Compute(device, workers=0)
    stepper, seen = Stepper(method, config.train, compute), set[str]()
    for phase in method.plan():
        if phase.epochs and phase.name not in seen:
            seen.add(phase.name)
            yield phase.name, *_steps(method, stepper, phase, images, device)


def _steps(
    method: Method, stepper: Stepper, phase: Phase, images: TrainingImages, device: str
) -> tuple[dict[str, float], int | None]:
    enter_phase(stepper.optimizer, phase)
    rng, shown = np.random.default_rng(0), images.shown_to(method)

    def bag_pass(images_per_bag: int) -> Iterator[BagBatch]:
        bags = each_image_once(images.labels) if images_per_bag == 1 else draw_bags(images.labels, images_per_bag, rng)
        yield from load(BagBatches(bags, IMAGES, shown, None, seed=None), 0, device=device)

    method.eval()
    with torch.no_grad():
        method.prepare(phase, bag_pass, torch.Generator().manual_seed(0))
    method.train()
    set_rates(stepper.optimizer, learning_rates(phase, 0.0))
    inputs = images.regions(method.config.views.proposals) if phase.regions else images.drawn(phase.views)
    bags = draw_bags(images.labels, phase.images_per_bag, np.random.default_rng(1))
    boxes = None if phase.needs_images else images.boxes
    batch = next(load(BagBatches(bags, IMAGES, inputs, boxes, seed=0), 0, device=device))
    waits = None
    for _ in range(STEPS):
        torch.manual_seed(0)
        outcome, waits = _counted(lambda: stepper.take(batch, phase, taking_part=True), device)
    return outcome.losses, waits


def _images(labels: NDArray[np.int64]) -> TrainingImages:
    """Made-up pixels and boxes."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (IMAGES, 3, SIDE, SIDE)).astype(np.uint8))
    low = rng.uniform(0, 0.5, (IMAGES, BOXES, 2))
    found = np.concatenate([low, low + 0.4], axis=2).astype(np.float32)
    none = pa.nulls(IMAGES)
    sizes, counts = np.full((IMAGES, 2), SIDE, np.int32), rng.integers(1, BOXES + 1, IMAGES)
    boxes = Boxes(Scan(none, sizes, found, counts, none, none, np.ones((IMAGES, 5), np.float32)))

    def inputs(row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return pixels[row], *boxes(row)

    return TrainingImages(labels, inputs, boxes, views=lambda: [inputs] * 4)


def measure_speed(config: Config, device: str) -> list[Speed]:
    """Steps of `plain` on a whole network, beside a bare loop of timm in the same precision."""
    config = config.with_settings({"method": "plain", "model.freeze": "none", "model.pretrained": False})
    size, side = config.train.batch_size, config.model.imgsz
    labels = np.arange(size, dtype=np.int64) % CLASSES
    method = placed(build_method(config, labels, CLASSES), device)
    stepper, phase = Stepper(method, config.train, Compute(device, workers=0)), method.plan()[0]
    enter_phase(stepper.optimizer, phase)
    pixels = torch.randint(256, (size, 3, side, side)).to(torch.uint8)
    boxes, mask = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(size, 1, 1, 4), torch.ones(size, 1, 1, dtype=torch.bool)
    batch = BagBatch(torch.arange(size)[:, None], torch.from_numpy(labels), boxes, mask, pixels).to(device)
    method.train()
    somnet = _rate(lambda: stepper.take(batch, phase, taking_part=True), size, device)
    rows = [Speed(f"somnet, {config.model.name}", somnet, _megabytes(device))]

    model = placed(timm.create_model(config.model.name, num_classes=CLASSES), device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def bare() -> None:
        optimizer.zero_grad()
        with method.network.lowered(batch.images.device):
            logits = model(method.network.normalise(batch.images))
        torch.nn.functional.cross_entropy(logits.float(), batch.label).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return [*rows, Speed(f"bare timm, {config.model.name}", _rate(bare, size, device), _megabytes(device))]


def _rate(step: Callable[[], object], images: int, device: str) -> float:
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(3):  # the first ones choose their convolutions
        step()
    finish(device)
    began = time.monotonic()
    for _ in range(TIMED_STEPS):
        step()
    finish(device)
    return images * TIMED_STEPS / (time.monotonic() - began)


def _counted(work: Callable[[], T], device: str) -> tuple[T, int | None]:
    """What came of some work, and how often it waited for CUDA."""
    if torch.device(device).type != "cuda":
        return work(), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            result = work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return result, sum("synchroniz" in str(each.message) for each in caught)


def _megabytes(device: str) -> float | None:
    return torch.cuda.max_memory_allocated(device) / 1e6 if torch.device(device).type == "cuda" else None
