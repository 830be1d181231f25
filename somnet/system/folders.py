"""The names of the files of a run folder, and whether a folder may be written."""

from collections.abc import Callable
from pathlib import Path

from somnet.errors import RunError
from somnet.system.files import cache_folder, is_leftover

CONFIG, DATA, IMAGES = "config.toml", "data.json", "images.parquet"  # what a run was started with
LAST = Path("checkpoints") / "last.safetensors"
METRICS, LOG = "metrics.jsonl", "train.log"
ISSUES, ISSUES_CSV, REGIONS, DUPLICATES = "issues.parquet", "issues.csv", "regions.parquet", "duplicates.csv"
VECTORS = "vectors.npy"  # what the training images look like, in few numbers each: for the map of the images
SUMMARY = "summary.json"
TEST_WRONG = "test_wrong.csv"  # the held-out images that are not taken for what they are
DECISIONS = "decisions.csv"  # what a person decided; never deleted
USED_DECISIONS = "decisions-used.csv"  # those that were trained on
REPORT, EXPORT, EVENTS = "report", "export", "tensorboard"  # folders

FINISHED = (SUMMARY, ISSUES, REGIONS)  # a run that has lost one of them is scored again
WRITTEN = (
    SUMMARY,
    METRICS,
    LOG,
    ISSUES_CSV,
    ISSUES,
    REGIONS,
    VECTORS,
    DUPLICATES,
    TEST_WRONG,
    USED_DECISIONS,
)  # beside checkpoints


MOST_BYTES = {
    CONFIG: 1_000_000,
    DATA: 20_000_000,
    SUMMARY: 10_000_000,
    METRICS: 50_000_000,
    DUPLICATES: 1_000_000_000,
    TEST_WRONG: 1_000_000_000,
    DECISIONS: 1_000_000_000,
    USED_DECISIONS: 1_000_000_000,
}  # at most; a byte of JSON can become 25 in memory


def refuse_strange_files(run: Path) -> None:
    """Refuse a run folder whose files are none, lead out of it, or are far too large: it may come from a stranger."""
    inside = run.resolve()
    for name in (CONFIG, DATA, IMAGES, "checkpoints", str(LAST), *WRITTEN, DECISIONS, REPORT, EXPORT, EVENTS):
        file = run / name
        if file.is_symlink() and not file.resolve().is_relative_to(inside):
            raise RunError(f"{file} is a link that leads out of the run: put the file itself there, or train again")
        if file.exists() and not file.is_file() and not file.is_dir():
            raise RunError(f"{file} is neither a file nor a folder: delete it, or train again with another --out")
        try:
            size = file.stat().st_size if file.is_file() else 0
        except OSError:  # it is gone by now, as where another training begins
            continue
        if size > MOST_BYTES.get(name, size):
            raise RunError(f"{file} has {size:,} bytes, which no run needs: train again with another --out")


def refuse_inside(out: Path, data: Path) -> None:
    """Refuse to write into the user's data."""
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise RunError(
            f"{out} lies inside the data {data}, which are never changed, and would be taken for images: give another "
            "--out"
        )


def refuse_cache_inside(data: Path) -> None:
    """Refuse to keep computed files in the user's data, where the next look would take them for a class."""
    cache, place = cache_folder().resolve(), data.resolve()
    if data.is_dir() and cache.is_relative_to(place):
        if any(part.startswith(".") for part in cache.relative_to(place).parts):
            return  # hidden folders are not looked into: the data may be all that a user has
        raise RunError(
            f"SOMNET_CACHE is {cache}, inside the data {data}, which are never changed: choose another place"
        )


def refuse_taken(
    out: Path, kind: str, *, ours: Callable[[], bool], meant: bool, how: str, replaced: bool = False
) -> None:
    """Refuse a folder that contains something else than a `kind`, or one that the user did not mean to write to.

    `ours`: whether it is one of that kind, asked after the look into the folder, since who begins one at this moment
    writes first what tells its kind; `meant`: a flag says so, and `how` names the flags. Nothing is written here.
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: give another --out")
    if not out.exists() or all(not replaced and is_leftover(file) for file in out.iterdir()):
        return
    if not ours():
        raise RunError(f"{out} exists and is not {kind}: give another --out, or move it away")
    if not meant:
        raise RunError(f"{out} exists: add {how}, or give another --out")
