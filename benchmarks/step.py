"""Time of one joint step of SOMNet over one step of plain cross entropy on the same images, as a Markdown table.

    python benchmarks/step.py [--pairs 5]

ResNet-50 trained whole at 224 pixels, 16 images in 8 bags, 20 boxes each: with 144 slots and 14 classes, and with
10,000 slots and 1,000 classes. A step is what the training loop does: losses, backward, optimiser, projection. Both
take turns, in one process; the ratio is of their medians. Fails if a limit is missed.
"""

import argparse
import statistics
import sys
import time

import numpy as np
import torch

from somnet.config import Config
from somnet.core.losses import total_loss
from somnet.core.types import BagBatch
from somnet.methods.base import Method
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.training.optim import enter_phase, learning_rates, make_optimizer, set_rates

BAGS, IMAGES_PER_BAG, PROPOSALS, PIXELS = 8, 2, 20, 224
CASES = ((12, 14, 1.15), (100, 1000, 1.25))  # side of the memory, classes, largest ratio


class Stepper:
    """A method in its last phase, ready to step."""

    def __init__(self, name: str, side: int, classes: int) -> None:
        settings = {
            "method": name,
            "model.name": "resnet50",
            "model.pretrained": False,
            "model.freeze": "none",
            "model.imgsz": PIXELS,
            "somnet.memory.side": side,
            "somnet.images_per_bag": IMAGES_PER_BAG,
        }
        config = Config().with_settings(settings)
        self.method: Method = build_method(config, np.zeros(0, np.int64), classes).train()
        self.phase = self.method.plan()[-1]
        self.optimizer = make_optimizer(self.method, config.train)
        enter_phase(self.optimizer, self.phase)

    def seconds(self, batch: BagBatch) -> tuple[float, float]:
        """Of one step: by the clock, and of the processor, which other load on the machine disturbs less."""
        start, start_cpu = time.perf_counter(), time.process_time()
        set_rates(self.optimizer, learning_rates(self.phase, 0.0))
        step = self.method.step(batch, self.phase)
        total = total_loss(step.losses)
        values = [float(loss.detach()) for loss in step.losses.values()]  # what the loop logs
        assert all(np.isfinite(values))
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        self.optimizer.step()
        self.method.after_step(step.pending)
        return time.perf_counter() - start, time.process_time() - start_cpu


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of a joint step over a step of plain cross entropy.")
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    keep_memory()
    print("| what | measured | limit |\n| --- | ---: | ---: |")
    good = [row(side, classes, limit, pairs) for side, classes, limit in CASES]
    return 0 if all(good) else 1


def row(side: int, classes: int, limit: float, pairs: int) -> bool:
    plain, somnet = Stepper("plain", side, classes), Stepper("somnet", side, classes)
    bags, images = make_bags(plain.method, classes)
    turns = [(plain.seconds(images), somnet.seconds(bags)) for _ in range(pairs + 1)][1:]  # the first is to warm up
    by_clock, by_cpu = (median_ratio([(a[kind], b[kind]) for a, b in turns]) for kind in (0, 1))
    what = f"joint step / plain step, {side * side:,} slots, {classes:,} classes"
    print(f"| {what} | {by_clock:.3f} | <= {limit} |")
    print(f"| the same in processor time | {by_cpu:.3f} | |", flush=True)
    for (a, a_cpu), (b, b_cpu) in turns:
        print(f"plain {a:.2f} s ({a_cpu:.2f} s CPU), joint {b:.2f} s ({b_cpu:.2f} s CPU)", file=sys.stderr)
    return by_clock <= limit


def median_ratio(pairs: list[tuple[float, float]]) -> float:
    """Of the second to the first."""
    return statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs)


def make_bags(method: Method, classes: int) -> tuple[BagBatch, BagBatch]:
    """The same images twice: in bags for SOMNet, and each alone for plain cross entropy."""
    generator = torch.Generator().manual_seed(0)
    count = BAGS * IMAGES_PER_BAG
    pixels = torch.randint(256, (count, 3, PIXELS, PIXELS), generator=generator, dtype=torch.uint8)
    low = 0.6 * torch.rand(count, PROPOSALS + 1, 2, generator=generator)
    boxes = torch.cat([low, low + 0.1 + 0.3 * torch.rand(low.shape, generator=generator)], dim=2)  # (I, P, 4)
    boxes[:, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    label = torch.randint(classes, (BAGS,), generator=generator)
    rows = torch.arange(count).view(BAGS, IMAGES_PER_BAG)
    mask = torch.ones(count, PROPOSALS + 1, dtype=torch.bool)
    with torch.no_grad():
        inputs = method.network.prepare(pixels)
    bags = BagBatch(rows, label, boxes.view(*rows.shape, -1, 4), mask.view(*rows.shape, -1), inputs)
    singles = BagBatch(rows.view(-1, 1), label.repeat_interleave(IMAGES_PER_BAG), boxes[:, None], mask[:, None], inputs)
    return bags, singles


if __name__ == "__main__":
    sys.exit(main())
