"""A run on disk, finished or interrupted, and what can be done with it."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from somnet.config import Config, load_config
from somnet.data.bags import BagBatches, Inputs, each_image_once, load
from somnet.data.decode import read_picture
from somnet.data.proposals import scan
from somnet.data.sources import open_source
from somnet.data.transforms import to_square
from somnet.dataset import FORWARD_IMAGES, Part, held_out_split, make_inputs, some
from somnet.errors import DataError, RunError, UnreadableImage
from somnet.evaluate import per_class, top_k
from somnet.methods.base import Method
from somnet.methods.registry import find_method
from somnet.nn.backbones import Network
from somnet.progress import track
from somnet.training.checkpoint import LAST, load_checkpoint

log = logging.getLogger("somnet")

CONFIG, DATA, SUMMARY = "config.toml", "data.json", "summary.json"


@dataclass(frozen=True)
class Evaluation:
    """Accuracy on held-out images."""

    top1: float
    top5: float
    n: int
    per_class: dict[str, float]


@dataclass(frozen=True)
class Prediction:
    """The classes of an image, most probable first; or why there are none."""

    file_name: str
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    unreadable_reason: str | None = None


class Run:
    """A finished or interrupted run on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / CONFIG).is_file():
            raise RunError(f"{self.path} is no run (it has no {CONFIG}): give the --out folder of somnet train")
        self.config = load_config(self.path / CONFIG)
        try:
            self.data = json.loads((self.path / DATA).read_text(encoding="utf-8"))
            self.classes: tuple[str, ...] = tuple(self.data["classes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self.path / DATA} cannot be read ({error}): train again with --overwrite") from None

    @cached_property
    def model(self) -> Network:
        """The trained CNN in evaluation mode: `model(model.prepare(pixels))` gives logits for uint8 pixels."""
        return self.method.network

    @cached_property
    def method(self) -> Method:
        """The trained method, with its memory if it has one."""
        tensors, _ = load_checkpoint(self.path / LAST)
        method = build_method(self.config, np.zeros(self.data["images"], np.int64), len(self.classes), pretrained=False)
        state = {name.removeprefix("method."): t for name, t in tensors.items() if name.startswith("method.")}
        try:
            method.load_state_dict(state)
        except RuntimeError as error:
            raise RunError(f"{self.path / LAST} does not fit its config ({error}): train again") from None
        return method.eval()

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        try:
            found = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise RunError(f"{self.path} is not finished: go on with somnet train --resume") from None
        return dict(found)

    def scores(self) -> pa.Table:
        """A row per training image: the content of issues.parquet."""
        try:
            return pq.read_table(self.path / "issues.parquet")
        except (OSError, pa.ArrowException):
            raise RunError(f"{self.path} has no scores yet: go on with somnet train --resume") from None

    def evaluate(self, data: Path | str, *, device: str = "auto", workers: int | None = None) -> Evaluation:
        """Accuracy on the test split of a data set, else on its val split, else on all its images."""
        index = open_source(Path(data))
        split = held_out_split(index)
        index = index.of_split(split) if split else index
        number = {name: i for i, name in enumerate(self.classes)}
        labels = np.array([number.get(index.classes[label], -1) if label >= 0 else -1 for label in index.labels()])
        if unknown := sorted({index.classes[i] for i in index.labels()[labels < 0] if i >= 0}):
            log.warning("left out: %d images of classes the model does not know: %s", (labels < 0).sum(), some(unknown))
        no_boxes = self.config.proposals.model_copy(update={"max_boxes": 0})
        scanned = scan(index, no_boxes, workers)
        rows = np.array([row for row in scanned.readable() if labels[row] >= 0], np.int64)
        if len(rows) == 0:
            raise DataError(f"{data} has no readable image of a class that the model knows: {', '.join(self.classes)}")
        part = Part(index.take(rows), scanned.take(rows))
        device = choose_device(device)
        model = self.model.to(device)
        inputs = make_inputs(part, model, self.config, device=device, workers=worker_count(workers))
        return measure(model, inputs, labels[rows], self.classes, device=device, workers=worker_count(workers))

    def predict(self, images: Sequence[Path | str], *, device: str = "auto", top: int = 5) -> Iterator[Prediction]:
        """Classes of image files, in their order; a bad file gives a prediction with a reason."""
        model = self.model.to(choose_device(device))
        with track("predicting", len(images)) as advance:
            for start in range(0, len(images), FORWARD_IMAGES):
                chunk = images[start : start + FORWARD_IMAGES]
                yield from self._predict_chunk(model, chunk, top)
                advance(len(chunk))

    def _predict_chunk(self, model: Network, images: Sequence[Path | str], top: int) -> list[Prediction]:
        side = self.config.model.imgsz
        pixels: dict[int, torch.Tensor] = {}
        reasons: dict[int, str] = {}
        for place, image in enumerate(images):
            try:
                pixels[place] = to_square(read_picture(str(image), at_least=side).image, side)
            except UnreadableImage as error:
                reasons[place] = str(error)
        rows: dict[int, tuple[list[float], list[int]]] = {}
        if pixels:
            with torch.no_grad():
                batch = torch.stack(list(pixels.values())).to(model.mean.device)
                best = model(model.prepare(batch)).softmax(dim=1).topk(min(top, len(self.classes)), dim=1)
            found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            rows = dict(zip(pixels, found, strict=True))
        return [
            Prediction(str(image), unreadable_reason=reasons[place])
            if place in reasons
            else Prediction(str(image), tuple(self.classes[i] for i in rows[place][1]), tuple(rows[place][0]))
            for place, image in enumerate(images)
        ]


def build_method(config: Config, labels: NDArray[np.int64], classes: int, pretrained: bool | None = None) -> Method:
    """A method with a fresh network, its random parts drawn from the seed alone."""
    model = config.model if pretrained is None else config.model.model_copy(update={"pretrained": pretrained})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = Network(model, classes)
        return find_method(config.method)(config, network, torch.from_numpy(labels), classes)


@torch.no_grad()
def measure(
    model: Network, inputs: Inputs, labels: NDArray[np.int64], classes: Sequence[str], *, device: str, workers: int
) -> Evaluation:
    """Accuracy of a network on labelled images."""
    model.eval()
    batches = BagBatches(each_image_once(labels), FORWARD_IMAGES, inputs, None, seed=None)
    bags = load(batches, loading_processes(model, workers))
    scores = torch.cat([model(bag.images.to(device)).cpu() for bag in bags if bag.images is not None]).numpy()
    top1, top5 = top_k(scores, labels, 1), top_k(scores, labels, 5)
    return Evaluation(top1, top5, len(labels), per_class(scores, labels, classes))


def loading_processes(model: Network, workers: int) -> int:
    """Cached maps are read faster than a process could hand them over."""
    return 0 if model.frozen_trunk else workers


def choose_device(device: str) -> str:
    """`auto` is the GPU if there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.device(device)
    except RuntimeError:
        raise RunError(f"there is no device '{device}': use cpu, cuda, cuda:1, ... or auto") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RunError("--device cuda, but torch finds no GPU here: use --device cpu, or see somnet doctor")
    return device


def worker_count(workers: int | None) -> int:
    """Data-loading processes: by default one a core, less two that the network keeps busy itself."""
    return max(0, (os.cpu_count() or 1) - 2) if workers is None else workers
