"""What a training step may see of an image: all of it, regions, random crops, each at full size.

Views are the same for every method. With a frozen trunk they are drawn once, by the seed and the picture's content, so
that their maps can be cached; otherwise crops and mirroring are drawn anew whenever an image is used (see Augment).
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from somnet.config import ViewConfig
from somnet.data.proposals import Scan
from somnet.data.transforms import ASPECTS, boxes_within, crop_shares

WHOLE = np.array([0.0, 0.0, 1.0, 1.0], np.float32)  # the image itself, as a box
TRIES = 10  # to find a crop of the drawn shape that fits, as everybody's random resized crop does


@dataclass(frozen=True)
class View:
    """One view of each of n images."""

    boxes: NDArray[np.float32]  # (n, 4) what is seen, in shares of width and height
    mirrored: NDArray[np.bool_]  # (n,)

    def picture(self, image: Image.Image, row: int) -> Image.Image:
        """What is seen of an image."""
        crop = crop_shares(image, self.boxes[row])
        return ImageOps.mirror(crop) if self.mirrored[row] else crop

    def regions(self, boxes: Tensor, mask: Tensor, row: int) -> tuple[Tensor, Tensor]:
        """The image's boxes (P, 4) and their mask (P,) in what is seen of it."""
        view, mirrored = self.boxes[row], bool(self.mirrored[row])
        if not mirrored and (view == WHOLE).all():  # the most used view, and nothing moves in it
            return boxes, mask
        return boxes_within(boxes, mask, torch.from_numpy(view), mirrored)

    def keys(self, scan: Scan) -> pa.Array:
        """Of the content that is seen (n,); of a whole image its own."""
        whole = (self.boxes == WHOLE).all(axis=1) & ~self.mirrored  # (n,)
        return pa.array(
            [
                key if key is None or same else _view_key(key, box.tobytes(), bool(mirrored))
                for key, same, box, mirrored in zip(
                    scan.keys.to_pylist(), whole, self.boxes, self.mirrored, strict=True
                )
            ],
            scan.keys.type,
        )


def _view_key(key: bytes, box: bytes, mirrored: bool) -> bytes:
    return hashlib.sha256(key + box + b"mirrored" * mirrored).digest()[: len(key)]


def whole_images(count: int) -> View:
    """The view that shows all of each image."""
    return View(np.tile(WHOLE, (count, 1)), np.zeros(count, bool))


def draw_views(scan: Scan, config: ViewConfig, seed: int, *, augmented: bool) -> list[View]:
    """The views of scanned images: first the image, then its proposals, then what is drawn by the seed.

    Where an image has fewer proposals than asked for, the image stands in. `augmented`: crops and mirroring are left
    to the augmentation, which gets the image instead.
    """
    n, most = len(scan.boxes), scan.boxes.shape[1]
    proposals = np.tile(WHOLE, (n, config.proposals, 1))  # (n, K, 4)
    found = np.arange(config.proposals) < scan.counts[:, None]  # (n, K)
    shown = min(config.proposals, most)
    proposals[:, :shown][found[:, :shown]] = scan.boxes[:, :shown][found[:, :shown]]
    fixed = 1 + config.proposals
    boxes = np.tile(WHOLE, (n, fixed + config.mirror + config.crops, 1))
    boxes[:, 1:fixed] = proposals
    mirrored = np.zeros(boxes.shape[:2], bool)
    if not augmented:
        _draw(scan, config, seed, boxes, mirrored)
    return [View(boxes[:, number], mirrored[:, number]) for number in range(boxes.shape[1])]


def _draw(scan: Scan, config: ViewConfig, seed: int, boxes: NDArray[np.float32], mirrored: NDArray[np.bool_]) -> None:
    """Fill in (n, V, 4) and (n, V) behind the proposals."""
    fixed = 1 + config.proposals
    mirrored[:, fixed : fixed + config.mirror] = True
    for row, key in enumerate(scan.keys.to_pylist()):
        rng = np.random.default_rng((seed, int.from_bytes(key or b"", "little")))
        for number in range(fixed + config.mirror, boxes.shape[1]):
            boxes[row, number] = random_crop(scan.sizes[row], config.smallest_crop, rng)
            mirrored[row, number] = rng.random() < 0.5


def random_crop(size: NDArray[np.int32], smallest: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """A crop (4,) in shares, of a random area and shape, at a random place; all of the image where none fits."""
    width_to_height = size[0] / size[1]
    for _ in range(TRIES):
        area, aspect = rng.uniform(smallest, 1), np.exp(rng.uniform(*np.log(ASPECTS)))
        sides = np.array([(area * aspect / width_to_height) ** 0.5, (area / aspect * width_to_height) ** 0.5])
        if (sides <= 1).all():
            low = rng.uniform(0, 1 - sides)
            return np.concatenate([low, low + sides]).astype(np.float32)
    return WHOLE
