"""Classes of images, most probable first; nothing here needs torch, which takes seconds to load."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from somnet.data.decode import read_picture, squared
from somnet.data.location import Location
from somnet.errors import UnreadableImage
from somnet.system.parallel import in_threads
from somnet.system.progress import track

IMAGES_AT_ONCE = 32

Images = Path | str | Sequence[Path | str | Location]


@dataclass(frozen=True)
class Prediction:
    """The classes of an image, most probable first; or why there are none."""

    file_name: str
    labels: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    unreadable_reason: str | None = None
    evidence: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """(H, W) what each place adds to the first class's logit, beyond what it adds to the average class."""
    heatmap: str | None = None  # file with a picture of the evidence


Classifier = Callable[[NDArray[np.uint8]], Iterator[Prediction]]
"""Predictions, without names, of pixels (I, 3, side, side)."""

Logits = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Logits (I, C) of pixels (I, 3, side, side)."""


def classifier(logits: Logits, classes: Sequence[str], top: int) -> Classifier:
    """The `top` classes by these logits."""
    return lambda pixels: best_classes(logits(pixels), classes, top)


def predicted(images: Images, classify: Classifier, side: int, batch_size: int) -> Iterator[Prediction]:
    """Classes of an image file or of several, in their order; a bad file gives a prediction with a reason."""
    images = [images] if isinstance(images, Path | str) else images
    decoded = in_threads(partial(_pixels, side=side), images, ahead=2 * batch_size)
    with track("predicting", len(images)) as advance:
        for start in range(0, len(images), batch_size):
            names = [str(image) for image in images[start : start + batch_size]]
            seen = list(islice(decoded, len(names)))
            good = [what for what in seen if not isinstance(what, str)]
            done = classify(np.stack(good)) if good else iter(())
            for name, what in zip(names, seen, strict=True):
                if isinstance(what, str):
                    yield Prediction(name, unreadable_reason=what)
                else:
                    yield replace(next(done), file_name=name)
            advance(len(names))


def best_classes(logits: NDArray[np.float32], classes: Sequence[str], top: int) -> Iterator[Prediction]:
    """The `top` classes of each row of logits (I, C), without a name."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))  # (I, C)
    shares /= shares.sum(axis=1, keepdims=True)
    for row, places in zip(shares, np.argsort(-logits, axis=1, kind="stable")[:, :top], strict=True):
        yield Prediction("", tuple(classes[place] for place in places), tuple(row[places].tolist()))


def _pixels(image: Path | str | Location, side: int) -> NDArray[np.uint8] | str:
    """The network's view of a file, or why there is none."""
    try:
        return squared(read_picture(image, at_least=side).image, side)
    except UnreadableImage as error:
        return str(error)
