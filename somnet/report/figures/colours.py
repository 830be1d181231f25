"""The colours of the figures: for paper and ink, for classes, and for heat."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]

WHITE: Colour = (255, 255, 255)
INK: Colour = (33, 37, 41)
GREY: Colour = (112, 118, 124)
LINE: Colour = (206, 210, 214)
PAPER: Colour = (240, 242, 244)
RED: Colour = (208, 35, 46)

OKABE_ITO: tuple[Colour, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (86, 180, 233),
    (204, 121, 167),
    (240, 228, 66),
    (0, 0, 0),
)
INFERNO = np.array(
    [
        (0, 0, 4),
        (31, 12, 72),
        (85, 15, 109),
        (136, 34, 106),
        (186, 54, 85),
        (227, 89, 51),
        (249, 140, 10),
        (249, 201, 50),
        (252, 255, 164),
    ],
    np.float64,
)  # (9, 3)


@lru_cache
def class_colours(count: int) -> tuple[Colour, ...]:
    """Distinct colours: Okabe and Ito's eight, then always the one farthest from all before, in OKLab.

    A class keeps its colour when others are added. Beyond about ten thousand classes, colours repeat.
    """
    if count <= len(OKABE_ITO):
        return OKABE_ITO[:count]
    levels = np.arange(4, 256, 8)
    lattice = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)  # (n, 3)
    lab = oklab(lattice)  # (n, 3)
    chroma = np.hypot(lab[:, 1], lab[:, 2])  # (n,)
    calm = (lab[:, 0] > 0.4) & (lab[:, 0] < 0.86) & (chroma > 0.05) & (chroma < 0.17)  # (n,)
    lattice, lab = lattice[calm], lab[calm]
    first = oklab(np.array((*OKABE_ITO, GREY, WHITE)))  # grey and white mean something else
    distance = np.min([np.linalg.norm(lab - colour, axis=1) for colour in first], axis=0)  # (n,)
    chosen = list(OKABE_ITO)
    while len(chosen) < min(count, len(lattice)):
        farthest = int(distance.argmax())
        red, green, blue = lattice[farthest].tolist()
        chosen.append((red, green, blue))
        distance = np.minimum(distance, np.linalg.norm(lab - lab[farthest], axis=1))  # (n,)
    return tuple(chosen[i % len(chosen)] for i in range(count))


def oklab(rgb: NDArray[np.integer]) -> NDArray[np.float64]:
    """Björn Ottosson's OKLab of sRGB colours (n, 3)."""
    share = rgb / 255  # (n, 3)
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)  # (n, 3)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(np.cbrt(linear @ cones.T) @ opponents.T)  # (n, 3)


def inferno(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Colours (..., 3) of values from 0 to 1."""
    stops = np.linspace(0, 1, len(INFERNO))
    channels = [np.interp(values, stops, INFERNO[:, channel]) for channel in range(3)]
    return np.asarray(np.rint(np.stack(channels, axis=-1)), np.uint8)  # (..., 3)


def faded(colour: Colour, fade: float) -> Colour:
    """Nearer to white."""
    red, green, blue = (round(value + (255 - value) * fade) for value in colour)
    return red, green, blue
