"""Does each method do its job? Small tasks on which plain training suffers from noise, and each rival less so.

Images are feature maps made of class prototypes and noise, so a run takes a second. Wrong labels: 40 % of the labels
are flipped; plain training learns them by heart. Clutter: the thing fills a quarter of the map, a proposal frames it,
foreign things fill the rest; the images of the test show the thing alone.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.data.bags import Boxes
from somnet.data.proposals import Scan
from somnet.run import build_method
from somnet.training.loop import Trainer

AGAINST_FLIPS = (
    "confident",
    "curriculumnet",
    "divide-mix",
    "drae",
    "elr",
    "mlnt",
    "mopro",
    "pencil",
    "sl",
    "sukhbaatar",
    "tanaka",
)
AGAINST_CLUTTER = ("admil", "attend-groups")
CLASSES, WIDTH, SIDE = 5, 192, 4  # of the maps that test_resnet's last stage takes
TRAIN, TEST = 300, 500
SETTINGS = {
    "model.name": "test_resnet",
    "model.pretrained": False,
    "model.imgsz": 64,
    "train.epochs": 16,
    "train.lr": 0.012,
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
        Trainer(made, config, self.given, self.inputs, self.boxes, out).run()
        with torch.no_grad():
            predicted = made.eval().predict(self.test_maps).argmax(dim=1)
        return float((predicted == self.test_labels).float().mean())


def images(labels: NDArray[np.int64], prototypes: NDArray[np.float64], rng: np.random.Generator) -> Tensor:
    """Maps that show a prototype everywhere, with a look of its own and noise."""
    look = prototypes[labels] + 0.5 * rng.normal(size=(len(labels), WIDTH))
    maps = look[:, :, None, None] + 0.7 * rng.normal(size=(len(labels), WIDTH, SIDE, SIDE))
    return torch.from_numpy(maps.astype(np.float32))


def scan_of(boxes: NDArray[np.float32]) -> Boxes:
    """Boxes (n, P, 4) as if proposals had found them."""
    count = len(boxes)
    keys: list[bytes | None] = [number.to_bytes(16) for number in range(count)]
    counts = np.full(count, boxes.shape[1])
    return Boxes(Scan(keys, np.full((count, 2), 64, np.int32), boxes, counts, [None] * count))


@pytest.fixture(scope="module")
def flips() -> Task:
    rng = np.random.default_rng(2)
    prototypes = 0.25 * rng.normal(size=(CLASSES, WIDTH))
    true, test = np.arange(TRAIN) % CLASSES, np.arange(TEST) % CLASSES
    wrong = rng.random(TRAIN) < 0.4
    given = np.where(wrong, (true + rng.integers(1, CLASSES, TRAIN)) % CLASSES, true)
    no_boxes = scan_of(np.zeros((TRAIN, 0, 4), np.float32))
    return Task(images(true, prototypes, rng), given, no_boxes, images(test, prototypes, rng), torch.from_numpy(test))


@pytest.fixture(scope="module")
def clutter() -> Task:
    rng = np.random.default_rng(0)
    prototypes = 0.25 * rng.normal(size=(CLASSES, WIDTH))
    foreign = 0.5 * rng.normal(size=(CLASSES, WIDTH))
    true, test = np.arange(TRAIN) % CLASSES, np.arange(TEST) % CLASSES
    things, rest = images(true, prototypes, rng), images(rng.integers(0, CLASSES, TRAIN), foreign, rng)
    corner = rng.integers(0, 2, (TRAIN, 2))  # column and row of the quarter that shows the thing
    half = torch.arange(SIDE) // (SIDE // 2)  # (SIDE,)
    column, row = torch.from_numpy(corner).T[:, :, None]
    inside = (half == row)[:, None, :, None] & (half == column)[:, None, None, :]  # (n, 1, H, W)
    quarters = np.array([[x, y, x + 0.5, y + 0.5] for x in (0, 0.5) for y in (0, 0.5)], np.float32)
    return Task(
        torch.where(inside, things, rest),
        true,
        scan_of(np.repeat(quarters[None], TRAIN, axis=0)),
        images(test, prototypes, rng),
        torch.from_numpy(test),
    )


@pytest.fixture(scope="module")
def plain_with_flips(flips: Task, tmp_path_factory: pytest.TempPathFactory) -> float:
    return flips.accuracy("plain", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def plain_with_clutter(clutter: Task, tmp_path_factory: pytest.TempPathFactory) -> float:
    return clutter.accuracy("plain", tmp_path_factory.mktemp("plain"))
