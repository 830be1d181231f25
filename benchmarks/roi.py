"""Exactness and speed of the ROI features against torchvision's roi_align, as a Markdown table of ratios.

    python benchmarks/roi.py [--repeats 5] [--images 32]

Forward and backward for 32 images x 21 boxes x 2048 x 7 x 7 in float32. Exactness: boxes that lie on the grid of the
map enlarged 4 times, averaged there cell by cell. Speed: medians of runs that take turns. Fails if a limit is missed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torchvision.ops import roi_align

from somnet.nn.roi import pool_boxes
from somnet.system.allocator import keep_memory

BOXES, WIDTH, SIDE = 21, 2048, 7
FACTOR = 4  # the enlarged map of the reference has FACTOR * SIDE cells per side
MOST_DIFFERENCE = 1e-5
LEAST_RATIOS = {1: 10.0, 7: 100.0}  # by the side of roi_align's output

Pool = Callable[[Tensor, Tensor], Tensor]


def main() -> int:
    parser = argparse.ArgumentParser(description="Exactness and speed of the ROI features.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=32)
    arguments = parser.parse_args()
    keep_memory()
    torch.manual_seed(0)
    maps = torch.randn(arguments.images, WIDTH, SIDE, SIDE)
    boxes = aligned_boxes(arguments.images)  # (I, P, 4)
    gradient = torch.randn(arguments.images, BOXES, WIDTH)

    rows = []
    ours, exact = run(pool_boxes, maps, boxes, gradient), run(dense, maps, boxes, gradient)
    for name, got, expected in zip(("features", "gradient"), ours, exact, strict=True):
        difference = float((got - expected).abs().max())
        rows.append((f"largest difference from the dense {name}", difference, f"<= {MOST_DIFFERENCE:g}"))
    good = [difference <= MOST_DIFFERENCE for _, difference, _ in rows]

    pools: list[Pool] = [pool_boxes, *(torchvision_pool(side) for side in LEAST_RATIOS)]
    ours_seconds, *others = medians([partial(run, pool, maps, boxes, gradient) for pool in pools], arguments.repeats)
    for (side, least), seconds in zip(LEAST_RATIOS.items(), others, strict=True):
        ratio = seconds / ours_seconds
        rows.append((f"time of roi_align {side}x{side} / ours", ratio, f">= {least:g}"))
        good.append(ratio >= least)

    print("| what | measured | limit |\n| --- | ---: | ---: |")
    for what, measured, limit in rows:
        print(f"| {what} | {measured:.3g} | {limit} |")
    return 0 if all(good) else 1


def aligned_boxes(images: int) -> Tensor:
    """Random boxes (I, P, 4) as shares, with corners on the enlarged grid; box 0 is the image."""
    cells = FACTOR * SIDE
    low = torch.randint(cells - 1, (images, BOXES, 2))
    length = 1 + (torch.rand(images, BOXES, 2) * (cells - low)).long()
    corners = torch.cat([low, (low + length).clamp(max=cells)], dim=2)
    corners[:, 0] = torch.tensor([0, 0, cells, cells])
    return corners / cells


def dense(maps: Tensor, boxes: Tensor) -> Tensor:
    """Means over the cells of the map enlarged by nearest neighbour."""
    corners = (boxes * FACTOR * SIDE).round().long().tolist()
    images = []
    for image, own in zip(maps, corners, strict=True):
        large = image.repeat_interleave(FACTOR, 1).repeat_interleave(FACTOR, 2)  # (F, H, W)
        images.append(torch.stack([large[:, y1:y2, x1:x2].mean(dim=(1, 2)) for x1, y1, x2, y2 in own]))
    return torch.stack(images)


def torchvision_pool(output: int) -> Pool:
    def pool(maps: Tensor, boxes: Tensor) -> Tensor:
        found: Tensor = roi_align(maps, list(boxes * SIDE), output, aligned=True)
        return found.mean(dim=(2, 3)).view(len(maps), BOXES, WIDTH)

    return pool


def run(pool: Pool, maps: Tensor, boxes: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Features, and the gradient of the maps."""
    maps = maps.detach().requires_grad_()
    features = pool(maps, boxes)
    return features.detach(), torch.autograd.grad(features, maps, gradient)[0]


def medians(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of each work, which take turns so that other load on the machine hits all alike."""
    seconds: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        for own, work in zip(seconds, works, strict=True):
            start = time.perf_counter()
            work()
            if turn:  # the first turn pays for set-up
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in seconds]


if __name__ == "__main__":
    sys.exit(main())
