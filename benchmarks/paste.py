"""A web-like data set with known truth from clean photos: pasted small into foreign scenes, some labels flipped."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from somnet.data.decode import read_picture
from somnet.data.sources import open_source

SIDE = 320


def make_web(photos: Path, scenes: Path, out: Path, *, flip: float = 0.4, seed: int = 0) -> None:
    """Write `out` with a manifest: train photos at 35-60 % of the side in scenes, test photos as they are."""
    index = open_source(photos)
    backgrounds = sorted(path for path in scenes.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    rng = np.random.default_rng(seed)
    rows = []
    labels, splits = index.labels(), index.column("split")
    flipped = flip_labels(labels, np.array([split == "train" for split in splits]), flip, len(index.classes), rng)
    for row, split in enumerate(splits):
        photo = read_picture(index.path(row)).image
        name = f"{split}/{row:05d}.jpg"
        box = ""
        if split == "train":
            photo, corners = paste(photo, read_picture(backgrounds[rng.integers(len(backgrounds))]).image, rng)
            box = " ".join(map(str, corners))
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        photo.save(out / name, quality=92)
        true = index.classes[labels[row]]
        rows.append((name, index.classes[flipped[row]], split, true, box))
    with (out / "metadata.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("file_name", "label", "split", "true_label", "true_box"))
        writer.writerows(rows)


def flip_labels(
    labels: np.ndarray, train: np.ndarray, share: float, classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Give a share of the training labels another class, evenly."""
    flipped = labels.copy()
    rows = rng.permutation(np.flatnonzero(train))[: round(share * train.sum())]
    flipped[rows] = (labels[rows] + rng.integers(1, classes, len(rows))) % classes
    return flipped


def paste(
    photo: Image.Image, scene: Image.Image, rng: np.random.Generator
) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """The photo at 35-60 % of the side, at a random place of the scene; and its box."""
    scene = scene.resize((SIDE, SIDE))
    scale = rng.uniform(0.35, 0.60) * SIDE / max(photo.size)
    small = photo.resize((max(1, round(photo.width * scale)), max(1, round(photo.height * scale))))
    x, y = (int(rng.integers(0, SIDE - length + 1)) for length in small.size)
    scene.paste(small, (x, y))
    return scene, (x, y, x + small.width, y + small.height)
