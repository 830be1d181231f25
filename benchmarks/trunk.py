"""Images a second that go through a frozen trunk: onnxruntime beside torch, as a Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/trunk.py [--pairs 7] [--images 8] [--models tf_efficientnet_lite0,resnet50]

One thread, 224 pixels, memory kept as a training keeps it. Both take turns in one process on the same images; speeds
are of the medians, in seconds of the processor, which other load on the machine disturbs less. Weights cost no time,
so those of a model that is not installed are random.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from somnet.config import ModelConfig
from somnet.nn.backbones import Network
from somnet.nn.engine import open_trunk
from somnet.nn.weights import OFFLINE_MODEL
from somnet.system.allocator import keep_memory

SIDE = 224


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@torch.no_grad()
def compare(name: str, images: int, pairs: int) -> str:
    torch.manual_seed(0)
    config = ModelConfig(name=name, pretrained=name == OFFLINE_MODEL, imgsz=SIDE)
    network = Network(config, classes=10).eval()
    pixels = torch.randint(256, (images, 3, SIDE, SIDE)).to(torch.uint8)
    trunk = open_trunk(network)
    expected = network.prepare(pixels)
    away = float((trunk.maps(pixels) - expected).abs().max() / expected.abs().max())
    times = [(seconds(lambda: network.prepare(pixels)), seconds(lambda: trunk.maps(pixels))) for _ in range(pairs)]
    eager, engine = (images / statistics.median(column) for column in zip(*times, strict=True))
    return f"| {name} | {eager:.1f} | {engine:.1f} | {engine / eager:.2f} | {away:.0e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--models", default=f"{OFFLINE_MODEL},resnet50")
    arguments = parser.parse_args()
    keep_memory()
    torch.set_num_threads(1)
    print("| trunk | torch, images/s | onnxruntime, images/s | ratio | largest difference, of the largest value |")
    print("|---|---:|---:|---:|---:|")
    for name in arguments.models.split(","):
        print(compare(name, arguments.images, arguments.pairs), flush=True)


if __name__ == "__main__":
    main()
