"""A million images listed: time and memory of the index, for a list of names and for tar shards.

    python benchmarks/index.py [--images 1000000] [--in-shards 100000]

Files are made up and hold nothing: listing does not open them.
"""

import argparse
import io
import multiprocessing
import os
import resource
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from somnet.data.sources import open_source

MEMBERS_PER_SHARD = 10_000
CLASSES = 14


def write_clothing(root: Path, images: int) -> None:
    """The lists of Clothing1M, and its folders with one file in each."""
    for folder in range(1000):
        place = root / f"images/{folder % 10}/{folder // 10:02d}"
        place.mkdir(parents=True)
        (place / "0.jpg").touch()
    names = [f"images/{i % 10}/{i // 10 % 100:02d}/{i:010d},{i * 7:010d}.jpg" for i in range(images)]
    (root / "category_names_eng.txt").write_text("".join(f"class {i}\n" for i in range(CLASSES)))
    pairs = [f"{name} {i % CLASSES}\n" for i, name in enumerate(names)]
    (root / "noisy_label_kv.txt").write_text("".join(pairs))
    (root / "clean_label_kv.txt").write_text("".join(pairs[:100]))
    (root / "noisy_train_key_list.txt").write_text("\n".join(names) + "\n")
    for split in ("val", "test"):
        (root / f"clean_{split}_key_list.txt").write_text("\n".join(names[:100]) + "\n")


def write_shards(root: Path, images: int) -> None:
    root.mkdir()
    for first in range(0, images, MEMBERS_PER_SHARD):
        with tarfile.open(root / f"train-{first // MEMBERS_PER_SHARD:06d}.tar", "w") as archive:
            for number in range(first, min(first + MEMBERS_PER_SHARD, images)):
                for kind, content in (("jpg", b"x"), ("cls", b"%d" % (number % CLASSES))):
                    member = tarfile.TarInfo(f"{number:09d}.{kind}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


def measure(data: Path, name: str) -> None:
    """In a process of its own, so that the peak is its own too."""
    in_a_child(partial(_measure, data, name))


def _measure(data: Path, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.monotonic(), time.process_time()
    index = open_source(data)
    seconds, busy = time.monotonic() - began, time.process_time() - worked
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    held = index.table.nbytes / 2**20
    print(f"| {name} | {len(index)} | {seconds:.1f} s | {busy:.1f} s | {peak:.0f} MB | {held:.0f} MB |", flush=True)


def in_a_child(work: Callable[[], None]) -> None:
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(child.exitcode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--in-shards", type=int, default=100_000)
    arguments = parser.parse_args()
    print(
        "| source | images | time | of one core | peak above start | the index itself |\n|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        os.environ["SOMNET_CACHE"] = f"{name}/cache"
        made = (("clothing", write_clothing, arguments.images), ("shards", write_shards, arguments.in_shards))
        for source, write, images in made:
            in_a_child(partial(write, Path(name, source), images))
        measure(Path(name, "clothing"), "lists of Clothing1M")
        measure(Path(name, "shards"), "tar shards, first time")
        measure(Path(name, "shards"), "tar shards, cached")


if __name__ == "__main__":
    main()
