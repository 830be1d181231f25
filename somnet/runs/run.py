"""A run on disk, finished or interrupted, and what can be done with it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from somnet.config import Config, load_config, mistakes
from somnet.data.bags import BagBatches, Inputs, each_image_once, load
from somnet.data.dataset import FORWARD_IMAGES, Part, first_reasons, held_out_split, make_inputs, some, unreadable_files
from somnet.data.decode import read_picture
from somnet.data.proposals import scan
from somnet.data.sources import open_source
from somnet.data.transforms import to_square
from somnet.errors import DataError, RunError, UnreadableImage
from somnet.methods.base import Method, find_method
from somnet.nn.backbones import Network
from somnet.runs.checkpoint import load_checkpoint, restore_method
from somnet.runs.metrics import per_class, top_k
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute, choose_device
from somnet.system.files import parse_json
from somnet.system.folders import CONFIG, DATA, ISSUES, LAST, SUMMARY
from somnet.system.parallel import in_threads
from somnet.system.progress import track

log = logging.getLogger("somnet")


class _Data(BaseModel):
    """The content of data.json."""

    model_config = ConfigDict(strict=True, extra="allow")

    path: str
    classes: Annotated[list[str], Field(min_length=1)]
    images: Annotated[int, Field(ge=1, le=2**31)]
    fingerprint: str


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
    evidence: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """(H, W) what each place adds to the first class's logit, beyond what it adds to the average class."""
    heatmap: str | None = None  # file with a picture of the evidence


class Run:
    """A finished or interrupted run on disk."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / CONFIG).is_file():
            raise RunError(f"{self.path} is not a run (it has no {CONFIG}): give the --out folder of somnet train")
        self.config = load_config(self.path / CONFIG)
        try:
            content = parse_json((self.path / DATA).read_text(encoding="utf-8"))
            self.data = _Data.model_validate(content).model_dump()
        except ValidationError as error:
            raise RunError(f"{self.path / DATA} is damaged ({mistakes(error)}): train again with --overwrite") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / DATA} cannot be read ({error}): train again, with another --out") from None
        self.classes: tuple[str, ...] = tuple(self.data["classes"])

    @cached_property
    def model(self) -> Network:
        """The trained CNN in evaluation mode: `model(model.prepare(pixels))` gives logits for uint8 pixels."""
        return self.method.network

    @cached_property
    def method(self) -> Method:
        """The trained method, with its memory if it has one."""
        tensors, _ = load_checkpoint(self.path / LAST)
        labels = np.zeros(self.data["images"], np.int64)
        method = build_method(self.config, labels, len(self.classes), pretrained=False)
        try:
            restore_method(method, tensors)
        except ValueError as error:
            raise RunError(f"{self.path / LAST} does not match its config ({error}): train again") from None
        return method.eval()

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        try:
            summary = dict(parse_json((self.path / SUMMARY).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise RunError(f"{self.path} is not finished: continue with somnet train --resume") from None
        return summary

    def scores(self) -> pa.Table:
        """A row per training image: the content of issues.parquet."""
        try:
            return pq.read_table(self.path / ISSUES)
        except (OSError, pa.ArrowException):
            raise RunError(f"{self.path} has no scores yet: continue with somnet train --resume") from None

    def evaluate(self, data: Path | str, *, device: str = "auto", workers: int | None = None) -> Evaluation:
        """Accuracy on the test split of a data set, else on its val split, else on all its images."""
        keep_memory()
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
        if bad := unreadable_files(index, scanned):
            log.warning("left out: %d unreadable files%s", len(bad), first_reasons(bad))
        if len(rows) == 0:
            raise DataError(f"{data} has no readable image of a class that the model knows: {', '.join(self.classes)}")
        part = Part(index.take(rows), scanned.take(rows), np.full(len(rows), -1))
        compute = Compute(choose_device(device), workers)
        model = self.model.to(compute.device)
        inputs = make_inputs(part, model, self.config.model.imgsz, compute)
        return measure(model, inputs, labels[rows], self.classes, compute)

    def predict(
        self,
        images: Path | str | Sequence[Path | str],
        *,
        device: str = "auto",
        top: int = 5,
        batch_size: int = FORWARD_IMAGES,
        evidence: bool = False,
    ) -> Iterator[Prediction]:
        """Classes of an image file or of several, in their order; a bad file gives a prediction with a reason.

        With `evidence`, a prediction also says how much each place of the image speaks for its first class.
        """
        keep_memory()
        images = [images] if isinstance(images, Path | str) else images
        model = self.model.to(choose_device(device))
        decoded = in_threads(partial(_pixels, side=self.config.model.imgsz), images, ahead=2 * batch_size)
        with track("predicting", len(images)) as advance:
            for start in range(0, len(images), batch_size):
                names = [str(image) for image in images[start : start + batch_size]]
                yield from self._predict_batch(model, names, list(islice(decoded, len(names))), top, evidence)
                advance(len(names))

    @torch.no_grad()
    def _predict_batch(
        self, model: Network, names: list[str], decoded: list[Tensor | str], top: int, evidence: bool
    ) -> list[Prediction]:
        good = [what for what in decoded if isinstance(what, Tensor)]
        done = iter(self._classify(model, torch.stack(good), top, evidence) if good else ())
        return [
            Prediction(name, unreadable_reason=what) if isinstance(what, str) else replace(next(done), file_name=name)
            for name, what in zip(names, decoded, strict=True)
        ]

    def _classify(self, model: Network, pixels: Tensor, top: int, evidence: bool) -> Iterator[Prediction]:
        inputs = model.prepare(pixels.to(model.mean.device))
        cells = model.evidence(inputs) if evidence else None  # (I, C, H, W)
        logits = model(inputs) if cells is None else cells.mean(dim=(2, 3))  # (I, C)
        best = logits.softmax(dim=1).topk(min(top, len(self.classes)), dim=1)
        for row, (shares, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            heat = None if cells is None else (cells[row, places[0]] - cells[row].mean(dim=0)).cpu().numpy()  # (H, W)
            yield Prediction("", tuple(self.classes[i] for i in places), tuple(shares), evidence=heat)


def _pixels(image: Path | str, side: int) -> Tensor | str:
    """The network's view of a file, or why there is none."""
    try:
        return to_square(read_picture(str(image), at_least=side).image, side)
    except UnreadableImage as error:
        return str(error)


def build_method(config: Config, labels: NDArray[np.int64], classes: int, pretrained: bool | None = None) -> Method:
    """A method with a fresh network, its random weights drawn from the seed alone."""
    model = config.model if pretrained is None else config.model.model_copy(update={"pretrained": pretrained})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = Network(model, classes)
        return find_method(config.method)(config, network, torch.from_numpy(labels), classes)


@torch.no_grad()
def measure(
    model: Network, inputs: Inputs, labels: NDArray[np.int64], classes: Sequence[str], compute: Compute
) -> Evaluation:
    """Accuracy of a network on labelled images, of which each rank sees its share."""
    model.eval()
    mine = each_image_once(labels, compute.ranks.share(len(labels)))
    workers = compute.loaders_of(cached=model.frozen_trunk)
    batches = load(BagBatches(mine, FORWARD_IMAGES, inputs, None, seed=None), workers)
    logits = (model(batch.images.to(compute.device)).cpu() for batch in batches)
    scores = compute.ranks.gather(torch.cat([torch.zeros(0, len(classes)), *logits])).numpy()  # (n, C)
    top1, top5 = top_k(scores, labels, 1), top_k(scores, labels, 5)
    return Evaluation(top1, top5, len(labels), per_class(scores, labels, classes))
