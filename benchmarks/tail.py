"""Time of a training step of the tail over the bare matrix products in it, as a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/tail.py [--rounds 40]

The default network with its trunk frozen, 32 images. The tail is one convolution of single cells, that is a product
forward and one backward, for its weights; both are timed by themselves, as the faster of what torch has for them, a
convolution and a matrix product. A step is what the training loop does with a batch: losses, backward pass, a look for
NaN, the optimiser. All take turns, in one process and thread; milliseconds of the processor, medians. Fails if a
limit is missed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import conv2d

from somnet.config import Config
from somnet.core.types import BagBatch
from somnet.runs.run import build_method
from somnet.system.allocator import keep_memory
from somnet.system.compute import Compute
from somnet.training.optim import enter_phase, learning_rates, set_rates
from somnet.training.step import Stepper

METHODS = ("plain", "somnet+")
IMAGES, CLASSES, LIMIT = 32, 10, 1.3


def batch(shape: tuple[int, ...], labels: torch.Tensor) -> BagBatch:
    """Made-up maps of a trunk, in half precision, as they come from the cache."""
    maps = torch.randn(IMAGES, *shape, generator=torch.Generator().manual_seed(0)).half()
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(IMAGES, 1, 1, 4)
    rows, mask = torch.arange(IMAGES)[:, None], torch.ones(IMAGES, 1, 1, dtype=torch.bool)
    return BagBatch(rows, labels[:IMAGES], boxes, mask, maps)


def step_of(name: str) -> Callable[[], object]:
    """A step of a method."""
    config = Config().with_settings({"method": name})
    labels = np.arange(10 * IMAGES) % CLASSES
    method = build_method(config, labels, CLASSES).train()
    stepper, phase = Stepper(method, config.train, Compute(workers=0)), method.plan()[0]
    enter_phase(stepper.optimizer, phase)
    set_rates(stepper.optimizer, learning_rates(phase, 0.0))
    images = batch(method.network.input_shape, torch.from_numpy(labels))
    return lambda: stepper.take(images, phase, taking_part=True)


def bare_products() -> tuple[Callable[[], object], Callable[[], object]]:
    """The product of the tail and the one for its weights' gradient: as a convolution, and of matrices."""
    method = build_method(Config().with_settings({"method": "plain"}), np.zeros(0, np.int64), CLASSES)
    width, cells = method.network.width, int(np.prod(method.network.input_shape[1:]))
    maps = torch.randn(IMAGES, *method.network.input_shape)
    weight = torch.randn(width, len(maps[0]), 1, 1, requires_grad=True)
    gradient = torch.randn(IMAGES, width, *maps.shape[2:])
    rows, columns = torch.randn(IMAGES * cells, len(maps[0])), weight.detach().flatten(1)
    back = torch.randn(IMAGES * cells, width)
    return (
        lambda: torch.autograd.grad(conv2d(maps, weight), weight, gradient),
        lambda: (torch.mm(rows, columns.T), torch.mm(back.T, rows)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="A step of the tail over its bare matrix products.")
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    keep_memory()
    convolution, product = bare_products()
    work = {"products, as convolutions": convolution, "products, of matrices": product}
    work |= {f"a step of {name}": step_of(name) for name in METHODS}
    times: dict[str, list[float]] = {what: [] for what in work}
    for _ in range(rounds + 3):  # the first are to warm up
        for what, run in work.items():
            began = time.process_time()
            run()
            times[what].append(time.process_time() - began)
    took = {what: 1000 * statistics.median(all_of[3:]) for what, all_of in times.items()}
    bare = min(list(took.values())[:2])
    print("| what | ms | over the products | limit |\n|---|---:|---:|---:|")
    for what, ms in took.items():
        print(f"| {what} | {ms:.1f} | {ms / bare:.2f} | {LIMIT if what.startswith('a step') else ''} |")
    return 0 if all(ms <= LIMIT * bare for what, ms in took.items() if what.startswith("a step")) else 1


if __name__ == "__main__":
    sys.exit(main())
