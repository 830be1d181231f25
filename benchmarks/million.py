"""A million made-up images from index to score tables: time and memory of each stage, as a Markdown table.

    python benchmarks/million.py [--images 1000000] [--classes 1000]

A record is a stretch of one file that holds a hundred small JPEGs, so that everything but the finding of boxes runs
as it does on a data set of that size: the cache is filled beforehand. Memory is the highest that the process held
during the stage, less what it held before; a worker's own memory is what it shares with no other process, after it
has handed over thousands of images. Processor seconds say more than those of the clock on a machine that has other
work. Fails if a limit is missed.
"""

import argparse
import io
import math
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.data.bags import BagBatches, Boxes, PixelInputs, count_bags, draw_bags
from somnet.data.checked_tables import TABLE, write_checked
from somnet.data.dataset import FORWARD_IMAGES, DataSet, Part, Unreadable
from somnet.data.duplicates import HASH_BYTES, group_duplicates
from somnet.data.index import Index, index_from_columns
from somnet.data.loading import load
from somnet.data.location import KEY_BYTES, content_key
from somnet.data.picture_quality import STORED
from somnet.data.proposals import (
    FILES_PER_CHUNK,
    FILES_SCHEMA,
    SCAN_SCHEMA,
    SETTLED_NS,
    Scan,
    files_table,
    scan,
    scan_folder,
)
from somnet.methods.base import Inspection, Method, Step
from somnet.methods.sample_table import SampleTable
from somnet.nn.backbones import Network
from somnet.runs.file_issues import with_file_issues
from somnet.runs.label_scores import LabelScores, with_label_scores
from somnet.runs.scoring import against_truth, inspect_images, with_unreadable, write_issues
from somnet.system.compute import Compute

CONFIG = Config()
PICTURES = 100  # different ones
SIDE = 96  # of a picture, in pixels
COPIES = 0.02  # share of the images that are copies of others
WORKERS, BAGS_PER_BATCH, IMAGES_PER_BAG = 2, 32, 2
BATCHES = 300  # that the workers hand over before their memory is measured
OWN_MEGABYTES = 50
SCORING_MEGABYTES = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """What a stage took."""

    name: str
    cpu_seconds: float
    seconds: float
    megabytes: float
    most_megabytes: float = float("inf")


def main() -> int:
    parser = argparse.ArgumentParser(description="A million made-up images from index to score tables.")
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{arguments.images:,} images, {arguments.classes:,} classes\n")
    print("| stage | CPU s | s | MB | limit, MB |\n| --- | ---: | ---: | ---: | ---: |")
    good = True
    for stage in stages(arguments.images, arguments.classes):
        limit = "" if math.isinf(stage.most_megabytes) else f"< {stage.most_megabytes:.0f}"
        cells = f"{stage.cpu_seconds:.1f} | {stage.seconds:.1f} | {stage.megabytes:.0f} | {limit}"
        print(f"| {stage.name} | {cells} |", flush=True)
        good &= stage.megabytes < stage.most_megabytes
    return 0 if good else 1


def stages(images: int, classes: int) -> Iterator[Stage]:
    """From index to tables."""
    with tempfile.TemporaryDirectory() as name:
        os.environ["SOMNET_CACHE"] = f"{name}/cache"
        folder = Path(name)
        columns = make_images(folder, images, classes)
        names = [f"class {number}" for number in range(classes)]
        index, stage = timed("index", lambda: index_from_columns(folder, names, columns))
        yield stage
        fill_cache(index)
        found, stage = timed("scan, all in the cache", lambda: scan(index, CONFIG.proposals))
        yield stage
        groups, stage = timed("duplicates", lambda: group_duplicates(found.keys, found.hashes))
        yield stage
        data = DataSet(folder, index.classes, Part(index, found, groups), None, ())
        yield timed("fingerprint", data.fingerprint)[1]
        labels, rng = index.labels(), np.random.default_rng(0)
        bags, stage = timed("bags of an epoch", lambda: draw_bags(labels, IMAGES_PER_BAG, rng, groups=groups))
        yield stage
        yield timed("number of bags", lambda: count_bags(labels, IMAGES_PER_BAG, np.arange(images), groups))[1]
        lookups = Lookups(index, found)
        readable = Boxes(replace(found, keys=true_keys(index)))
        yield workers_memory("pixels", BagBatches(bags, BAGS_PER_BATCH, PixelInputs(index, readable, 64), None, 0))
        yield workers_memory("look-ups alone", BagBatches(bags, BAGS_PER_BATCH, lookups, None, 0))
        yield timed("soft labels, all read and written", lambda: turn_over(SampleTable(images, classes), classes))[1]
        method = MadeUp(classes, CONFIG.proposals.max_boxes + 1)
        part = Part(index, found, groups)
        scored, stage = timed(
            f"scores, {int(found.counts.sum()) + images:,} regions written",
            lambda: inspect_images(method, part, lookups, Compute(workers=0), folder),
        )
        yield replace(stage, most_megabytes=SCORING_MEGABYTES)
        belief = scored["belief"].to_numpy()
        made_up = LabelScores(belief, np.ones(images, np.float32), np.full(images, -1))
        scored = with_label_scores(scored, made_up, index.classes)
        scored, stage = timed("issues of the files", lambda: with_file_issues(scored, data))
        yield stage
        yield timed("scores against the truth", lambda: against_truth(scored, part))[1]
        scored = with_unreadable(scored, [Unreadable("bad.jpg", "class 0", "train", "the file is empty")])
        yield timed("table of the images written", lambda: write_issues(folder, scored))[1]


def timed(name: str, work: Callable[[], T]) -> tuple[T, Stage]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before, began, worked = memory("VmRSS"), time.monotonic(), time.process_time()
    result = work()
    cpu, clock = time.process_time() - worked, time.monotonic() - began
    return result, Stage(name, cpu, clock, memory("VmHWM") - before)


def make_images(folder: Path, count: int, classes: int) -> dict[str, pa.Array]:
    """A file of JPEGs, and the columns of an index of stretches of it."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(PICTURES):
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(stream, "JPEG")
        files.append(stream.getvalue())
    (folder / "shard.tar").write_bytes(b"".join(files))
    sizes = np.array([len(file) for file in files])
    picture, label = np.arange(count) % PICTURES, rng.integers(0, classes, count)
    return {
        "file_name": pa.array([b"train/class %d/%09d.jpg" % pair for pair in zip(label, range(count), strict=True)]),
        "label": pa.array(label),
        "split": pa.array(["train"]).take(pa.array(np.zeros(count, np.int64))),
        "true_label": pa.array([f"class {i}" for i in range(classes)]).take(pa.array(rng.permutation(label))),
        "archive": pa.array([b"shard.tar"]).take(pa.array(np.zeros(count, np.int64))),
        "offset": pa.array((np.cumsum(sizes) - sizes)[picture]),
        "size": pa.array(sizes[picture]),
    }


def fill_cache(index: Index) -> None:
    """What a first scan would leave: a key, twenty boxes, a hash and measures per image, some of them copies."""
    rng = np.random.default_rng(1)
    count, boxes = len(index), CONFIG.proposals.max_boxes
    same = np.where(rng.random(count) < COPIES, rng.integers(0, count, count), np.arange(count))
    keys, hashes = (
        fixed(rng.integers(0, 256, (count, width), np.uint8)).take(pa.array(same)) for width in (16, HASH_BYTES)
    )
    shard = os.stat(index.root / "shard.tar")
    stamps = (np.full(count, value) for value in (shard.st_mtime_ns, shard.st_ctime_ns, shard.st_ino))
    columns = [index.table["file_name"], index.table["size"], *map(pa.array, stamps), keys]
    write_checked(files_table(index.root), pa.table(columns, schema=FILES_SCHEMA))
    time.sleep(SETTLED_NS / 1e9)  # what has just been changed is not trusted
    for start in range(0, count, FILES_PER_CHUNK):
        rows = min(FILES_PER_CHUNK, count - start)
        pixels = rng.random((rows * boxes, 4), np.float32) * SIDE
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * 4 * boxes)
        side = pa.array(np.full(rows, SIDE, np.int32))
        lists = pa.ListArray.from_arrays(ends, pa.array(pixels.ravel()))
        measured = np.arange(rows + 1, dtype=np.int32) * STORED
        quality = pa.ListArray.from_arrays(measured, np.full(rows * STORED, 0.5, np.float32))
        columns = [keys[start : start + rows], side, side, lists, hashes[start : start + rows], quality, pa.nulls(rows)]
        scanned = pa.Table.from_arrays(columns, names=SCAN_SCHEMA.names).cast(SCAN_SCHEMA)
        write_checked(scan_folder(CONFIG.proposals) / f"{start}{TABLE}", scanned)


def true_keys(index: Index) -> pa.Array:
    """Of what the files really hold: whoever reads a picture checks it."""
    keys = [content_key(index.location(row).open()) for row in range(min(PICTURES, len(index)))]
    return pa.array(keys, pa.binary(KEY_BYTES)).take(pa.array(np.arange(len(index)) % PICTURES))


def fixed(values: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.Array:
    count, width = values.shape
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(values.tobytes())])


@dataclass(frozen=True)
class Lookups:
    """Where an image is and what its boxes are, without opening it."""

    index: Index
    scan: Scan

    def __call__(self, row: int, seed: int | None) -> tuple[Tensor, Tensor, Tensor]:
        self.index.location(row)
        return torch.zeros(1, 1, 1), *Boxes(self.scan)(row)


def workers_memory(name: str, batches: BagBatches) -> Stage:
    """What the greediest of some workers has of its own, while it works."""
    began, last = time.monotonic(), min(BATCHES, len(batches)) - 1
    for number, _ in enumerate(load(batches, WORKERS)):
        if number == last:
            own = max(own_megabytes(child.pid) for child in multiprocessing.active_children() if child.pid)
            break
    return Stage(f"a worker's own memory, {name}", 0.0, time.monotonic() - began, own, OWN_MEGABYTES)


def own_megabytes(pid: int) -> float:
    """Memory that a process shares with no other."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)) / 1e3


def memory(kind: str) -> float:
    found = re.search(rf"^{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1e3 if found else 0.0


def turn_over(table: SampleTable, classes: int) -> None:
    chances = torch.rand(4096, classes).softmax(dim=1)
    for rows in torch.split(torch.arange(len(table.rest)), len(chances)):
        table.put(rows, 0.5 * table.get(rows) + 0.5 * chances[: len(rows)])


class MadeUp(Method):
    """Scores without a look at the image: the tables are what is measured."""

    def __init__(self, classes: int, boxes: int) -> None:
        torch.nn.Module.__init__(self)
        self.network = Network(CONFIG.model, 2)  # which is asked nothing
        self.chances = torch.rand(FORWARD_IMAGES, classes).softmax(dim=1)
        self.weights = torch.rand(FORWARD_IMAGES, boxes)

    def plan(self) -> tuple[Phase, ...]:
        return ()

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        return Step({})

    def inspect(self, batch: BagBatch) -> Inspection:
        count = len(batch.label)
        score, weights = self.chances[:count, 0] * 500, self.weights[:count]
        details = dict.fromkeys(("d", "r", "a", "similarity"), weights) | {"slot": (weights * 100).long()}
        return Inspection(self.chances[:count], score, score, weights, weights.argmax(dim=1), details)


if __name__ == "__main__":
    sys.exit(main())
