"""The memory at web scale: search and update over the bare product and over the dense form, as a Markdown table.

    python benchmarks/winner.py [--pairs 5]

10,000 slots, 1,000 classes, features of 2,048: the memory of the paper's WebVision run, and the 672 ROIs of 32 images
with 20 boxes. What is compared takes turns in one process, so that other load on the machine hits both alike; a ratio
is of the medians. MiniSom has the same keys and gets the same features; it takes one of them at a time, and is timed
on some of them. Fails if a limit is missed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from minisom import MiniSom
from torch import Tensor
from torch.nn.functional import normalize

from somnet.core.losses import total_loss
from somnet.core.memory import SelfOrganizingMemory, memory_loss, to_simplex, winner
from somnet.system.allocator import keep_memory

SIDE, CLASSES, WIDTH, RADIUS = 100, 1000, 2048, 2
ROIS, BAGS = 672, 16
OF_MINISOM = 4  # features that MiniSom is timed on
MOST_SEARCH = 1.3
LR = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description="Search and update of a large memory.")
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    keep_memory()
    torch.manual_seed(0)
    memory = SelfOrganizingMemory(SIDE, WIDTH, CLASSES, RADIUS)
    rois, label = torch.randn(ROIS, WIDTH), torch.randint(CLASSES, (BAGS,))
    bags = rois[:BAGS]
    print(f"{SIDE**2:,} slots, {CLASSES:,} classes, {WIDTH:,} features, {torch.get_num_threads()} threads\n")
    print("| what | measured | limit |\n| --- | ---: | ---: |")
    kept = True
    for name, (changed, most, rows) in changed_rows(memory, bags, label).items():
        print(f"| rows of {name} that an update changes, of {rows:,} | {changed} | <= {most} |")
        kept &= 0 < changed <= most
    search = ratio(lambda: winner(rois, memory.keys), lambda: rois @ memory.keys.detach().T, pairs)
    print(f"| winners of {ROIS} ROIs / the bare matrix product | {search:.2f} | <= {MOST_SEARCH} |", flush=True)
    minisom = same_map(memory)
    theirs = ratio(lambda: winners_of(minisom, rois[:OF_MINISOM]), lambda: winner(rois, memory.keys), pairs)
    print(f"| MiniSom's winner / ours, per ROI | {theirs * ROIS / OF_MINISOM:.0f} | |", flush=True)
    same = winners_of(minisom, rois[:OF_MINISOM]) == winner(rois[:OF_MINISOM], memory.keys).tolist()
    print(f"| MiniSom finds the same winners | {'yes' if same else 'no'} | yes |", flush=True)
    update = ratio(lambda: dense_update(memory, bags, label), lambda: sparse_update(memory, bags, label), pairs)
    print(f"| update of all rows / of the neighbourhoods of {BAGS} bags | {update:.1f} | |", flush=True)
    learn = ratio(lambda: update_of(minisom, bags[:OF_MINISOM]), lambda: sparse_update(memory, bags, label), pairs)
    print(f"| MiniSom's update / ours, per bag | {learn * BAGS / OF_MINISOM:.0f} | |", flush=True)
    return 0 if search <= MOST_SEARCH and same and kept else 1


def ratio(first: Callable[[], object], second: Callable[[], object], pairs: int) -> float:
    """Time of the first over that of the second: medians of turns, the first of which is to warm up."""
    turns = [(seconds(first), seconds(second)) for _ in range(pairs + 1)][1:]
    above, below = (statistics.median(times) for times in zip(*turns, strict=True))
    return float(above / below)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sparse_update(memory: SelfOrganizingMemory, x: Tensor, label: Tensor) -> None:
    """What the training loop does to the memory in a step."""
    optimizer = torch.optim.SGD(memory.parameters(), lr=LR)
    slot = memory.nearest(x)[1][:, 0]
    torch.autograd.backward(total_loss(memory.losses(x, label, slot)))
    optimizer.step()
    optimizer.zero_grad()
    memory.project(slot, label)


def dense_update(memory: SelfOrganizingMemory, x: Tensor, label: Tensor) -> None:
    """The same with a gradient for every row, and every row projected."""
    optimizer = torch.optim.SGD(memory.parameters(), lr=LR)
    slot = memory.nearest(x)[1][:, 0]
    neighbour_keys = memory.keys[memory.neighbours[slot]]  # (B, K, F)
    losses = memory_loss(x, label, slot, neighbour_keys, memory.eta[slot], memory.d[slot], memory.r[label])
    torch.autograd.backward(total_loss(losses))
    optimizer.step()
    optimizer.zero_grad()
    memory.keys.data = normalize(memory.keys.data, dim=1)
    memory.d.data, memory.r.data = to_simplex(memory.d.data), to_simplex(memory.r.data)


def changed_rows(memory: SelfOrganizingMemory, x: Tensor, label: Tensor) -> dict[str, tuple[int, int, int]]:
    """Of each table: rows that a step changed, how many it may change, and how many there are."""
    before = {name: table.detach().clone() for name, table in memory.named_parameters()}
    near = len(set(memory.neighbours[memory.nearest(x)[1][:, 0]].flatten().tolist()))
    sparse_update(memory, x, label)
    most = {"keys": near, "d": near, "r": len(set(label.tolist()))}
    return {
        name: (int((table != before[name]).any(dim=1).sum()), most[name], len(table))
        for name, table in memory.named_parameters()
    }


def same_map(memory: SelfOrganizingMemory) -> MiniSom:
    """MiniSom with the keys of a memory."""
    som = MiniSom(SIDE, SIDE, WIDTH, sigma=RADIUS, learning_rate=LR, activation_distance="cosine", random_seed=0)
    som.get_weights()[:] = memory.keys.detach().view(SIDE, SIDE, WIDTH).numpy()  # it has no other way in
    return som


def winners_of(som: MiniSom, x: Tensor) -> list[int]:
    return [int(np.ravel_multi_index(som.winner(row), (SIDE, SIDE))) for row in x.numpy()]


def update_of(som: MiniSom, x: Tensor) -> None:
    for row in x.numpy():
        som.update(row, som.winner(row), 0, 1)


if __name__ == "__main__":
    sys.exit(main())
