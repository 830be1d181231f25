"""Pixels for the network. Image and boxes move together."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from somnet.data.decode import squared

ASPECTS = (3 / 4, 4 / 3)  # of a crop, width to height
SMALLEST_REST = 0.25  # a box that a crop leaves less of is dropped: what remains is no longer the object
TINY = np.float32(1e-9)  # an area to divide by


def to_square(image: Image.Image, side: int) -> Tensor:
    """The whole image as uint8 (3, side, side). Shares of width and height stay what they are, so boxes do too."""
    return torch.from_numpy(squared(image, side))


def crop_shares(image: Image.Image, view: NDArray[np.float32]) -> Image.Image:
    """The crop of an image within a box (4,) of shares, at least a pixel."""
    x1, y1, x2, y2 = (float(share) for share in view)
    left, top = min(round(x1 * image.width), image.width - 1), min(round(y1 * image.height), image.height - 1)
    right, bottom = max(round(x2 * image.width), left + 1), max(round(y2 * image.height), top + 1)
    return image.crop((left, top, right, bottom))


def enough_for(view: NDArray[np.float32], side: int) -> int:
    """Shortest side of an image whose crop within a box (4,) still has `side` pixels."""
    shortest = min(float(view[2] - view[0]), float(view[3] - view[1]))
    return round(side / max(shortest, 0.01))


class Augment:
    """Random crop, flip and colour of an image, its boxes with it; the randomness is passed in as a seed."""

    def __init__(self, side: int, smallest_crop: float = 0.4) -> None:
        self.side = side
        self.areas = (smallest_crop, 1.0)
        self.colour = v2.ColorJitter(0.3, 0.3, 0.3)

    def __call__(self, image: Image.Image, boxes: Tensor, mask: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """uint8 (3, side, side), boxes (P, 4) as shares of the crop, and which of them are still there (P,)."""
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            frame = v2.RandomResizedCrop.get_params(pixels, self.areas, ASPECTS)  # top, left, height, width
            crop = v2.functional.resized_crop(pixels, *frame, size=[self.side, self.side], antialias=True)
            flipped = bool(torch.rand(1) < 0.5)
            crop = self.colour(v2.functional.horizontal_flip(crop) if flipped else crop)
        top, left, height, width = frame
        view = torch.tensor([left, top, left + width, top + height]) / torch.tensor([*image.size, *image.size])
        return crop, *boxes_within(boxes, mask, view, flipped)


def boxes_within(boxes: Tensor, mask: Tensor, view: Tensor, mirrored: bool) -> tuple[Tensor, Tensor]:
    """Boxes (P, 4) of an image as shares of a crop of it, and which of them are still there (P,).

    Box 0 is the image, whatever crop of it is seen. torchvision moves boxes too, but it cuts off what is outside, and
    then nobody knows how much that was.
    """
    low, high = view.numpy().reshape(2, 2)  # numpy: of so few numbers each call of torch takes ten times as long
    moved = ((boxes.numpy().reshape(-1, 2, 2) - low) / (high - low)).reshape(-1, 4)
    if mirrored:
        moved[:, [2, 0]] = 1 - moved[:, [0, 2]]
    shares = moved.clip(0, 1)
    there = mask.numpy() & (_area(shares) / np.maximum(_area(moved), TINY) >= SMALLEST_REST)
    shares[0], there[0] = (0, 0, 1, 1), True
    return torch.from_numpy(shares * there[:, None]), torch.from_numpy(there)


def _area(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    sides: NDArray[np.float32] = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return sides[:, 0] * sides[:, 1]
