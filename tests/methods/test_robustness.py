"""Does each method do its job? Small tasks on which plain training suffers from noise, and each other method less so.

Images are feature maps made of class prototypes and noise, so a run takes a second or two. Flips: 40 % of the labels
are wrong, and plain training memorises them. Clutter: the object fills a quarter of the map, a proposal frames
it, loud foreign objects fill the rest; the images of the test show the object alone.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.data.bags import Boxes
from somnet.data.proposals import Scan
from somnet.runs.run import build_method
from somnet.training.loop import Trainer, TrainingImages

pytestmark = pytest.mark.slow

AGAINST_FLIPS = (
    "confident",
    "curriculumnet",
    "divide-mix",
    "drae",
    "elr",
    "linear-probe",
    "mlnt",
    "mopro",
    "pencil",
    "sl",
    "ssr",
    "sukhbaatar",
    "tanaka",
    "wann",
)
AGAINST_CLUTTER = ("admil", "attend-groups")
MARGIN = 0.01  # by which a method must be better than plain training
CLASSES, WIDTH, SIDE = 5, 192, 4  # the maps that test_resnet's last stage takes are (WIDTH, SIDE, SIDE)
TEST = 500
SETTINGS = {
    "model.name": "test_resnet",
    "model.pretrained": False,
    "model.imgsz": 64,
    "train.epochs": 12,
    "train.batch_size": 16,
    "train.lr": 0.012,
    "train.classifier_decay": 1e-4,  # nothing but the method keeps wrong labels off
}


@dataclass(frozen=True)
class Task:
    """Images to train on with their given labels, and images to test."""

    maps: Tensor  # (n, F', H, W)
    given: NDArray[np.int64]  # (n,)
    boxes: Boxes
    test_maps: Tensor  # (m, F', H, W)
    test_labels: Tensor  # (m,)

    def inputs(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.maps[row], *self.boxes(row)

    def accuracy(self, method: str, out: Path) -> float:
        """Of a network that the method has trained, at the end."""
        config = Config(seed=1).with_settings({**SETTINGS, "method": method})
        made = build_method(config, self.given, CLASSES)
        Trainer(made, config, TrainingImages(self.given, self.inputs, self.boxes), out).run()
        with torch.no_grad():
            predicted = made.eval().predict(self.test_maps).argmax(dim=1)
        return float((predicted == self.test_labels).float().mean())


def looks(labels: NDArray[np.int64], prototypes: NDArray[np.float64], rng: np.random.Generator) -> Tensor:
    """Maps that show a prototype everywhere, each with a look of its own and noise."""
    look = prototypes[labels] + 0.5 * rng.normal(size=(len(labels), WIDTH))
    maps = look[:, :, None, None] + 0.7 * rng.normal(size=(len(labels), WIDTH, SIDE, SIDE))
    return torch.from_numpy(maps.astype(np.float32))


def proposals(boxes: list[tuple[float, float, float, float]], count: int) -> Boxes:
    """The same boxes in each of `count` images."""
    found = np.tile(np.array(boxes, np.float32).reshape(1, -1, 4), (count, 1, 1))  # (n, P, 4)
    keys, none = pa.array([number.to_bytes(16) for number in range(count)]), pa.nulls(count)
    sizes, quality = np.full((count, 2), 64, np.int32), np.ones((count, 5), np.float32)
    return Boxes(Scan(keys, sizes, found, np.full(count, len(boxes)), none, none, quality))


def flipped_task(share: float) -> Task:
    rng, count = np.random.default_rng(2), 300
    prototypes = 0.25 * rng.normal(size=(CLASSES, WIDTH))
    true, test = np.arange(count) % CLASSES, np.arange(TEST) % CLASSES
    wrong = rng.random(count) < share
    given = np.where(wrong, (true + rng.integers(1, CLASSES, count)) % CLASSES, true)
    maps, test_maps = looks(true, prototypes, rng), looks(test, prototypes, rng)
    return Task(maps, given, proposals([], count), test_maps, torch.from_numpy(test))


def cluttered_task() -> Task:
    rng, count, kinds = np.random.default_rng(0), 200, 10
    prototypes = 0.2 * rng.normal(size=(CLASSES, WIDTH))
    foreign = 1.0 * rng.normal(size=(kinds, WIDTH))
    true, test = np.arange(count) % CLASSES, np.arange(TEST) % CLASSES
    objects, clutter = looks(true, prototypes, rng), looks(rng.integers(0, kinds, count), foreign, rng)
    column, row = torch.from_numpy(rng.integers(0, 2, (2, count, 1)))  # (n, 1) which quarter shows the object
    half = torch.arange(SIDE) * 2 // SIDE  # (SIDE,) 0 for the first half, 1 for the second
    inside = (half == row)[:, None, :, None] & (half == column)[:, None, None, :]  # (n, 1, H, W)
    quarters = [(x, y, x + 0.5, y + 0.5) for x in (0.0, 0.5) for y in (0.0, 0.5)]
    maps, test_maps = torch.where(inside, objects, clutter), looks(test, prototypes, rng)
    return Task(maps, true, proposals(quarters, count), test_maps, torch.from_numpy(test))


@pytest.fixture(scope="module")
def plain_with_flips(tmp_path_factory: pytest.TempPathFactory) -> float:
    return flipped_task(0.4).accuracy("plain", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def plain_with_clutter(tmp_path_factory: pytest.TempPathFactory) -> float:
    return cluttered_task().accuracy("plain", tmp_path_factory.mktemp("plain"))


def test_plain_training_suffers_from_flips(plain_with_flips: float, tmp_path: Path) -> None:
    assert plain_with_flips < flipped_task(0.0).accuracy("plain", tmp_path) - 0.15


@pytest.mark.parametrize("method", AGAINST_FLIPS)
def test_flips_harm_it_less(method: str, plain_with_flips: float, tmp_path: Path) -> None:
    assert flipped_task(0.4).accuracy(method, tmp_path) > plain_with_flips + MARGIN


@pytest.mark.parametrize("method", AGAINST_CLUTTER)
def test_clutter_harms_it_less(method: str, plain_with_clutter: float, tmp_path: Path) -> None:
    assert cluttered_task().accuracy(method, tmp_path) > plain_with_clutter + MARGIN
