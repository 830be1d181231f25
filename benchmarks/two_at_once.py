"""What a second training on the same machine costs the first, by how threads wait, as a Markdown table.

    python benchmarks/two_at_once.py [--rounds 7] [--steps 10]

Processes that train the tail of the default network on feature maps, 32 images at a time, each with as many threads as
there are cores: as somnet has its threads wait, as OpenMP does where nobody tells it otherwise, and without any
spinning. In each round every kind trains alone and then two at once; all take turns, times are by the clock, and
medians. On 2 cores, two that lose nothing take at most twice as long as one.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from somnet.system.cores import SPINS

WAITING: dict[str, dict[str, str]] = {
    f"as somnet does ({SPINS:,} spins)": {},
    "as OpenMP does (300,000 spins)": {"GOMP_SPINCOUNT": "300000"},
    "without spinning": {"GOMP_SPINCOUNT": "0"},
}


def train_when_told() -> None:
    """What a process does: some steps for every number that it reads, then a line with the seconds they took."""
    import torch
    from torch.nn.functional import cross_entropy

    from somnet.config import ModelConfig
    from somnet.nn.backbones import Network
    from somnet.system.allocator import keep_memory

    keep_memory()
    network = Network(ModelConfig(), classes=10).train()
    trained = [values for values in network.parameters() if values.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    maps, labels = torch.rand(32, *network.input_shape), torch.arange(32) % 10
    for line in sys.stdin:
        start = time.monotonic()
        for _ in range(int(line)):
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(cross_entropy(network(maps), labels))
            optimizer.step()
        print(time.monotonic() - start, flush=True)


class Trainer:
    """Such a process."""

    def __init__(self, environment: dict[str, str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child"],
            env={**inherited, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, steps: int) -> None:
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)

    def seconds(self) -> float:
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())


def together(trainers: list[Trainer], steps: int) -> float:
    """Seconds of the slowest."""
    for trainer in trainers:
        trainer.start(steps)
    return max([trainer.seconds() for trainer in trainers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return train_when_told()
    pairs = {waiting: [Trainer(environment), Trainer(environment)] for waiting, environment in WAITING.items()}
    for pair in pairs.values():
        together(pair, 2)  # loads torch, and warms up
    times: dict[str, list[tuple[float, float]]] = {waiting: [] for waiting in WAITING}
    for _ in range(arguments.rounds):
        for waiting, pair in pairs.items():
            times[waiting].append((together(pair[:1], arguments.steps), together(pair, arguments.steps)))
    for pair in pairs.values():
        for trainer in pair:
            trainer.process.communicate()
    print("| threads wait | one alone, ms a step | two at once, ms a step each | ratio |")
    print("|---|---:|---:|---:|")
    for waiting, measured in times.items():
        columns = list(zip(*measured, strict=True))
        alone, both = (1000 * statistics.median(column) / arguments.steps for column in columns)
        print(f"| {waiting} | {alone:.0f} | {both:.0f} | {both / alone:.2f} |")


if __name__ == "__main__":
    main()
