"""Links in a data set: they lead to files within it, unless the user says that they may lead out."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from somnet.data.index import Index
from somnet.errors import DataError

LEADS_OUT = "a link that leads out of the data: put the file there itself, or add --follow-links"


def leads_out(real_root: bytes, path: bytes) -> bool:
    """Whether what a path leads to lies outside a folder, which is given without links in its own path."""
    return os.path.commonpath([os.path.realpath(path), real_root]) != real_root


def refuse_links_out(root: Path, files: Iterable[Path]) -> None:
    """Refuse manifests and archives that lie elsewhere."""
    real_root = os.path.realpath(os.fsencode(root))
    for file in files:
        if leads_out(real_root, os.fsencode(file)):
            raise DataError(f"{file} is {LEADS_OUT}")


def without_links_out(index: Index) -> Index:
    """The same list, with a reason why an image is not used that lies behind a link to elsewhere."""
    root = os.fsencode(index.root)
    real_root = os.path.realpath(root)
    outside: dict[bytes, bool] = {}  # folder -> whether it lies elsewhere
    found = []
    for name in index.column("file_name"):
        path = os.path.join(root, name)
        folder = os.path.dirname(path)
        if folder not in outside:
            outside[folder] = leads_out(real_root, folder)
        found.append(outside[folder] or (os.path.islink(path) and leads_out(real_root, path)))
    problem = pc.coalesce(index.table["problem"], pc.if_else(pa.array(found, pa.bool_()), LEADS_OUT, None))
    place = index.table.schema.get_field_index("problem")
    return replace(index, table=index.table.set_column(place, index.table.schema.field(place), problem))
