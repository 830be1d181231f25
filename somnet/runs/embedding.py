"""Images as vectors: what a network makes of each, as a table for other programs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from somnet.config import Config
from somnet.data.bags import BagBatches, each_image_once, load
from somnet.data.dataset import FORWARD_IMAGES, Part, make_inputs, warn_of_folders
from somnet.data.proposals import scan
from somnet.data.sources import open_source
from somnet.nn.backbones import Network
from somnet.system.compute import Compute
from somnet.system.files import atomic_path, display_name

COLUMN = "embedding"


@torch.no_grad()
def embed(data: Path, network: Network, config: Config, compute: Compute) -> pa.Table:
    """A row per readable image: file_name, split, label, and the features of the whole image, before the classifier."""
    index = open_source(data, follow_links=config.follow_links)
    warn_of_folders(index)
    scanned = scan(index, config.proposals.model_copy(update={"max_boxes": 0}), compute.workers)
    rows = scanned.readable()
    part = Part(index.take(rows), scanned.take(rows), np.full(len(rows), -1))
    network = network.to(compute.device).eval()
    inputs = make_inputs(part, network, config.model.imgsz, compute)
    batches = BagBatches(each_image_once(np.zeros(len(rows), np.int64)), FORWARD_IMAGES, inputs, None, seed=None)
    found = load(batches, compute.loaders_of(cached=network.frozen_trunk))
    vectors = [network.image_features(batch.images.to(compute.device)).float().cpu() for batch in found]
    flat = torch.cat([torch.zeros(0, network.width), *vectors]).numpy().ravel()
    labels = [None if label < 0 else index.classes[label] for label in part.labels.tolist()]
    return pa.table(
        {
            "file_name": [display_name(name) for name in part.index.column("file_name")],
            "split": part.index.table["split"],
            "label": pa.array(labels, pa.string()),
            COLUMN: pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), network.width),
        }
    )


def write_embeddings(table: pa.Table, out: Path) -> None:
    """Parquet, written whole or not at all."""
    with atomic_path(out) as temporary:
        pq.write_table(table, temporary, compression="zstd")
