"""What the self-organizing memory converges to, as a Markdown table.

    python benchmarks/memory.py [--bags 10000] [--seed 0]

Values: with fixed clusters, D and R after a stream of bags against the ratios counted over the same bags. Order: the
topographic error (share of inputs whose two nearest keys are not neighbours on the grid) with radius 2 over that with
radius 0. MiniSom is trained on the same inputs in the same order for comparison. Fails if a limit is missed.
"""

import argparse
import sys

import torch
from minisom import MiniSom
from torch import Tensor
from torch.nn.functional import normalize

from somnet.core.grid import geodesic_distance
from somnet.core.losses import total_loss
from somnet.core.memory import SelfOrganizingMemory, exact_ratios, similarity
from somnet.system.allocator import keep_memory

VALUE_LR, KEY_LR = 0.01, 0.5  # the defaults of the config
WIDTH = 64
SMALL, DEFAULT = (4, 5), (12, 14)  # side of the memory, classes
BATCH = 16
MAP_SIDE, MAP_DATA = 6, 4000
MOST_DIFFERENCE, MOST_RATIO = 0.05, 0.5

Row = tuple[str, float, str, bool]


def main() -> int:
    parser = argparse.ArgumentParser(description="What the self-organizing memory converges to.")
    parser.add_argument("--bags", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    keep_memory()
    rows = [*value_rows(arguments.bags, arguments.seed), *order(arguments.bags, arguments.seed)]
    print("| what | measured | limit |\n| --- | ---: | ---: |")
    for what, measured, limit, _ in rows:
        print(f"| {what} | {measured:.4f} | {limit} |")
    return 0 if all(good for *_, good in rows) else 1


def values(side: int, classes: int, bags: int, seed: int) -> list[tuple[str, float, float]]:
    """Mean difference of D and R from the exact ratios, before and after a stream of bags on fixed clusters."""
    torch.manual_seed(seed)
    memory = SelfOrganizingMemory(side, WIDTH, classes, radius=0)
    centres = memory.keys.detach().clone()  # (L, F) fixed: only the values are trained
    chances = torch.rand(classes, side**2) ** 3  # each class prefers some slots
    label = torch.randint(classes, (bags,))
    slot = torch.multinomial(chances[label], 1).squeeze(1)
    exact = exact_ratios(slot, label, side**2, classes)
    before = differences(memory, exact)
    train(memory, [memory.d, memory.r], VALUE_LR, centres[slot], label)
    return list(zip("DR", before, differences(memory, exact), strict=True))


def value_rows(bags: int, seed: int) -> list[Row]:
    """The limit is for the small memory: with many slots the ratios are so small that an untrained R would pass."""
    rows: list[Row] = []
    for side, classes in (SMALL, DEFAULT):
        for name, before, after in values(side, classes, bags, seed):
            where = f"{name}, {side * side} slots, {classes} classes"
            limited = (side, classes) == SMALL
            rows.append((f"untrained difference from the exact ratios, {where}", before, "", True))
            limit = f"<= {MOST_DIFFERENCE}" if limited else ""
            rows.append(
                (f"difference from the exact ratios, {where}", after, limit, not limited or after <= MOST_DIFFERENCE)
            )
    return rows


def differences(memory: SelfOrganizingMemory, exact: tuple[Tensor, Tensor]) -> list[float]:
    pairs = zip((memory.d, memory.r), exact, strict=True)
    return [float((ours.detach() - theirs).abs().mean()) for ours, theirs in pairs]


def order(bags: int, seed: int) -> list[Row]:
    """Order of the grid on a square, which cosine sees as a patch of the sphere."""
    generator = torch.Generator().manual_seed(seed)
    plane = 2 * torch.rand(MAP_DATA, 2, generator=generator) - 1
    data = normalize(torch.cat([plane, torch.ones(MAP_DATA, 1)], dim=1), dim=1)
    stream = data[torch.randint(MAP_DATA, (bags,), generator=generator)]
    found = {}
    for radius in (2, 0):
        memory = SelfOrganizingMemory(MAP_SIDE, 3, 2, radius)
        memory.start_from(data, torch.Generator().manual_seed(seed))
        train(memory, [memory.keys], KEY_LR, stream, torch.zeros(bags, dtype=torch.long))
        found[f"radius {radius}"] = errors(memory.keys.detach(), data)
    theirs = MiniSom(MAP_SIDE, MAP_SIDE, 3, sigma=2.0, learning_rate=KEY_LR, random_seed=seed)
    theirs.random_weights_init(data.numpy())
    theirs.train(stream.numpy(), bags)
    found["MiniSom"] = errors(torch.from_numpy(theirs.get_weights().reshape(-1, 3)).float(), data)
    ratio = found["radius 2"][0] / found["radius 0"][0]
    rows: list[Row] = [("topographic error, radius 2 / radius 0", ratio, f"<= {MOST_RATIO}", ratio <= MOST_RATIO)]
    for name, (topographic, quantisation) in found.items():
        rows.append((f"topographic error, {name}", topographic, "", True))
        rows.append((f"quantisation error, {name}", quantisation, "", True))
    return rows


def errors(keys: Tensor, data: Tensor) -> tuple[float, float]:
    """Topographic error, and mean distance of unit inputs to the nearest key, both by the direction of the keys."""
    nearest = similarity(data, normalize(keys, dim=1)).topk(2, dim=1)
    best, second = nearest.indices.T
    topographic = (geodesic_distance(best, second, MAP_SIDE) > 1).float().mean()
    distance = (2 - 2 * nearest.values[:, 0]).clamp(min=0).sqrt()  # of two unit vectors
    return float(topographic), float(distance.mean())


def train(memory: SelfOrganizingMemory, tables: list[torch.nn.Parameter], lr: float, x: Tensor, label: Tensor) -> None:
    """Steps of the training loop, on some of the tables."""
    optimizer = torch.optim.SGD(tables, lr=lr)
    for start in range(0, len(label), BATCH):
        part = slice(start, start + BATCH)
        optimizer.zero_grad()
        slot = memory.nearest(x[part])[1][:, 0]
        torch.autograd.backward(total_loss(memory.losses(x[part], label[part], slot)))
        optimizer.step()
        memory.project(slot, label[part])


if __name__ == "__main__":
    sys.exit(main())
