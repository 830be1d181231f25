"""How good a picture is to look at, whatever it shows: measures of a reduced copy, and the faults that they tell of.

Limits are absolute, so a picture is judged alike in every data set, and far from what usual photos have: a thing on
white ground is not blank, a lamp makes a night. They are in the spirit of CleanVision's, which calls many of both poor.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 128  # pixels of the shorter side of the copy: about what a network sees of the picture
LONGEST = 1024  # pixels of its longer side at most: a strip of any length is measured in little memory
TAIL = 0.002  # share of the points at either end of the shades that does not count
SMOOTH = 1.0  # pixels, of a blur before edges are measured: rounded shades and JPEG blocks are no edges
EDGES = 0.995  # the sharpest edges: so many of the points are further from one
NEAR = 2  # shades this near to the commonest are the ground
TINY = 1e-6

MEASURES = CONTRAST, DARKEST, BRIGHTEST, BLUR, SHADES, SHORTER, SHAPE = range(7)
STORED = SHORTER  # measures of the pixels come first; those of the size follow from it


@dataclass(frozen=True)
class Fault:
    """What may be wrong with a picture: a measure beyond a limit."""

    measure: int
    limit: float
    most: bool  # whether the measure may be that much at most; else at least
    words: str

    def score(self, measures: NDArray[np.float32]) -> NDArray[np.float32]:
        """0 to 1 (n,), below 0.5 beyond the limit, from measures (n, 7) of n pictures."""
        value = np.maximum(measures[:, self.measure], 0.0)
        return np.asarray((self.limit if self.most else value) / (value + self.limit), np.float32)


FAULTS = {
    "blank": Fault(CONTRAST, 0.04, False, "nearly all of it has one colour"),
    "dark": Fault(BRIGHTEST, 0.2, False, "it is so dark that hardly anything can be seen"),
    "too bright": Fault(DARKEST, 0.93, True, "it is so bright that hardly anything can be seen"),
    "blurred": Fault(BLUR, 1.5, True, "it is blurred, without a sharp edge anywhere"),
    "few shades": Fault(SHADES, 2.0, False, "it has only a few flat shades, as logos and drawings do"),
    "tiny": Fault(SHORTER, 28, False, "it is tiny, less than 28 pixels wide or high"),
    "odd shape": Fault(SHAPE, 0.25, False, "it is more than four times as long as wide"),
}
BLANK = "blank"
POOR = 0.5  # score below which a picture is poor
_SAYS_ALL = {  # of a picture with one fault, others say no more
    "blank": ("dark", "too bright", "blurred", "few shades"),
    "dark": ("few shades",),
    "too bright": ("few shades",),
}


def measure_picture(image: Image.Image) -> list[float]:
    """Contrast, darkest and brightest shade (0 to 1), blur (pixels), shades (bits) of an upright RGB picture."""
    pixels = _reduced(np.asarray(image))  # (H, W, 3)
    grey = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)  # (H, W)
    ends = [_ends(pixels[..., channel]) for channel in range(3)]
    darkest, brightest = _ends(grey)
    contrast = max(high - low for low, high in ends)
    return [contrast / 255, darkest / 255, brightest / 255, blur_width(grey), shades_beside_ground(grey)]


def _reduced(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    scale = min(SIDE / min(height, width), LONGEST / max(height, width))
    if scale >= 1:
        return pixels
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)


def _ends(channel: NDArray[np.uint8]) -> tuple[float, float]:
    """The shades between which all points lie but for the tails."""
    share = np.cumsum(np.bincount(channel.ravel(), minlength=256)) / channel.size
    return float((share <= TAIL).sum()), float((share < 1 - TAIL).sum())


def blur_width(grey: NDArray[np.uint8]) -> float:
    """Width of the sharpest edges, as the sigma in pixels of the blur that a step would have gone through.

    A step of height h, blurred by s, has the gradient h / (s sqrt(2 pi)) and the Laplacian h / (s^2 sqrt(2 pi e)) at
    most, so s = gradient / (sqrt(e) Laplacian), whatever its height. A picture that is sharp somewhere is sharp.
    """
    soft = cv2.GaussianBlur(grey.astype(np.float32), (0, 0), SMOOTH)
    left, right, up, down = soft[1:-1, :-2], soft[1:-1, 2:], soft[:-2, 1:-1], soft[2:, 1:-1]
    slope = np.hypot(right - left, down - up) / 2
    bend = np.abs(left + right + up + down - 4 * soft[1:-1, 1:-1])
    steepest, sharpest = np.quantile(slope, EDGES), np.quantile(bend, EDGES)
    square = (steepest / (np.sqrt(np.e) * max(sharpest, TINY))) ** 2
    return float(np.sqrt(max(square - SMOOTH**2, 0.0)))


def shades_beside_ground(grey: NDArray[np.uint8]) -> float:
    """Entropy, in bits, of the shades of all that is not of the commonest one: what stands on a plain ground counts."""
    count = np.bincount(grey.ravel(), minlength=256)
    ground = int(count.argmax())
    count[max(0, ground - NEAR) : ground + NEAR + 1] = 0
    share = count[count > 0] / max(1, count.sum())
    return float(-(share * np.log2(share)).sum())


def with_sizes(stored: NDArray[np.float32], sizes: NDArray[np.int32]) -> NDArray[np.float32]:
    """All measures (n, 7), from those of the pixels (n, 5) and the width and height (n, 2) of each picture."""
    shorter, longer = sizes.min(axis=1), sizes.max(axis=1)
    return np.column_stack([stored, shorter, shorter / np.maximum(longer, 1)]).astype(np.float32)


def picture_scores(measures: NDArray[np.float32]) -> NDArray[np.float32]:
    """0 to 1 (n,), low is poor: the lowest score of any fault."""
    return np.asarray(np.min([fault.score(measures) for fault in FAULTS.values()], axis=0), np.float32)


def faults_of(measures: NDArray[np.float32]) -> list[str | None]:
    """The names of the faults of each of n pictures, with commas between them; None where it has none."""
    beyond = {name: fault.score(measures) < POOR for name, fault in FAULTS.items()}
    for name, others in _SAYS_ALL.items():
        for other in others:
            beyond[other] &= ~beyond[name]
    named: list[str | None] = [None] * len(measures)
    for row in np.flatnonzero(np.any(list(beyond.values()), axis=0)).tolist():
        named[row] = ", ".join(name for name in FAULTS if beyond[name][row])
    return named
