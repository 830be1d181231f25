"""What a run folder may cost to open. It may come from a stranger: sizes are checked before anything is allocated."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from somnet.config import Config
from somnet.errors import RunError
from somnet.system.folders import IMAGES, ISSUES, REGIONS
from somnet.system.memory import little_memory

MOST_IMAGES = 5_000_000
MOST_CLASSES = 100_000
FREE_BYTES = 300_000_000  # a network up to this size needs no checkpoint to vouch for it
FREE_ROWS = 1_000_000  # the same for the rows of a table
ROW_BYTES = 4  # a row of scores that differ takes more on disk, however it is packed
TABLE_BYTES = 700_000_000  # what a table of a few rows may take in memory, at most; an allocator asks for much ahead
UNPACKED = 20  # or so many times what it takes on disk, if that is more
IN_ONE_THREAD = {"use_threads": False, "pre_buffer": False}  # each thread's memory would count
LONGEST_TEXT = 40_000  # bytes, of a name or a reason


def check_tables(run: Path, images: int, boxes: int) -> None:
    """Check what the tables of a run claim to have."""
    for name, most in ((ISSUES, MOST_IMAGES), (IMAGES, MOST_IMAGES), (REGIONS, images * (boxes + 1))):
        check_table(run / name, most)


def check_table(file: Path, most_rows: int) -> None:
    """Refuse a table that claims more rows than its run can have, or than its bytes can hold."""
    try:
        rows, size = pq.read_metadata(file).num_rows, file.stat().st_size
    except (OSError, pa.ArrowException):
        return  # whoever reads it will tell
    if rows > most_rows or (rows > FREE_ROWS and size < ROW_BYTES * rows):
        raise RunError(
            f"{file} claims {rows:,} rows in {size:,} bytes, for {most_rows:,} at most: it is damaged or made to harm; "
            "train again"
        )


@contextlib.contextmanager
def reading_table(file: Path) -> Iterator[None]:
    """Within this context what is read of a table may take a multiple of its size on disk, and not more."""
    size = file.stat().st_size
    try:
        with little_memory(max(TABLE_BYTES, UNPACKED * size)):
            yield
    except MemoryError:  # of Arrow's, too
        raise RunError(f"{file} has {size:,} bytes, but needs far more memory: it is damaged or made to harm") from None


def read_run_table(file: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of a run, which may hold few bytes that stand for very many; OSError or an error of Arrow's if none.

    What it would take in memory is told by no header that could be trusted, so little is given to its reader.
    """
    with reading_table(file):
        table = pq.read_table(file, columns=columns, **IN_ONE_THREAD)
    for name in table.column_names:
        if _longest(table[name]) > LONGEST_TEXT:
            raise RunError(f"{file} has a {name} that is far too long: it is damaged or made to harm; train again")
    return table


def _longest(column: pa.ChunkedArray) -> int:
    """Bytes of the longest text; 0 where there is none."""
    texts = [chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk for chunk in column.chunks]
    texts = [some for some in texts if pa.types.is_string(some.type) or pa.types.is_large_string(some.type)]
    return max((pc.max(pc.binary_length(some)).as_py() or 0 for some in texts), default=0)


def check_network(config: Config, classes: int, checkpoint: Path) -> None:
    """Refuse a network and a memory that are far larger than what the checkpoint has for them."""
    import timm  # tables are checked where torch need not be loaded
    import torch

    from somnet.nn.vectors import vectors_width

    try:
        with torch.device("meta"):  # shapes alone
            model: Any = None if config.model.embeddings else timm.create_model(config.model.name, num_classes=0)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return  # not to be had in this way, or not at all, which building it will tell
    if model is None:
        features, parameters = vectors_width(config.model), 0
    else:
        features, parameters = int(model.num_features), sum(tensor.numel() for tensor in model.parameters())
    sections = (section for section in config.model_dump().values() if isinstance(section, dict))
    sides = [section["memory"]["side"] for section in sections if "side" in section.get("memory", {})]
    slots = max(sides, default=0) ** 2
    needed = 4 * (parameters + features * classes + slots * (features + classes))
    status = checkpoint.stat() if checkpoint.is_file() else None
    there = 0 if status is None else min(status.st_size, 2 * 512 * status.st_blocks)  # a file may have holes
    if needed > max(FREE_BYTES, 2 * there):
        raise RunError(
            f"the config asks for {needed / 1e9:.1f} GB, but {checkpoint} has {there / 1e9:.1f} GB: it is damaged or "
            "made to harm; train again"
        )
