"""The paper's ablations on real photos with both kinds of noise: pasted small into scenes, and wrong labels.

    python benchmarks/real_photos.py PHOTOS SCENES --out DIR [--seeds 0-4] [--flip 0.4]

PHOTOS has train/<class>/* and test/<class>/*, SCENES pictures of anything else. The training photos are pasted into
scenes at 35 to 60 % of the side and a share of their labels is flipped; the test photos stay as they are. One table:
plain cross entropy, plain with ROIs, SOMNet, and SOMNet without each of its parts. An interrupted benchmark continues
where it was. Fails if SOMNet gains less over plain than it should.
"""

import argparse
import statistics
import sys
from pathlib import Path

from somnet.benchmark.bench import run_bench
from somnet.benchmark.demo import parse_seeds
from somnet.benchmark.paper_tables import PLAIN, SOMNET
from somnet.benchmark.trials import Benchmark, choose_entries
from somnet.config import load_config
from somnet.data.noise import NoiseRecipe

LEAST_GAIN = 4.0  # points of SOMNet over plain cross entropy
SETTINGS = Path(__file__).parents[1] / "configs" / "small-photos.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description="The paper's ablations on real photos.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--flip", type=float, default=0.4)
    given = parser.parse_args()
    entries, tables = choose_entries(tables="ablations")
    noise = NoiseRecipe(flip=given.flip, paste=given.scenes)
    benchmark = Benchmark(given.photos, entries, parse_seeds(given.seeds), load_config(SETTINGS, ()), noise, tables)
    results = run_bench(benchmark, given.out, resume=given.out.exists())
    print((given.out / "table.md").read_text(encoding="utf-8"))
    plain, ours = (
        [100 * result.top1 for result in results if result.method == entry.name and result.top1 is not None]
        for entry in (PLAIN, SOMNET)
    )
    gain = statistics.fmean(ours) - statistics.fmean(plain)
    print(f"gain of SOMNet over plain {gain:.1f} (at least {LEAST_GAIN:.0f})")
    return 0 if gain >= LEAST_GAIN else 1


if __name__ == "__main__":
    sys.exit(main())
