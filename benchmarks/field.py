"""The fair field: methods and controls with the same views on every data set, and one table over all of them.

    python -m benchmarks.field ROOT --out DIR [--seeds 0-4] [--sets clean,flips-40] [--methods plain,elr] [--rates auto]
        [--set model.freeze=none]

ROOT holds the photos (see field_data.py). DIR/<set> is a benchmark like any other, DIR/together the comparison. What is
finished is not run again, so seeds, sets and methods can be added at any time.
"""

import argparse
from pathlib import Path

from benchmarks.field_data import FIELD
from somnet.benchmark.bench import run_bench
from somnet.benchmark.demo import parse_seeds
from somnet.benchmark.entries import parse_entries
from somnet.benchmark.rates import parse_rates
from somnet.benchmark.together import compare_benchmarks
from somnet.benchmark.trials import Benchmark, RateSearch
from somnet.config import load_config

EVEN = "somnet.weighting.d_score=false,somnet.weighting.r_score=false,somnet.weighting.a_score=false,"
EVEN += "somnet.weighting.keep_first=1.0,somnet.weighting.keep_last=1.0"
WITHOUT_REGIONS = "somnet.weighting.rois=false,somnet.images_per_bag=5,"  # what was best without them in the paper
WITHOUT_REGIONS += "somnet.weighting.keep_first=0.6,somnet.weighting.keep_last=0.6"
METHODS = ",".join(
    [
        "plain,linear-probe,elr,sl,pencil,tanaka,divide-mix,mopro,ssr,wann,confident,somnet,somnet+",
        "whole images=plain:views.mirror=false,views.crops=0,views.proposals=0",
        "elr on first box=elr:views.mirror=false,views.crops=0,views.proposals=1",
        "elr on random boxes=elr:views.mirror=false,views.crops=3,views.proposals=0",
        "elr with as many passes as somnet=elr:train.epochs=39",
        "somnet on first box=somnet:views.proposals=1",
        f"somnet without memory=somnet:{EVEN}",
        "somnet without d-score=somnet:somnet.weighting.d_score=false",
        "somnet without r-score=somnet:somnet.weighting.r_score=false",
        "somnet with a-score=somnet:somnet.weighting.a_score=true",
        f"somnet without regions=somnet:{WITHOUT_REGIONS}",
        "somnet with k-means=somnet:somnet.memory.kmeans=true",
        "somnet without SOM=somnet:somnet.memory.radius=0",
        "somnet with Eq. 11=somnet:somnet.memory.detach=false",
        "given labels=somnet+:somnet_plus.probable_labels=false",
        "cross entropy=somnet+:somnet_plus.robust_loss=false",
        "views alike=somnet+:somnet_plus.choose_views=false",
        "boxes alike=somnet+:somnet_plus.choose_views=false,views.mirror=false,views.crops=0",
        "plain on boxes=plain:views.mirror=false,views.crops=0",
        "plain on chosen views=somnet+:somnet_plus.probable_labels=false,somnet_plus.robust_loss=false",
        *(f"{name} with little decay={name}:train.classifier_decay=1e-4" for name in ("plain", "elr")),
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Methods and controls on the whole field.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--sets", default=",".join(data.name for data in FIELD))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--rates", help="the learning rates to choose from; without it all use train.lr")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="a setting for all; may be repeated"
    )
    given = parser.parse_args()
    search = RateSearch(parse_rates(given.rates)) if given.rates else None
    folders = []
    for data in (data for data in FIELD if data.name in given.sets.split(",")):
        config = load_config(settings=[f"model.imgsz={data.imgsz}", *given.set])
        benchmark = Benchmark(
            data.source(given.root, given.out / "sources"),
            parse_entries(given.methods),
            parse_seeds(given.seeds),
            config,
            data.recipe(given.root),
            search=search,
        )
        run_bench(benchmark, given.out / data.name, resume=True)
        folders.append(given.out / data.name)
    compare_benchmarks(folders, given.out / "together", baseline="plain", overwrite=True)
    print((given.out / "together" / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
