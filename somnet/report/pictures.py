"""Pictures of a data set and of a trained run, to look at: what is in the data, the memory and the bags."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from somnet.core.types import BagBatch
from somnet.data.bags import BagBatches, BagList, draw_bags
from somnet.data.dataset import FORWARD_IMAGES, DataSet, Part, open_dataset
from somnet.data.decode import read_picture
from somnet.data.index import Index
from somnet.data.loading import load
from somnet.data.sources import open_source
from somnet.methods.somnet import SomNet
from somnet.report.figures.bag_figure import BagView, bag_figure
from somnet.report.figures.contact_sheet import Tile, contact_sheet
from somnet.report.figures.memory_grid import memory_grid
from somnet.report.figures.prototypes import Prototype, prototypes
from somnet.report.regions import Regions
from somnet.report.rois import SlotRois, crops_of, rois_by_slot
from somnet.runs.run import Run
from somnet.runs.scoring import inspected_inputs
from somnet.system.compute import Compute

TILES = 10  # a row of the contact sheet
NEAREST = 5  # ROIs shown of a slot, as in the paper
SLOTS_SHOWN = 3  # prototypes of a class, as in the paper
BAGS_SHOWN = 3


def draw_data(data: Path, out: Path) -> list[Path]:
    """data.png: training images of some classes, those known to be noise marked, and test images."""
    index = open_source(data)
    train, test = index.of_split("train"), index.of_split("test")
    groups = []
    for label in range(min(4, len(index.classes))):
        rows = np.flatnonzero(train.labels() == label)[:TILES]
        groups.append((f"found as “{index.classes[label]}”", [_tile(train, int(row)) for row in rows]))
    shown = [int(np.flatnonzero(test.labels() == label)[0]) for label in np.unique(test.labels())][:TILES]
    if shown:
        groups.append(("test images", [_tile(test, row) for row in shown]))
    return [_save(contact_sheet(groups, columns=TILES), out / "data.png")]


def draw_run(run: Run, out: Path) -> list[Path]:
    """memory.png, prototypes.png and bags.png of a run of somnet: the paper's figures 3 and 4."""
    method = run.method
    if not isinstance(method, SomNet):
        return []
    data = open_dataset(Path(run.data["path"]), run.config, Compute())
    regions = Regions(run)
    labels, classes = data.train.labels, len(data.classes)
    rois = rois_by_slot(regions, len(method.memory.keys), labels, classes, NEAREST)
    pictures = {
        "memory.png": _draw_memory(method, data, regions, rois),
        "prototypes.png": _draw_prototypes(method, data, regions, rois),
        "bags.png": _draw_bags(method, data, run),
    }
    return [_save(picture, out / name) for name, picture in pictures.items()]


def _bags(part: Part, run: Run, bags: BagList) -> Iterator[BagBatch]:
    inputs = inspected_inputs(run.method, part, Compute(workers=0))
    return load(BagBatches(bags, FORWARD_IMAGES, inputs, None, seed=None), 0)


def _draw_memory(method: SomNet, data: DataSet, regions: Regions, rois: SlotRois) -> Image.Image:
    memory = method.memory
    counts = rois.class_hits
    exemplars = {
        slot: _crops(data.train, regions, rois, slot, 1)
        for slot in range(len(counts))
        if counts[slot].any() and memory.side <= 12
    }
    d, r = memory.d.detach().numpy(), memory.r.detach().numpy()
    return memory_grid(memory.side, counts, d, r, exemplars, data.classes)


def _draw_prototypes(method: SomNet, data: DataSet, regions: Regions, rois: SlotRois) -> Image.Image:
    """The most prototypical slots of the class that has the clearest ones."""
    d, r = method.memory.d.detach(), method.memory.r.detach().T  # (L, C)
    score = d * r
    label = int(score.amax(dim=0).argmax())
    rows = []
    for slot in score[:, label].argsort(descending=True)[:SLOTS_SHOWN].tolist():
        crops = _crops(data.train, regions, rois, slot, NEAREST)
        rows.append(Prototype(slot, float(d[slot, label]), float(r[slot, label]), d[slot].numpy(), crops))
    return prototypes(data.classes[label], rows, data.classes)


@torch.no_grad()
def _draw_bags(method: SomNet, data: DataSet, run: Run) -> Image.Image:
    """Some bags of different classes, with the weights that the last epoch would give them."""
    size = method.settings.images_per_bag
    rng = np.random.default_rng(run.config.seed)
    drawn = draw_bags(data.train.labels, size, rng, groups=data.train.groups)
    truth = data.train.index.column("true_label")
    given = data.train.labels
    right = np.array([true is None or true == data.classes[given[row]] for row, true in enumerate(truth)])
    share = right[drawn.rows].mean(axis=1)
    telling = np.argsort(np.abs(share - 0.5), kind="stable")  # where the truth is known, bags of right and wrong images
    first = [int(telling[drawn.label[telling] == label][0]) for label in np.unique(drawn.label)][:BAGS_SHOWN]
    chosen = BagList(drawn.rows[first], drawn.label[first], drawn.present[first])
    keep = method.settings.weighting.keep_last
    views = []
    for batch in _bags(data.train, run, chosen):
        features = method.network.roi_features(batch.images, batch.boxes.flatten(0, 1))  # (I, P, F)
        rois = features.reshape(len(batch.label), -1, features.shape[-1])  # (B, N, F)
        weights = method.kept_weights(method.weigh(rois, batch)["weight"], batch, keep).view(
            batch.mask.shape
        )  # (B, G, P)
        for number, rows in enumerate(batch.rows.tolist()):
            pictures = [read_picture(data.train.index.location(row)).image for row in rows]
            views.append(
                BagView(
                    label=data.classes[int(batch.label[number])],
                    images=pictures,
                    boxes=[_pixels(batch.boxes[number, place].numpy(), p) for place, p in enumerate(pictures)],
                    weights=[weights[number, place].numpy() for place in range(len(rows))],
                    keep=keep,
                    notes=[f"truly {truth[row]}" if truth[row] is not None else "" for row in rows],
                )
            )
    return bag_figure(views)


def _tile(index: Index, row: int) -> Tile:
    true_label, box = (index.table[name][row].as_py() for name in ("true_label", "true_box"))
    given = index.classes[index.labels()[row]]
    wrong = true_label is not None and true_label != given
    caption = f"truly {true_label}" if wrong else ""
    return Tile(read_picture(index.location(row)).image, caption, None if box is None or wrong else tuple(box), wrong)


def _crops(part: Part, regions: Regions, rois: SlotRois, slot: int, count: int) -> list[Image.Image]:
    """The ROIs nearest to a slot."""
    crops = []
    for place in rois.of_slot(slot, count):
        image, number = int(rois.nearest.image[place]), int(rois.nearest.number[place])
        box = regions.of_image(image).box[[number - int(regions.first[image])]]
        crops += crops_of(read_picture(part.index.location(image)), box)
    return crops


def _pixels(shares: NDArray[np.floating], picture: Image.Image) -> NDArray[np.floating]:
    return np.asarray(shares * np.array([*picture.size, *picture.size]))


def _save(picture: Image.Image, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file, optimize=True)
    return file
