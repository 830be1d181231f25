"""Images as vectors: what a network makes of each, as a table for other programs, and in few numbers for the report."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from somnet.config import Config
from somnet.data.bags import BagBatches, Inputs, each_image_once
from somnet.data.dataset import FORWARD_IMAGES, Part, make_inputs, warn_of_folders
from somnet.data.embeddings import COLUMN, NAME
from somnet.data.loading import load
from somnet.data.proposals import scan
from somnet.data.sources import open_source
from somnet.methods.base import Method
from somnet.nn.backbones import Network
from somnet.system.compute import Compute
from somnet.system.files import atomic_path, display_name
from somnet.system.progress import track

COMPACT = 64  # numbers per image, at most, in what the report gets
FITTED = 4000  # images that decide which directions these numbers are of


def embed(data: Path, network: Network, config: Config, compute: Compute) -> pa.Table:
    """A row per readable image: file_name, split, label, and the features of the whole image, before the classifier."""
    index = open_source(data, follow_links=config.follow_links)
    warn_of_folders(index)
    scanned = scan(index, config.proposals.model_copy(update={"max_boxes": 0}), compute.workers)
    rows = scanned.readable()
    part = Part(index.take(rows), scanned.take(rows), np.full(len(rows), -1))
    network = network.to(compute.device).eval()
    inputs = make_inputs(part, network, config.model.imgsz, compute)
    vectors = image_vectors(network, inputs, np.arange(len(rows)), compute)
    flat = np.concatenate([np.zeros((0, network.width), np.float32), *vectors]).ravel()
    labels = [None if label < 0 else index.classes[label] for label in part.labels.tolist()]
    return pa.table(
        {
            NAME: [display_name(name) for name in part.index.column("file_name")],
            "split": part.index.table["split"],
            "label": pa.array(labels, pa.string()),
            COLUMN: pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), network.width),
        }
    )


@torch.no_grad()
def image_vectors(
    network: Network, inputs: Inputs, rows: NDArray[np.int64], compute: Compute
) -> Iterator[NDArray[np.float32]]:
    """Features (I, F) of whole images, by their numbers, some at a time, in order."""
    bags = each_image_once(np.zeros(int(rows.max(initial=-1)) + 1, np.int64), rows)
    batches = BagBatches(bags, FORWARD_IMAGES, inputs, None, seed=None)
    for batch in load(batches, compute.loaders_of(cached=network.frozen_trunk), device=compute.device):
        yield network.image_features(batch.images).float().cpu().numpy()


def compact_vectors(network: Network, inputs: Inputs, count: int, compute: Compute) -> NDArray[np.float16]:
    """All images (n, at most COMPACT) by the directions in which they differ most, after scaling to unit length.

    Near each other there is similar to the network. Some images decide about the directions, so that the features
    of all of them are never in memory at once.
    """
    from sklearn.decomposition import PCA  # here, as it takes a second: most commands do without

    some = np.unique(np.linspace(0, count - 1, min(count, FITTED)).astype(np.int64))
    fitted = np.concatenate([*map(_unit, image_vectors(network, inputs, some, compute))])
    directions = PCA(min(COMPACT, *fitted.shape), random_state=0).fit(fitted)
    found = []
    with track("image vectors", count) as advance:
        for features in image_vectors(network, inputs, np.arange(count), compute):
            found.append(directions.transform(_unit(features)).astype(np.float16))
            advance(len(features))
    return np.concatenate(found)


def _unit(features: NDArray[np.float32]) -> NDArray[np.float32]:
    wide = np.nan_to_num(features).astype(np.float64)  # of a network that has gone wrong they may be anything
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return (wide / np.where(length > 0, length, 1)).astype(np.float32)


def untouched_network(method: Method, config: Config, compute: Compute) -> Network:
    """The network as it was before training, which no label has touched; without pretraining, the trained one."""
    network = method.network
    if config.model.pretrained:
        with torch.random.fork_rng(devices=[]):
            network = Network(config.model, method.classes).to(compute.device)
    return network.eval()


def write_embeddings(table: pa.Table, out: Path) -> None:
    """Parquet, written whole or not at all."""
    with atomic_path(out) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_vectors(file: Path, vectors: NDArray[np.float16]) -> None:
    """The same for compact vectors, as an array of numpy."""
    with atomic_path(file) as temporary, temporary.open("wb") as stream:
        np.save(stream, vectors, allow_pickle=False)
