"""Every test has a cache of its own and the same draws, and none fails because the machine is busy."""

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.data.bags import BagBatches, Boxes, Inputs, draw_bags, each_image_once
from somnet.data.proposals import Scan
from somnet.methods.base import Method
from somnet.runs.run import build_method
from somnet.training.loop import Trainer, TrainingImages
from somnet.training.train import train

pytest_plugins = ["tests.suite"]

# The same examples at every run, so that a failure is there again; others with --hypothesis-profile random.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("somnet", settings.get_profile("random"), derandomize=True)
settings.load_profile("somnet")

torch.set_num_threads(1)  # threads only get in each other's way where the tensors are tiny
os.environ["OMP_NUM_THREADS"] = "1"  # the same for processes that tests start

TINY = {  # a run of a second
    "model.name": "test_resnet",
    "model.pretrained": False,
    "model.imgsz": 64,
    "proposals.max_boxes": 4,
    "train.epochs": 4,
    "train.batch_size": 6,
    "train.lr": 0.01,
    "somnet.init_share": 0.4,
    "somnet.init_lr": 1.0,
    "somnet.joint_lr": 0.5,
    "somnet.memory.side": 3,
    "somnet.memory.init_epochs": 2,
}
CLASSES = ("=birch", "ash", "oak, red")  # one of them a formula for a spreadsheet


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """What a test draws without a seed of its own does not depend on the tests before it."""
    torch.default_generator.manual_seed(0)
    np.random.seed(0)


@dataclass(frozen=True)
class Photos:
    """Makes small pictures: a bright patch in the colour of the class on noise."""

    def picture(self, label: int, number: int) -> Image.Image:
        rng = np.random.default_rng((label, number))
        pixels = rng.integers(0, 60, (64, 64, 3)).astype(np.uint8)  # (H, W, 3)
        pixels[10:40, 8 + number : 44 + number, label % 3] = 220
        return Image.fromarray(pixels)

    def fill(self, folder: Path, names: tuple[str, ...] = CLASSES, train: int = 6, test: int = 2) -> Path:
        """FOLDER/train|test/<class>/<number>.png."""
        for split, first, count in (("train", 0, train), ("test", train, test)):
            for label, name in enumerate(names):
                (folder / split / name).mkdir(parents=True)
                for number in range(first, first + count):
                    self.picture(label, number).save(folder / split / name / f"{number}.png")
        return folder

    def fingerprint(self, folder: Path) -> dict[str, str]:
        """Content of every file below a folder."""
        files = (file for file in folder.rglob("*") if file.is_file())
        return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="session")
def photos() -> Photos:
    return Photos()


@pytest.fixture(scope="session")
def data(photos: Photos, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound data set of 3 classes, 18 images to train and 6 to test. Nobody writes into it."""
    return photos.fill(tmp_path_factory.mktemp("data") / "web")


@dataclass(frozen=True)
class Tiny:
    """The settings of a run of a second, as a config or as flags."""

    def config(self, method: str = "somnet", **more: Any) -> Config:
        return Config().with_settings({**TINY, "method": method, **more})

    def flags(self) -> list[str]:
        values = {name: str(value).lower() for name, value in TINY.items()}
        return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="session")
def tiny() -> Tiny:
    return Tiny()


@pytest.fixture(scope="session")
def trained(data: Path, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the method somnet on the sound data set. Nobody writes into it."""
    base = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        return train(data, tiny.config(), out=base / "run", workers=0).path


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Outcome]]:
    """The command line in this process, which need not load torch again."""
    from somnet.cli.main import main

    log = logging.getLogger("somnet")
    handlers, level = list(log.handlers), log.level

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["somnet", *map(str, words)])
        capsys.readouterr()
        log.handlers[:] = handlers
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return Outcome(int(left.value.code or 0), printed.out, printed.err)

    yield call
    log.handlers[:] = handlers
    log.setLevel(level)


@dataclass(frozen=True)
class Toy:
    """A training set of random feature maps, without files: 3 classes of 5, 4 and 1 images."""

    config: Config
    method: Method
    labels: NDArray[np.int64]  # (n,)
    maps: Tensor  # (n, F', H, W)
    boxes: Boxes

    def inputs(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.maps[row], *self.boxes(row)

    def views(self) -> list[Inputs]:
        """The image, and its proposals as they might look at full size."""

        def proposal(number: int, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
            return self.maps[row].roll(number, dims=0) + number / 10, *self.boxes(row)

        return [self.inputs, *(partial(proposal, 1 + number) for number in range(self.config.views.proposals))]

    def images(self) -> TrainingImages:
        return TrainingImages(self.labels, self.inputs, self.boxes, views=self.views)

    def shown(self) -> Inputs:
        """What passes and inspections show the method."""
        return self.images().shown_to(self.method)

    def batch_of(self, phase: Phase) -> BagBatch:
        """All images in bags, as the loop gives them to a phase."""
        inputs = (
            self.images().regions(self.config.views.proposals) if phase.regions else self.images().drawn(phase.views)
        )
        batches = self.batches(phase.images_per_bag, phase.needs_images)
        batches.inputs = inputs
        return batches[0]

    def batches(self, images_per_bag: int, needs_images: bool = True) -> BagBatches:
        if images_per_bag == 1:
            bags = each_image_once(self.labels)
        else:
            bags = draw_bags(self.labels, images_per_bag, np.random.default_rng(0))
        return BagBatches(bags, 100, self.shown(), None if needs_images else self.boxes, seed=None)

    def bag_pass(self, images_per_bag: int) -> Iterator[BagBatch]:
        yield self.batches(images_per_bag)[0]

    def trainer(self, out: Path, evaluate: Callable[[], float | None] = lambda: None) -> Trainer:
        return Trainer(self.method, self.config, self.images(), out, evaluate=evaluate)


def make_toy(method: str = "somnet", **more: object) -> Toy:
    config = Tiny().config(method, **more)
    labels = np.array([0] * 5 + [1] * 4 + [2])
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, len(labels))
    low = rng.uniform(0, 0.5, (len(labels), 4, 2))
    found = np.concatenate([low, low + rng.uniform(0.2, 0.5, low.shape)], axis=2).astype(np.float32)
    found[np.arange(4) >= counts[:, None]] = 0
    keys, none = pa.array([bytes([row]) * 16 for row in range(len(labels))]), pa.nulls(len(labels))
    sizes, quality = np.full((len(labels), 2), 64, np.int32), np.ones((len(labels), 5), np.float32)
    scan = Scan(keys, sizes, found, counts, none, none, quality)
    made = build_method(config, labels, classes=3)
    noise = torch.randn(len(labels), *made.network.input_shape, generator=torch.Generator().manual_seed(0))
    return Toy(config, made, labels, noise + torch.from_numpy(labels)[:, None, None, None], Boxes(scan))


@pytest.fixture(scope="session")
def toy() -> Callable[..., Toy]:
    return make_toy
