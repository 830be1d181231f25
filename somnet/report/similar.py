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
PARTS = 8  # in which they are sorted: their places take twice the memory that they take
ROWS_AT_ONCE = 2**16  # vectors that are made wide together
NONE = -1  # where there is no other image


@dataclass(frozen=True)
class Similar:
    """Rows of similar images of each image of a run, the nearest first; NONE where there are no more."""

    of_all: NDArray[np.int32]  # (n, NEAREST)
    of_given: NDArray[np.int32]  # (n, OF_CLASS) clean images of the given class
    of_seen: NDArray[np.int32]  # (n, OF_CLASS) clean images of the other class that the model sees


def read_vectors(run: RunFolder, records: Records) -> NDArray[np.floating] | None:
    """Vectors (r, F) of the readable images, as they are in their file; None if the run is of an older version."""
    file: Path = run.path / VECTORS
    if not file.is_file():
        return None
    try:
        stored = np.load(file, mmap_mode="r", allow_pickle=False)  # nothing is allocated by what it claims
    except Exception as error:  # numpy raises many kinds, where a file is something else
        raise RunError(f"{file} cannot be read ({error}): train again with --overwrite") from None
    if (
        stored.ndim != 2
        or len(stored) != (~records.unreadable).sum()
        or not 0 < stored.shape[1] <= WIDEST
        or stored.dtype.kind != "f"
    ):
        raise RunError(f"{file} does not match the images of {run.path}: train again with --overwrite")
    return np.asarray(stored)  # still in its file: what is looked at is read


def wide(vectors: NDArray[np.floating], which: NDArray[np.integer] | slice) -> NDArray[np.float32]:
    """Some of the vectors (n, F) to compute with (m, F)."""
    return np.asarray(np.nan_to_num(vectors[which]), np.float32)


def find_similar(records: Records, vectors: NDArray[np.floating], seen: NDArray[np.int64]) -> Similar:
    """The similar images of all, by the vectors of the readable ones; `seen` (n,) is what the model would say."""
    row_of = np.append(np.flatnonzero(~records.unreadable), NONE).astype(np.int32)  # (r + 1,) where there is none: NONE
    of_all = np.full((len(records), NEAREST), NONE, np.int32)
    of_all[row_of[:-1]] = row_of[nearest(vectors, NEAREST)]
    of_given = np.full((len(records), OF_CLASS), NONE, np.int32)
    of_seen = of_given.copy()
    number = records.readable_number
    for label, rows in records.by_class():
        best = rows[records.flags["clean"][rows]][-MOST_CLEAN:]  # by_class has the best last
        others = np.flatnonzero((seen == label) & (records.label != label) & ~records.unreadable)
        for into, mine in ((of_given, rows), (of_seen, others)):
            into[mine] = row_of[nearest_among(vectors, number[mine], number[best], OF_CLASS)]
    return Similar(of_all, of_given, of_seen)


def nearest(vectors: NDArray[np.floating], count: int) -> NDArray[np.int32]:
    """Numbers (n, count) of the nearest other vectors of each of (n, F), the nearest first; NONE beyond the last."""
    found = np.full((len(vectors), count), NONE, np.int32)
    for own, around in _cells(vectors):
        found[own] = nearest_among(vectors, own, around, count)
    return found


def nearest_among(
    vectors: NDArray[np.floating], queries: NDArray[np.int64], candidates: NDArray[np.int64], count: int
) -> NDArray[np.int32]:
    """Numbers (Q, count) of the nearest candidates (m,) of each query (Q,) but itself; all are rows of `vectors`."""
    found = np.full((len(queries), count), NONE, np.int32)
    if len(candidates) == 0:
        return found
    points = wide(vectors, candidates)
    size = (points * points).sum(axis=1)  # (m,)
    most = min(count, len(candidates))
    step = max(1, AT_ONCE // len(candidates))
    for start in range(0, len(queries), step):
        mine = queries[start : start + step]
        distance = wide(vectors, mine) @ points.T  # (Q, m)
        distance *= -2
        distance += size  # less what all distances of a query share
        distance[mine[:, None] == candidates] = np.inf
        places = np.concatenate([_lowest(part, most) for part in np.array_split(distance, PARTS)])  # (Q, most)
        itself = np.isinf(np.take_along_axis(distance, places, axis=1))
        found[start : start + step, :most] = np.where(itself, NONE, candidates[places])
    return found


def _lowest(distance: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """Places (Q, most) of the lowest distances of each query (Q, m), the lowest first."""
    places = np.argpartition(distance, most - 1, axis=1)[:, :most]
    order = np.argsort(np.take_along_axis(distance, places, axis=1), axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)


def _cells(vectors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The vectors in groups that lie together: the numbers of each, and of all in the cells around it."""
    cells = len(vectors) // CELL
    if cells <= CELLS_AROUND:
        yield np.arange(len(vectors)), np.arange(len(vectors))
        return
    cell, centres = _cluster(vectors, cells)
    order = np.argsort(cell, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(cell, minlength=cells))[:-1])
    around = nearest_among(centres, np.arange(cells), np.arange(cells), CELLS_AROUND - 1)
    for number, own in enumerate(members):
        if len(own):
            yield own, np.concatenate([own, *(members[other] for other in around[number])])


def _cluster(vectors: NDArray[np.floating], cells: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The cell (n,) of each of the vectors (n, F), and the middles of the cells (cells, F)."""
    from sklearn.cluster import MiniBatchKMeans  # here, as it takes a second: a report begins without it

    points = np.empty(vectors.shape, np.float32)  # all at once, but no longer than this takes
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        points[part] = wide(vectors, part)
    model = MiniBatchKMeans(cells, n_init=1, max_iter=20, batch_size=4096, random_state=0).fit(points)
    return model.labels_, model.cluster_centers_
