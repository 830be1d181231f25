"""A run on disk, finished or interrupted, and what can be done with its network."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from somnet.config import Config
from somnet.data.bags import BagBatches, Inputs, each_image_once
from somnet.data.dataset import (
    FORWARD_IMAGES,
    Part,
    first_reasons,
    held_out_split,
    make_inputs,
    unreadable_count,
    unreadable_files,
    warn_of_folders,
)
from somnet.data.embeddings import Embeddings, read_embeddings
from somnet.data.index import Index
from somnet.data.loading import load
from somnet.data.proposals import scan
from somnet.data.sources import open_source
from somnet.errors import DataError, RunError
from somnet.methods.base import Method, find_method
from somnet.nn.backbones import Network
from somnet.nn.engine import open_trunk, write_graph
from somnet.nn.vectors import make_network
from somnet.runs.checkpoint import load_checkpoint, restore_method
from somnet.runs.data_changes import trained_keys
from somnet.runs.embedding import embed
from somnet.runs.limits import check_network
from somnet.runs.metrics import per_class, top_k
from somnet.runs.network_graph import keep_network, made_up_images, open_network
from somnet.runs.notebook import html_table
from somnet.runs.prediction import (
    IMAGES_AT_ONCE,
    Classifier,
    Images,
    Logits,
    Prediction,
    best_classes,
    classifier,
    predicted,
)
from somnet.runs.run_folder import RunFolder
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute, choose_device
from somnet.system.files import display_name, some
from somnet.system.folders import LAST, SUMMARY

log = logging.getLogger("somnet")


@dataclass(frozen=True)
class WrongImage:
    """A held-out image whose most probable class is not its label."""

    file_name: str
    label: str
    predicted_label: str
    probability: float


@dataclass(frozen=True)
class HeldOut:
    """What is known of held-out images."""

    labels: NDArray[np.int64]  # (n,)
    names: Sequence[bytes]  # (n,) of their files
    classes: Sequence[str]


@dataclass(frozen=True)
class Evaluation:
    """Accuracy on held-out images."""

    top1: float
    top5: float
    n: int
    per_class: dict[str, float]
    classes: tuple[str, ...] = ()
    matrix: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64), compare=False, repr=False)
    """(C, C) images of a label, by rows, that are taken for a class, by columns."""
    wrong: tuple[WrongImage, ...] = field(
        default=(), repr=False
    )  # where the files are known; the surest mistakes first

    def confusions(self) -> list[tuple[str, str, int]]:
        """Label, the class that it is taken for, and how many images, the most frequent first."""
        pairs = np.argwhere(self.matrix * (1 - np.eye(len(self.classes), dtype=np.int64)))
        found = [(self.classes[i], self.classes[j], int(self.matrix[i, j])) for i, j in pairs.tolist()]
        return sorted(found, key=lambda pair: -pair[2])

    def _repr_html_(self) -> str:
        title = f"top-1 {100 * self.top1:.2f} %, top-5 {100 * self.top5:.2f} %, {self.n} images"
        rows = [(name, f"{100 * accuracy:.2f}") for name, accuracy in self.per_class.items()]
        return html_table(title, ("class", "top-1 %"), rows)


class Run(RunFolder):
    """A finished or interrupted run on disk, and its network."""

    def __repr__(self) -> str:
        state = "finished" if (self.path / SUMMARY).is_file() else "not finished"
        what = f"{self.config.method} with {self.config.model.name}, {len(self.classes)} classes"
        return f"Run({str(self.path)!r}: {what}, {self.data['images']} images, {state})"

    def _repr_html_(self) -> str:
        about = {
            "data": self.data["path"],
            "images": self.data["images"],
            "classes": some(list(self.classes)),
            "method": self.config.method,
            "model": self.config.model.name,
        }
        top1 = self.summary.get("test", {}).get("top1") if (self.path / SUMMARY).is_file() else None
        if top1 is not None:  # there were images to test
            about["accuracy"] = f"{100 * top1:.2f} %"
        return html_table(f"Run {self.path}", ("", ""), about.items())

    @cached_property
    def model(self) -> Network:
        """The trained CNN in evaluation mode: `model(model.prepare(pixels))` gives logits for uint8 pixels."""
        return self.method.network

    @cached_property
    def method(self) -> Method:
        """The trained method, with its memory if it has one."""
        check_network(self.config, len(self.classes), self.path / LAST)
        tensors, _ = load_checkpoint(self.path / LAST)
        labels = np.zeros(self.data["images"], np.int64)
        method = build_method(self.config, labels, len(self.classes), pretrained=False)
        try:
            restore_method(method, tensors)
        except ValueError as error:
            self.refuse_rewritten()
            raise RunError(f"{self.path / LAST} does not match its config ({error}): train again") from None
        self.refuse_rewritten()  # the weights may be those of another run by now
        return method.eval()

    def evaluate(
        self,
        data: Path | str,
        *,
        embeddings: Path | str | None = None,
        device: str = "auto",
        workers: int | None = None,
        follow_links: bool = False,
    ) -> Evaluation:
        """Accuracy on the test split of a data set, else on its val split, else on all its images.

        A run that was trained on vectors of the images needs those of `data`; by default they are in the same file.
        """
        keep_memory()
        self.warn_of_half()
        index = open_source(Path(data), follow_links=follow_links or self.config.follow_links)
        warn_of_folders(index)
        given = self._given_vectors(index, embeddings)
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
            log.warning("left out: %s%s", unreadable_count(len(bad)), first_reasons(bad))
        if len(rows) == 0:
            raise DataError(f"{data} has no readable image of a class that the model knows: {', '.join(self.classes)}")
        trained_on = set((trained_keys(self.path) or {}).values())
        if known := sum(key in trained_on for key in scanned.keys.take(pa.array(rows)).to_pylist()):
            log.warning("%d of %d images were trained on: the accuracy says little about others", known, len(rows))
        own = index.take(rows)
        part = Part(own, scanned.take(rows), np.full(len(rows), -1), None if given is None else given.of(own))
        compute = Compute(choose_device(device), workers)
        model = self.model.to(compute.device)
        inputs = make_inputs(part, model, self.config.model.imgsz, compute)
        return measure(model, inputs, HeldOut(labels[rows], part.index.column("file_name"), self.classes), compute)

    def _given_vectors(self, index: Index, embeddings: Path | str | None) -> Embeddings | None:
        """Vectors of these images, if the run was trained on such."""
        if self.config.model.embeddings:
            return read_embeddings(Path(embeddings or self.config.model.embeddings), index)
        if embeddings:
            raise RunError(f"{self.path} has a network, and was not trained on vectors: leave these out")
        return None

    def embeddings(
        self, data: Path | str | None = None, *, device: str = "auto", workers: int | None = None
    ) -> pa.Table:
        """A row per image of the run's data, or of others: file_name, split, label, and its vector in the network."""
        keep_memory()
        where = Path(self.data["path"] if data is None else data)
        return embed(where, self.model, self.config, Compute(choose_device(device), workers))

    def predict(
        self,
        images: Images,
        *,
        device: str = "auto",
        top: int = 5,
        batch_size: int = IMAGES_AT_ONCE,
        evidence: bool = False,
    ) -> Iterator[Prediction]:
        """Classes of an image file or of several, in their order; a bad file gives a prediction with a reason.

        With `evidence`, a prediction also says how much each place of the image speaks for its first class.
        """
        keep_memory()
        self.warn_of_half()
        device = choose_device(device)
        logits = None if evidence or device != "cpu" else self._graph
        classify = logits and classifier(logits, self.classes, top)
        classify = classify or self._in_torch(device, top, evidence=evidence)
        yield from predicted(images, classify, self.config.model.imgsz, batch_size)

    @cached_property
    def _graph(self) -> Logits | None:
        """The network in onnxruntime, written now if the cache lacks it; None if it cannot be."""
        if (found := open_network(self)) is None and self.model.reads_images:
            model, side = self.model.cpu(), self.config.model.imgsz
            pixels = torch.from_numpy(made_up_images(side))
            with torch.no_grad(), contextlib.suppress(Exception):  # of many kinds; torch can always do it
                whole = FromPixels(model).eval()
                keep_network(self, write_graph(whole, pixels[:1]), whole(pixels).numpy())
                found = open_network(self)
        return found

    def _in_torch(self, device: str, top: int, *, evidence: bool) -> Classifier:
        model = self.model.to(device)
        trunk = open_trunk(model)

        @torch.no_grad()
        def classify(pixels: NDArray[np.uint8]) -> Iterator[Prediction]:
            inputs = trunk.maps(torch.from_numpy(pixels).to(device))
            cells = model.evidence(inputs) if evidence else None  # (I, C, H, W)
            logits = model(inputs) if cells is None else cells.mean(dim=(2, 3))  # (I, C)
            for row, found in enumerate(best_classes(logits.cpu().numpy(), self.classes, top)):
                heat = None if cells is None else cells[row, logits[row].argmax()] - cells[row].mean(dim=0)  # (H, W)
                yield found if heat is None else replace(found, evidence=heat.cpu().numpy())

        return classify


class FromPixels(nn.Module):
    """uint8 pixels (I, 3, H, W) to logits (I, C). The normalisation is inside, where nobody can get it wrong."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network(self.network.prepare(pixels))  # type: ignore[no-any-return]


def build_method(config: Config, labels: NDArray[np.int64], classes: int, pretrained: bool | None = None) -> Method:
    """A method with a fresh network, its random weights drawn from the seed alone."""
    model = config.model if pretrained is None else config.model.model_copy(update={"pretrained": pretrained})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = make_network(model, classes)
        return find_method(config.method)(config, network, torch.from_numpy(labels), classes)


def measure(model: Network, inputs: Inputs, held_out: HeldOut, compute: Compute) -> Evaluation:
    """Accuracy of a network on held-out images, of which each rank sees its share."""
    labels, classes = held_out.labels, held_out.classes
    scores = class_scores(model, inputs, labels, compute)
    result = accuracy_of(scores, labels, classes)
    return replace(result, wrong=_wrong_images(scores, labels, classes, held_out.names))


@torch.no_grad()
def class_scores(model: Network, inputs: Inputs, labels: NDArray[np.int64], compute: Compute) -> NDArray[np.float32]:
    """Logits (n, C) of labelled images, of which each rank sees its share."""
    model.eval()
    mine = each_image_once(labels, compute.ranks.share(len(labels)))
    workers = compute.loaders_of(cached=model.frozen_trunk)
    batches = BagBatches(mine, FORWARD_IMAGES, inputs, None, seed=None)
    logits = (model(batch.images).cpu() for batch in load(batches, workers, device=compute.device))
    classes = model.classifier.out_features
    return np.asarray(compute.ranks.gather(torch.cat([torch.zeros(0, classes), *logits])).numpy())


def accuracy_of(scores: NDArray[np.float32], labels: NDArray[np.int64], classes: Sequence[str]) -> Evaluation:
    """The accuracy of logits (n, C)."""
    top1, top5 = top_k(scores, labels, 1), top_k(scores, labels, 5)
    pairs = labels * len(classes) + scores.argmax(axis=1)  # (n,)
    matrix = np.bincount(pairs, minlength=len(classes) ** 2).reshape(len(classes), len(classes))
    return Evaluation(top1, top5, len(labels), per_class(scores, labels, classes), tuple(classes), matrix)


def _wrong_images(
    scores: NDArray[np.float32], labels: NDArray[np.int64], classes: Sequence[str], names: Sequence[bytes]
) -> tuple[WrongImage, ...]:
    best = scores.argmax(axis=1)
    shares = torch.from_numpy(scores).softmax(dim=1).amax(dim=1).tolist()
    wrong = sorted(np.flatnonzero(best != labels).tolist(), key=lambda row: -shares[row])
    return tuple(
        WrongImage(display_name(names[row]), classes[labels[row]], classes[best[row]], shares[row]) for row in wrong
    )
