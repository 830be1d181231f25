"""Which training images a run had, by content, and what became of them: old scores say nothing of new pictures."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from somnet.data.decisions import DROPPED
from somnet.data.index import Index
from somnet.data.proposals import KEY, content_keys
from somnet.data.sources import open_source
from somnet.errors import SomnetError
from somnet.runs.limits import read_run_table
from somnet.system.files import atomic_path, some
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
    with atomic_path(out / IMAGES) as temporary:
        pq.write_table(_keys_of(data), temporary, compression="zstd")


def trained_keys(out: Path, names: Collection[str] | None = None) -> dict[str, bytes | None] | None:
    """The content key of each training image of a run by its name, or of some; None for a run that does not tell."""
    table = _trained(out)
    if table is None:
        return None
    if names is not None:
        table = table.filter(pc.is_in(table["file_name"], value_set=pa.array(names, pa.string())))
    return dict(zip(table["file_name"].to_pylist(), table["key"].to_pylist(), strict=True))


def _trained(out: Path) -> pa.Table | None:
    """The same as a table: of a million images a dictionary would take several times as much."""
    try:
        return read_run_table(out / IMAGES).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def find_changes(out: Path, index: Index) -> DataChanges:
    """What has become of a run's training images, by a list of the data as they are now."""
    if not (out / IMAGES).is_file():
        return DataChanges()
    train = index.of_split("train")
    now = _named_keys(train, content_keys(train)[0])
    before = _trained(out)  # when nothing else is held any more
    return DataChanges() if before is None else compare(before, now)


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
    before = _trained(out)
    return DataChanges() if before is None else compare(before, _keys_of(data))


def _keys_of(data: "DataSet") -> pa.Table:
    """The content key of each training image by its name, also of those that a person has dropped."""
    parts = (data.train, data.dropped) if data.dropped else (data.train,)
    bad = [row.file_name for row in data.unreadable if row.split in ("train", DROPPED)]
    unreadable = pa.table([pa.array(bad, pa.string()), pa.nulls(len(bad), KEY)], schema=SCHEMA)
    return pa.concat_tables([*(_named_keys(part.index, part.scan.keys) for part in parts), unreadable])


def _named_keys(index: Index, keys: pa.Array) -> pa.Table:
    return pa.table([index.shown_names(), keys], schema=SCHEMA)


def compare(before: pa.Table, now: pa.Table) -> DataChanges:
    """Two tables of images; what could be read neither time has not changed."""
    (before_names, before_keys), (names, keys) = (
        [table[name].combine_chunks() for name in SCHEMA.names] for table in (before, now)
    )
    place = pc.index_in(before_names, value_set=names)  # (b,) of an image now; null: it is gone
    back = pc.index_in(names, value_set=before_names)  # (n,) of an image before; null: it is new
    same = pc.fill_null(pc.equal(before_keys, keys.take(place)), fill_value=False)
    own = pc.equal(back.take(place), pa.array(np.arange(len(before), dtype=np.int32)))  # of equal names the first ones
    replaced = pc.and_(pc.and_(own, before_keys.is_valid()), pc.invert(same))
    return DataChanges(
        *(
            tuple(name.filter(chosen).to_pylist())
            for name, chosen in ((before_names, replaced), (before_names, place.is_null()), (names, back.is_null()))
        )
    )
