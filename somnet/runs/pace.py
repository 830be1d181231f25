"""How fast this machine is at what a training is made of: small pieces of it, timed."""

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor

from somnet.config import Config
from somnet.data.decode import read_picture
from somnet.data.edgeboxes import edge_boxes
from somnet.data.index import Index
from somnet.data.transforms import Augment, to_square
from somnet.errors import UnreadableImage
from somnet.methods.logistic import fit
from somnet.nn.backbones import Network
from somnet.nn.engine import open_trunk
from somnet.system.transfer import finish

SAMPLE = 12  # images of the data whose reading is timed
LOAD_ASSUMED, CUT_ASSUMED, PROPOSE_ASSUMED = 0.012, 0.001, 0.04  # seconds per image of web size on one core
FITTED, MOST_FITTED, FIT_STRENGTH = 256, 50, 1e-2  # images and most classes of a made-up regression, and its C
HARDER = 3  # times as many iterations for features of photos


@dataclass(frozen=True)
class StepPace:
    """Of the network on this device: seconds per image, and what a step keeps for its backward pass. Of one core: fits
    of linear classifiers to its features.
    """

    prepare: float  # through a frozen trunk; 0 where there is none
    forward: float  # from prepared inputs to logits
    step: float  # forward and backward
    saved_bytes: int
    fit: float = 0.0  # seconds per image


@dataclass(frozen=True)
class ReadPace:
    """Of one core: seconds per image."""

    load: float  # decode and augment
    propose: float  # decode and find boxes
    decode: float = 0.0  # alone
    cut: float = 0.0  # a view of what is decoded
    measured: bool = True

    @staticmethod
    def assumed() -> "ReadPace":
        """What is usual for images of web size, where there are none to time."""
        return ReadPace(LOAD_ASSUMED, PROPOSE_ASSUMED, LOAD_ASSUMED - CUT_ASSUMED, CUT_ASSUMED, measured=False)


def measure_steps(network: Network, config: Config, device: str, classes: int) -> StepPace:
    """Time small steps of a copy of the network."""
    network = copy.deepcopy(network).train()
    few = min(16, config.train.batch_size)
    with torch.no_grad():
        prepared, prepare = _measure_trunk(network, few, device)
        forward = _seconds(lambda: network(prepared), device)
    step = _seconds(lambda: torch.autograd.backward(_learnt_output(network, prepared).sum()), device)
    saved, fitted = _saved_bytes(network, prepared[:2]) // 2, measure_fit(network.width, classes)
    return StepPace(prepare / few, forward / few, step / few, saved, fitted)


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
    paces = []
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
            decoded = time.monotonic()
            to_square(image, config.model.imgsz)
            cut = time.monotonic()
            Augment(config.model.imgsz)(image, boxes, mask, 0)
        except UnreadableImage:
            continue
        decode, augment = decoded - proposed, time.monotonic() - cut
        paces.append((decode + augment, proposed - began, decode, cut - decoded))
    return ReadPace(*np.median(paces, axis=0).tolist()) if paces else ReadPace.assumed()


def measure_fit(width: int, classes: int) -> float:
    """Seconds per image of a logistic regression on features, on one core: of made-up ones, which are easier."""
    shown = min(classes, MOST_FITTED)
    generator = np.random.default_rng(0)
    labels = np.arange(FITTED) % shown
    features = generator.normal(size=(shown, width))[labels] * 0.3 + generator.normal(size=(FITTED, width))
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        seconds = _seconds(lambda: fit(features.astype(np.float16), labels, shown, FIT_STRENGTH), "cpu")
    return HARDER * seconds / FITTED * classes / shown


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
