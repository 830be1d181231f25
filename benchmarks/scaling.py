"""How cost grows with images, classes and slots, as one Markdown table.

    python -m benchmarks.scaling [--images 1000 10000 100000 1000000]

Images: all stages of benchmarks/million.py. Classes: the bags of an epoch of 100,000 images, and an update of a
memory of 144 slots. Slots: the winners of 672 ROIs, and an update of a memory for 1,000 classes. Processor time, the
median of several turns but for the images; where cost grows in proportion, the last column stays the same.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.million import stages
from benchmarks.winner import BAGS, RADIUS, ROIS, WIDTH, sparse_update
from somnet.core.memory import SelfOrganizingMemory, winner
from somnet.data.bags import draw_bags
from somnet.system.allocator import keep_memory

CLASSES, SIDES = (10, 100, 1000), (4, 12, 32, 100)
FEW_SLOTS_SIDE, MANY_CLASSES, IMAGES = 12, 1000, 100_000
TURNS = 5

Row = tuple[str, int, str, float]  # what grows, to how many, the work, its seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="How cost grows with images, classes and slots.")
    parser.add_argument("--images", type=int, nargs="*", default=[1000, 10_000, 100_000, 1_000_000])
    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| what grows | to | work | CPU, ms | CPU, µs each |\n| --- | ---: | --- | ---: | ---: |")
    for what, size, work, spent in rows(parser.parse_args().images):
        print(f"| {what} | {size:,} | {work} | {1e3 * spent:,.1f} | {1e6 * spent / size:,.1f} |", flush=True)


def rows(images: list[int]) -> Iterator[Row]:
    for side in SIDES:
        memory = SelfOrganizingMemory(side, WIDTH, MANY_CLASSES, RADIUS)
        rois, label = torch.randn(ROIS, WIDTH), torch.randint(MANY_CLASSES, (BAGS,))
        search, update = winner_work(memory, rois), update_work(memory, rois[:BAGS], label)
        yield "slots", side**2, f"winners of {ROIS} ROIs", cpu_seconds(search)
        yield "slots", side**2, f"update of the memory by {BAGS} bags", cpu_seconds(update)
    for classes in CLASSES:
        memory = SelfOrganizingMemory(FEW_SLOTS_SIDE, WIDTH, classes, RADIUS)
        update = update_work(memory, torch.randn(BAGS, WIDTH), torch.randint(classes, (BAGS,)))
        yield "classes", classes, f"update of the memory by {BAGS} bags", cpu_seconds(update)
        yield "classes", classes, f"bags of {IMAGES:,} images", cpu_seconds(draw_work(classes))
    for count in images:
        spent = sum(stage.cpu_seconds for stage in stages(count, MANY_CLASSES))
        yield "images", count, "all stages from index to tables", spent


def winner_work(memory: SelfOrganizingMemory, rois: torch.Tensor) -> Callable[[], object]:
    return lambda: winner(rois, memory.keys)


def update_work(memory: SelfOrganizingMemory, x: torch.Tensor, label: torch.Tensor) -> Callable[[], object]:
    return lambda: sparse_update(memory, x, label)


def draw_work(classes: int) -> Callable[[], object]:
    labels = np.random.default_rng(0).integers(0, classes, IMAGES)
    return lambda: draw_bags(labels, 2, np.random.default_rng(0))


def cpu_seconds(work: Callable[[], object]) -> float:
    """The median of some turns, the first of which is to warm up."""
    times = []
    for _ in range(TURNS + 1):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
