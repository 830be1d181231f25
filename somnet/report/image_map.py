"""The map of the images: each a point, similar ones together; to find what lies in a wrong place, and to decide."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from somnet.report.class_pages import packed
from somnet.report.frame import Frame, write_data
from somnet.report.similar import nearest_among, wide

LAID_OUT = 3000  # images that t-SNE lays out; the others go where these are that they resemble
FEWEST = 30  # images from which on t-SNE tells more than the two directions in which they differ most
ANCHORS = 3  # laid-out images that another one is placed by
ITERATIONS = 500
SCATTER = 0.004  # of the map's side: keeps images with the same anchors apart
STEPS = 2**16 - 1  # of a place from 0 to 1
AT_ONCE = 2**15  # images that are placed together


def write_map_page(
    frame: Frame, vectors: NDArray[np.floating] | None, readable: NDArray[np.bool_], folder: Path
) -> None:
    """map.html, and data/map.js with the place of every image; without vectors a page that says why.

    Vectors (r, F) are those of the readable (n,) images.
    """
    frame.write_page(folder, "map.html", "map.html", page="Map", has_map=vectors is not None)
    if vectors is None:
        return
    places = np.zeros((len(readable), 2))
    places[readable] = lay_out(vectors)
    x, y = (packed(column.astype(np.uint16)) for column in np.rint(places * STEPS).T)
    write_data(folder, "map", {"x": x, "y": y, "steps": STEPS})


def lay_out(vectors: NDArray[np.floating], seed: int = 0) -> NDArray[np.float64]:
    """Places (n, 2) from 0 to 1 for vectors (n, F): near each other on the map is near each other in the vectors."""
    count = len(vectors)
    if count < FEWEST or not _differ(vectors):
        return _fit(_two_directions(wide(vectors, slice(None))))
    from sklearn.manifold import TSNE  # here, as it takes a second: a report begins without it

    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(count, LAID_OUT, replace=False)) if count > LAID_OUT else np.arange(count)
    model = TSNE(
        init="pca", perplexity=min(30.0, (len(some) - 1) / 3), max_iter=ITERATIONS, random_state=seed, n_jobs=1
    )
    laid = _fit(model.fit_transform(wide(vectors, some)).astype(np.float64))
    if count == len(some):
        return laid
    return _place_others(vectors, some, laid, rng)


def _place_others(
    vectors: NDArray[np.floating], some: NDArray[np.int64], laid: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """All images, `some` of which are laid out: each of the others amid those that it resembles most."""
    places = np.zeros((len(vectors), 2))
    places[some] = laid
    others = np.setdiff1d(np.arange(len(vectors)), some)
    for start in range(0, len(others), AT_ONCE):
        mine = others[start : start + AT_ONCE]
        anchors = nearest_among(vectors, mine, some, ANCHORS)  # (m, ANCHORS)
        middle = np.median(places[anchors], axis=1)  # not the mean: one anchor elsewhere would leave it in between
        places[mine] = middle + SCATTER * rng.standard_normal(middle.shape)
    return places.clip(0, 1)


def _differ(vectors: NDArray[np.floating]) -> bool:
    """Whether any of the vectors (n, F) is another than the first."""
    first = wide(vectors, slice(1))
    starts = range(0, len(vectors), AT_ONCE)
    return any((wide(vectors, slice(start, start + AT_ONCE)) != first).any() for start in starts)


def _two_directions(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """The two directions (n, 2) in which vectors differ most."""
    found = np.zeros((len(vectors), 2))
    if len(vectors):
        left, size, _ = np.linalg.svd(vectors - vectors.mean(axis=0, dtype=np.float64), full_matrices=False)
        width = min(2, len(size))
        found[:, :width] = left[:, :width] * size[:width]
    return found


def _fit(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same places within 0 to 1, in the middle, not stretched; where they reach farthest is from left to right."""
    if len(places) == 0:
        return places
    turned = places - places.mean(axis=0)
    turned = turned @ np.linalg.eigh(turned.T @ turned)[1][:, ::-1]
    low, high = turned.min(axis=0), turned.max(axis=0)
    fitted: NDArray[np.float64] = (turned - (low + high) / 2) / ((high - low).max() or 1.0) + 0.5
    return fitted
