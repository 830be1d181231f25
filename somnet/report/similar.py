"""Which images look alike: the nearest ones of each, among all and among the clean ones of a class. Nothing of torch.

Vectors are those of runs/embedding.py; near is similar. Of many images only those in neighbouring cells of a rough
clustering are compared, so that the work grows with their number and not with its square.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from somnet.errors import RunError
from somnet.report.records import Records
from somnet.runs.run_folder import RunFolder
from somnet.system.folders import VECTORS

WIDEST = 64  # vectors of a run have no more numbers
NEAREST = 8  # most similar images of an image
OF_CLASS = 4  # the same among the clean images of a class ...
MOST_CLEAN = 5000  # ... of which the best are looked at
CELL = 500  # images, about, in a cell of the clustering
CELLS_AROUND = 12  # cells that are searched for the images of a cell
AT_ONCE = 2**23  # distances in memory
NONE = -1  # where there is no other image


@dataclass(frozen=True)
class Similar:
    """Rows of similar images of each image of a run, the nearest first; NONE where there are no more."""

    of_all: NDArray[np.int64]  # (n, NEAREST)
    of_given: NDArray[np.int64]  # (n, OF_CLASS) clean images of the given class
    of_seen: NDArray[np.int64]  # (n, OF_CLASS) clean images of the other class that the model sees


def read_vectors(run: RunFolder, records: Records) -> NDArray[np.float32] | None:
    """Vectors (n, F) of all images, 0 for unreadable ones; None if the run is of an older version."""
    file: Path = run.path / VECTORS
    if not file.is_file():
        return None
    try:
        stored = np.load(file, mmap_mode="r", allow_pickle=False)  # nothing is allocated by what it claims
    except Exception as error:  # numpy raises many kinds, where a file is something else
        raise RunError(f"{file} cannot be read ({error}): train again with --overwrite") from None
    readable = ~records.unreadable
    if (
        stored.ndim != 2
        or len(stored) != readable.sum()
        or not 0 < stored.shape[1] <= WIDEST
        or stored.dtype.kind != "f"
    ):
        raise RunError(f"{file} does not match the images of {run.path}: train again with --overwrite")
    vectors = np.zeros((len(records), stored.shape[1]), np.float32)
    vectors[readable] = np.nan_to_num(stored)
    return vectors


def find_similar(records: Records, vectors: NDArray[np.float32], seen: NDArray[np.int64]) -> Similar:
    """The similar images of all; `seen` (n,) is the class that the model would say."""
    of_all = np.full((len(records), NEAREST), NONE)
    readable = np.flatnonzero(~records.unreadable)
    found = nearest(vectors[readable], NEAREST)
    of_all[readable] = np.where(found < 0, NONE, readable[found])
    of_given = np.full((len(records), OF_CLASS), NONE)
    of_seen = of_given.copy()
    for label, rows in records.by_class():
        best = rows[records.certain[rows]][-MOST_CLEAN:]  # by_class has the best last
        others = np.flatnonzero((seen == label) & (records.label != label) & ~records.unreadable)
        for into, mine in ((of_given, rows), (of_seen, others)):
            into[mine] = nearest_among(vectors, mine, best, OF_CLASS)
    return Similar(of_all, of_given, of_seen)


def nearest(vectors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Numbers (n, count) of the nearest other vectors of each of (n, F), the nearest first; NONE beyond the last."""
    found = np.full((len(vectors), count), NONE)
    for own, around in _cells(vectors):
        found[own] = nearest_among(vectors, own, around, count)
    return found


def nearest_among(
    vectors: NDArray[np.float32], queries: NDArray[np.int64], candidates: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Numbers (Q, count) of the nearest candidates (m,) of each query (Q,) but itself; all are rows of `vectors`."""
    found = np.full((len(queries), count), NONE)
    if len(candidates) == 0:
        return found
    points = vectors[candidates]
    size = (points * points).sum(axis=1)  # (m,)
    most = min(count, len(candidates))
    step = max(1, AT_ONCE // len(candidates))
    for start in range(0, len(queries), step):
        mine = queries[start : start + step]
        distance = size - 2 * (vectors[mine] @ points.T)  # (Q, m), less what all distances of a query share
        distance[mine[:, None] == candidates] = np.inf
        places = np.argpartition(distance, most - 1, axis=1)[:, :most]
        order = np.argsort(np.take_along_axis(distance, places, axis=1), axis=1, kind="stable")
        places = np.take_along_axis(places, order, axis=1)
        itself = np.isinf(np.take_along_axis(distance, places, axis=1))
        found[start : start + step, :most] = np.where(itself, NONE, candidates[places])
    return found


def _cells(vectors: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The vectors in groups that lie together: the numbers of each, and of all in the cells around it."""
    cells = len(vectors) // CELL
    if cells <= CELLS_AROUND:
        yield np.arange(len(vectors)), np.arange(len(vectors))
        return
    from sklearn.cluster import MiniBatchKMeans  # here, as it takes a second: a report begins without it

    model = MiniBatchKMeans(cells, n_init=1, max_iter=20, batch_size=4096, random_state=0).fit(vectors)
    order = np.argsort(model.labels_, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(model.labels_, minlength=cells))[:-1])
    around = nearest_among(model.cluster_centers_, np.arange(cells), np.arange(cells), CELLS_AROUND - 1)
    for number, own in enumerate(members):
        if len(own):
            yield own, np.concatenate([own, *(members[other] for other in around[number])])
