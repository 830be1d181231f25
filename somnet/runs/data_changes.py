"""Which training images a run had, by content, and what became of them: old scores say nothing of new pictures."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from somnet.data.decisions import DROPPED
from somnet.data.index import Index
from somnet.data.proposals import KEY, content_keys
from somnet.data.sources import open_source
from somnet.errors import SomnetError
from somnet.runs.limits import read_run_table
from somnet.system.files import atomic_path, display_name, some
from somnet.system.folders import IMAGES

if TYPE_CHECKING:
    from somnet.data.dataset import DataSet  # takes torch, which cleaning need not wait for

log = logging.getLogger("somnet")

SCHEMA = pa.schema([("file_name", pa.string()), ("key", KEY)])  # no key where an image could not be read


@dataclass(frozen=True)
class DataChanges:
    """Names of training images that are other ones, are gone, or are new since a run began."""

    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.replaced or self.removed or self.added)

    def __str__(self) -> str:
        kinds = {"replaced": self.replaced, "removed": self.removed, "added": self.added}
        return "; ".join(f"{len(names)} {kind}: {some(list(names))}" for kind, names in kinds.items() if names)


def write_images(out: Path, data: "DataSet") -> None:
    """Keep the names and content keys of the training images in a run folder."""
    images = _keys_of(data)
    with atomic_path(out / IMAGES) as temporary:
        pq.write_table(pa.table([list(images), list(images.values())], schema=SCHEMA), temporary, compression="zstd")


def trained_keys(out: Path, names: Collection[str] | None = None) -> dict[str, bytes | None] | None:
    """The content key of each training image of a run by its name, or of some; None for a run that does not tell."""
    try:
        table = read_run_table(out / IMAGES).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    if names is not None:
        table = table.filter(pc.is_in(table["file_name"], value_set=pa.array(names, pa.string())))
    return dict(zip(table["file_name"].to_pylist(), table["key"].to_pylist(), strict=True))


def find_changes(out: Path, index: Index) -> DataChanges:
    """What has become of a run's training images, by a list of the data as they are now."""
    before = trained_keys(out)
    if before is None:
        return DataChanges()
    train = index.of_split("train")
    keys, _ = content_keys(train)
    return compare(before, dict(zip(train.names(), keys.to_pylist(), strict=True)))


def warn_of_changes(out: Path, data: Path, *, follow_links: bool = False) -> None:
    """Name images that were replaced, removed or added since a run was trained, where its data are at hand."""
    try:
        changes = find_changes(out, open_source(data, follow_links=follow_links))
    except (SomnetError, OSError):  # moved, or on another machine
        return
    if changes:
        log.warning("the training images have changed since %s was trained, and its scores have not: %s", out, changes)


def changes_of(out: Path, data: "DataSet") -> DataChanges:
    """The same from data that are scanned already."""
    before = trained_keys(out)
    return DataChanges() if before is None else compare(before, _keys_of(data))


def _keys_of(data: "DataSet") -> dict[str, bytes | None]:
    """The content key of each training image by its name, also of those that a person has dropped."""
    keys: dict[str, bytes | None] = {}
    for part in (data.train, data.dropped) if data.dropped else (data.train,):
        names = (display_name(name) for name in part.index.column("file_name"))
        keys |= dict(zip(names, part.scan.keys.to_pylist(), strict=True))
    return keys | {row.file_name: None for row in data.unreadable if row.split in ("train", DROPPED)}


def compare(before: Mapping[str, bytes | None], now: Mapping[str, bytes | None]) -> DataChanges:
    """Two lists of images; what could be read neither time has not changed."""
    both = [name for name in before if name in now]
    replaced = [name for name in both if before[name] != now[name] and before[name] is not None]
    return DataChanges(
        tuple(replaced), tuple(name for name in before if name not in now), tuple(n for n in now if n not in before)
    )
