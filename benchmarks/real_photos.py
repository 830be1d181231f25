"""Real photos with both noises: pasted small into foreign scenes, labels flipped; tested on clean photos.

    python benchmarks/real_photos.py --photos DIR --scenes DIR --seeds 0,1,2,3,4 --out results/real_photos

PHOTOS is a data set with train/ and test/, SCENES any folder of photos. Trains plain, somnet and the paper's ablations
on the same data, backbone and number of epochs; prints a table of the last epoch over the seeds. Finished
runs are kept, so the command can be repeated after an interruption.
"""

import argparse
import csv
import logging
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import somnet
from somnet.data.decode import read_picture
from somnet.data.sources import open_source

SIDE = 320
NO_ROI = {
    "somnet.weighting.rois": False,
    "somnet.images_per_bag": 5,
    "somnet.weighting.keep_first": 0.6,
    "somnet.weighting.keep_last": 0.6,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"method": "plain"},
    "plain-roi": {"method": "plain-roi"},
    "somnet": {},
    "somnet without d-score": {"somnet.weighting.d_score": False},
    "somnet without r-score": {"somnet.weighting.r_score": False},
    "somnet without a-score": {"somnet.weighting.a_score": False},
    "somnet, p = 40 %": {"somnet.weighting.keep_first": 0.4},
    "somnet without ROI": NO_ROI,
    "somnet + K-means": {"somnet.memory.kmeans": True},
    "somnet without SOM": {"somnet.memory.radius": 0},
}
PAPER = dict(zip(VARIANTS, (68.6, 69.1, 82.1, 76.8, 73.5, 74.8, 81.3, 74.1, 79.5, 78.2), strict=True))  # Clothing1M


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
    labels: NDArray[Any], train: NDArray[Any], share: float, classes: int, rng: np.random.Generator
) -> NDArray[Any]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--variants", default=",".join(VARIANTS).replace(", p", "; p"), help="names, by commas")
    parser.add_argument("--flip", type=float, default=0.4)
    parser.add_argument("--out", type=Path, default=Path("results/real_photos"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    names = [name.replace(";", ",") for name in arguments.variants.split(",")]
    summaries: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in map(int, arguments.seeds.split(",")):
        data = arguments.out / f"data-seed{seed}"
        if not (data / "metadata.csv").is_file():
            make_web(arguments.photos, arguments.scenes, data, flip=arguments.flip, seed=seed)
        for name in names:
            config = somnet.Config(seed=seed).with_settings(VARIANTS[name])
            run = somnet.train(data, config, out=arguments.out / f"{name.replace(' ', '-')}-seed{seed}", resume=True)
            summaries[name].append(run.summary)
            print(f"seed {seed}, {name}: {100 * run.summary['test']['top1']:.1f}", flush=True)
    print_table(summaries)


def print_table(summaries: dict[str, list[dict[str, Any]]]) -> None:
    print("\n| method | top-1 %, mean ± std | AUROC of label_score | IoU of best ROI | paper, Clothing1M |")
    print("|---|---|---|---|---|")
    for name, runs in summaries.items():
        top1 = [100 * run["test"]["top1"] for run in runs]
        spread = f" ± {statistics.stdev(top1):.1f}" if len(top1) > 1 else ""
        area = statistics.fmean(run["noise"]["auroc"] for run in runs)
        overlap = statistics.fmean(run["regions"]["best_iou"] for run in runs)
        print(f"| {name} | {statistics.fmean(top1):.1f}{spread} | {area:.3f} | {overlap:.3f} | {PAPER[name]} |")


if __name__ == "__main__":
    main()
