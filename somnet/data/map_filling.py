"""Maps of a frozen trunk that the cache lacks: each picture is opened once for all of its views.

Pictures are decoded in threads while the network computes, so that all cores are busy and a GPU finds its images ready.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.data.bags import read_again
from somnet.data.index import Index
from somnet.data.maps import MapStore
from somnet.data.proposals import Scan
from somnet.data.transforms import enough_for, to_square
from somnet.data.views import View
from somnet.nn.engine import Trunk
from somnet.system.compute import Compute
from somnet.system.parallel import in_threads
from somnet.system.progress import track
from somnet.system.transfer import send

MAPS_PER_CHUNK = 512
VIEWS_AT_ONCE = 64  # at least, through the trunk
PICTURES_AHEAD = 32  # decoded while the trunk computes


@dataclass(frozen=True)
class Cutter:
    """Cuts views out of images."""

    index: Index
    scan: Scan
    views: Sequence[View]
    side: int

    def __call__(self, missing: NDArray[np.int64]) -> Tensor:
        """Pixels (V, 3, side, side) of views of one image, of which the row and number (V, 2) are given."""
        row = int(missing[0, 0])
        views = [self.views[number] for number in missing[:, 1]]
        pictures = read_again(self.index, self.scan, row, [enough_for(view.boxes[row], self.side) for view in views])
        seen = (view.picture(picture.image, row) for view, picture in zip(views, pictures, strict=True))
        return torch.stack([to_square(image, self.side) for image in seen])


@torch.no_grad()
def fill_maps(
    store: MapStore,
    cutter: Cutter,
    keys: Sequence[pa.Array],
    missing: NDArray[np.int64],
    trunk: Trunk,
    compute: Compute,
) -> None:
    """Compute and keep the maps of some views, by row and number (m, 2), those of an image together.

    `keys` has those of all images, view by view.
    """
    if len(missing) == 0:
        return
    images = np.split(missing, np.flatnonzero(np.diff(missing[:, 0])) + 1)
    threads = None if compute.workers is None else max(1, compute.workers)
    cut = in_threads(cutter, images, ahead=PICTURES_AHEAD, threads=threads)
    all_keys = [keys[number][row].as_py() for row, number in missing.tolist()]
    done = kept = 0
    maps: list[Tensor] = []
    pace = _Pace()
    with track("feature maps", len(missing)) as advance:
        for pixels in pace.waiting_for(_joined(cut, VIEWS_AT_ONCE)):
            maps.append(trunk.maps(send(pixels, compute.device)).to(torch.float16).cpu())
            done += len(pixels)
            if done - kept >= MAPS_PER_CHUNK or done == len(missing):
                store.add(all_keys[kept:done], torch.cat(maps))
                kept, maps = done, []
            advance(len(pixels), note=pace.limit())


def _joined(stacks: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The same images in larger stacks, each of at least so many."""
    some: list[Tensor] = []
    for stack in stacks:
        some.append(stack)
        if sum(map(len, some)) >= size:
            yield torch.cat(some)
            some = []
    if some:
        yield torch.cat(some)


class _Pace:
    """Which of two stages that work at the same time is the slower one."""

    def __init__(self) -> None:
        self.waited = self.worked = 0.0

    def waiting_for(self, stacks: Iterable[Tensor]) -> Iterator[Tensor]:
        """What the first stage hands over, timed."""
        asked = time.monotonic()
        for stack in stacks:
            given = time.monotonic()
            yield stack
            self.waited, self.worked = self.waited + given - asked, self.worked + time.monotonic() - given
            asked = time.monotonic()

    def limit(self) -> str:
        """For the progress bar."""
        return "limited by reading files" if self.waited > self.worked else "limited by the network"
