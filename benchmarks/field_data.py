"""The photos of benchmarks/field.py: where they lie, and what must be unpacked or put together before they can be used.

ROOT holds `clothing10/` (train and test folders of 10 garments), `clothing_open/` (foreign.csv and photos of other
garments, labelled as what a search would take them for), `scenes/` (pictures of anything else),
`cifar10n/data/*.parquet` (images as bytes with the columns label, label_random1, label_aggregate, true_label),
`plantdoc/` (train and test) and `crawls/` (see judged_crawls/README.md).
"""

import csv
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from somnet.config import Config, load_config
from somnet.data.bags import BagBatches, each_image_once
from somnet.data.dataset import FORWARD_IMAGES, Part, open_dataset, region_inputs
from somnet.data.loading import load
from somnet.data.noise import NoiseRecipe, parse_noise, write_noisy
from somnet.methods.features import region_features
from somnet.methods.label_evidence import RegionFeatures, join_regions
from somnet.nn.backbones import Network
from somnet.system.compute import Compute
from somnet.system.files import parse_json

HUMAN_LABELS = {"9": "label_aggregate", "17": "label_random1", "40": "label"}  # by how many percent are wrong
CIFAR_TRAIN = 4_000  # of its 10,000 training images, so that a run takes as long as on the other data
COLUMNS = ("file_name", "label", "split", "true_label")
VERDICTS = Path(__file__).parent / "judged_crawls"
JUDGED = (  # crawls
    *("objects", "materials", "sports", "roadside", "tools", "meals", "landmarks", "pasta"),
    *("foods", "plants", "things", "fruits"),
    *("orchard", "recycling", "desk", "views"),
)
TESTED = ("produce", "instruments")  # crawls with clean photos to test on
DEBATABLE = "debatable"  # the true label of an image that no figure counts


@dataclass(frozen=True)
class FieldSet:
    """A data set of the field."""

    name: str
    source: Callable[[Path, Path], Path]  # from ROOT and a folder for what must be made
    noise: str = ""  # {scenes} stands for the folder of scenes
    imgsz: int = 224
    clutter: bool = False  # whether things are small among clutter
    clean: bool = False  # whether there is little noise

    def recipe(self, root: Path) -> NoiseRecipe | None:
        """The noise that is made, if any."""
        return parse_noise(self.noise.format(scenes=root / "scenes")) if self.noise else None

    def training_images(self, root: Path, out: Path, seed: int) -> tuple[Config, Part]:
        """The training images of a seed, made noisy under `out` once, and the config to see them by."""
        source, recipe = self.source(root, out / "sources"), self.recipe(root)
        if recipe is not None:
            noisy = out / "data" / f"{self.name}-{seed}"
            if not noisy.exists():
                write_noisy(source, noisy, recipe, seed=seed)
            source = noisy
        config = load_config(flags={"model.imgsz": self.imgsz, "seed": seed, "method": "plain"})
        return config, open_dataset(source, config, Compute()).train


def right_labels(part: Part) -> NDArray[np.bool_]:
    """Whether each label (n,) is right; where no truth is known it is."""
    given = (part.index.classes[label] for label in part.labels)
    return np.array([true is None or true == label for true, label in zip(true_labels(part), given, strict=True)])


def true_labels(part: Part) -> list[str | None]:
    """The class that each image shows, None where that is not known to differ from its label."""
    return list(part.index.table["true_label"].to_pylist())


def all_regions(part: Part, network: Network, config: Config) -> RegionFeatures:
    """Features of the image and its first proposals, of all images."""
    inputs = region_inputs(part, network, config, Compute())
    batches = BagBatches(each_image_once(part.labels), FORWARD_IMAGES, inputs, None, seed=None)
    with torch.no_grad():
        return join_regions([some for _, some in region_features(network, lambda _: load(batches, workers=0))])


def clothing(root: Path, _: Path) -> Path:
    """10 garments, rightly labelled."""
    return root / "clothing10"


def near_classes(root: Path, made: Path) -> Path:
    """The same with 360 photos of other garments among them."""
    folder = made / "near-classes"
    if not (folder / "metadata.csv").is_file():
        rows = [
            (f"{split}/{kind.name}/{file.name}", kind.name, split, kind.name)
            for split in ("train", "test")
            for kind in sorted((root / "clothing10" / split).iterdir())
            for file in sorted(kind.iterdir())
        ]
        for name, *_ in rows:
            _copy(root / "clothing10" / name, folder / name)
        with (root / "clothing_open" / "foreign.csv").open() as table:
            foreign = [tuple(row[column] for column in COLUMNS) for row in csv.DictReader(table)]
        for name, *_ in foreign:
            _copy(root / "clothing_open" / name, folder / name)
        _write(folder / "metadata.csv", [*rows, *foreign])
    return folder


PICTURES = (".jpg", ".jpeg", ".png")
FOREIGN = (0.02, 0.3)  # of a class, the least and the largest share of foreign pictures


def foreign(root: Path, made: Path) -> Path:
    """10 garments with pictures of plants and shelves among them, in some classes few and in some many."""
    folder = made / "foreign"
    if not (folder / "metadata.csv").is_file():
        rng = np.random.default_rng(0)
        scenes = sorted(file for file in (root / "scenes").rglob("*") if file.suffix.lower() in PICTURES)
        plants = [sorted(kind.iterdir()) for kind in sorted((root / "plantdoc" / "train").iterdir())]
        rows: list[tuple[str, ...]] = []
        for split in ("train", "test"):
            for kind in sorted((root / "clothing10" / split).iterdir()):
                files = sorted(kind.iterdir())
                chosen = [(file, kind.name) for file in files]
                if split == "train":
                    usual = plants[rng.integers(len(plants))]  # a search finds the same wrong thing again and again
                    pools = (scenes, usual, plants[rng.integers(len(plants))])
                    count = int(rng.uniform(*FOREIGN) * len(files))
                    chosen += [(pools[k % 3][rng.integers(len(pools[k % 3]))], "foreign") for k in range(count)]
                for number, (file, true) in enumerate(chosen):
                    name = f"{split}/{kind.name}/{number:04d}{file.suffix.lower()}"
                    _copy(file, folder / name)
                    rows.append((name, kind.name, split, true))
        _write(folder / "metadata.csv", rows)
    return folder


def cifar(percent: str) -> Callable[[Path, Path], Path]:
    """CIFAR-10 with what people have labelled, so many percent of it wrongly."""

    def source(root: Path, made: Path) -> Path:
        folder = made / f"cifar10n-{percent}"
        if not (folder / "metadata.csv").is_file():
            _unpack(root / "cifar10n" / "data", folder, HUMAN_LABELS[percent])
        return folder

    return source


def plantdoc(root: Path, _: Path) -> Path:
    """Leaves as found on the web; nobody knows which labels are wrong."""
    return root / "plantdoc"


def crawl(name: str) -> Callable[[Path, Path], Path]:
    """What a search for words brought, judged by eye."""

    def source(root: Path, made: Path) -> Path:
        folder = made / f"crawl-{name}"
        if not (folder / "metadata.csv").is_file():
            true = {"noise": "none", "loose": DEBATABLE}
            with (VERDICTS / f"{name}.csv").open(newline="", encoding="utf-8") as table:
                rows: list[tuple[str, ...]] = [
                    (row["file_name"], row["label"], "train", true.get(row["verdict"], row["label"]))
                    for row in csv.DictReader(table)
                ]
            for file in sorted((root / "crawls" / name / "test").glob("*/*")):
                kind = file.parent.name
                rows.append((f"test/{kind}/{file.name}", kind, "test", kind))
            for file_name, *_ in rows:
                _copy(root / "crawls" / name / file_name, folder / file_name)
            _write(folder / "metadata.csv", rows)
        return folder

    return source


FIELD = (
    FieldSet("clean", clothing, clean=True),
    FieldSet("flips-10", clothing, "flip=0.1", clean=True),
    FieldSet("flips-40", clothing, "flip=0.4"),
    FieldSet("swaps-30", clothing, "asymmetric=0.3"),
    FieldSet("pasted", clothing, "paste={scenes}", clutter=True),
    FieldSet("pasted-flips", clothing, "flip=0.4,paste={scenes}", clutter=True),
    FieldSet("pasted-open", clothing, "flip=0.2,open=0.2,paste={scenes}", clutter=True),
    FieldSet("pasted-test", clothing, "flip=0.4,paste={scenes},paste_test=1", clutter=True),
    FieldSet("near-classes", near_classes),
    FieldSet("foreign", foreign),
    FieldSet("cifar-9", cifar("9"), imgsz=96, clean=True),
    FieldSet("cifar-17", cifar("17"), imgsz=96),
    FieldSet("cifar-40", cifar("40"), imgsz=96),
    FieldSet("plantdoc", plantdoc, clean=True),
    *(FieldSet(f"crawl-{name}", crawl(name)) for name in TESTED),
)
CRAWLS = tuple(FieldSet(f"crawl-{name}", crawl(name)) for name in (*JUDGED, *TESTED))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _unpack(parquet: Path, folder: Path, column: str) -> None:
    rows: list[tuple[str, ...]] = []
    for split in ("train", "test"):
        tables = [pq.read_table(file) for file in sorted(parquet.glob(f"{split}-*.parquet"))]
        features = parse_json(tables[0].schema.metadata[b"huggingface"].decode())["info"]["features"]
        names = features["label"]["names"]
        images = [image for table in tables for image in table["image"].to_pylist()]
        given = [label for table in tables for label in table[column if split == "train" else "label"].to_pylist()]
        true = [label for table in tables for label in table["true_label" if split == "train" else "label"].to_pylist()]
        chosen = np.arange(len(images))
        if split == "train":
            chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:CIFAR_TRAIN])
        for number in chosen.tolist():
            name = f"{split}/{number:05d}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(images[number]["bytes"])
            rows.append((name, names[given[number]], split, names[true[number]]))
    _write(folder / "metadata.csv", rows)


def _write(file: Path, rows: list[tuple[str, ...]]) -> None:
    with file.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(COLUMNS)
        table.writerows(rows)
