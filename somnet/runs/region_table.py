"""The table of all regions, written as it comes: of a million images it has 21 million rows, too many to be held."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from somnet.system.files import atomic_path

ROWS = 2**17  # written at a time

SCHEMA = pa.schema(
    [
        ("file_name", pa.string()),
        ("region", pa.int32()),  # 0 is the image itself
        ("box", pa.list_(pa.float32())),  # x1 y1 x2 y2, pixels of the upright image
        ("roi_weight", pa.float32()),
        ("winner_slot", pa.int32()),
        ("d_score", pa.float32()),
        ("r_score", pa.float32()),
        ("a_score", pa.float32()),
        ("similarity", pa.float32()),
    ]
)


@contextlib.contextmanager
def region_writer(file: Path) -> Iterator[Callable[[pa.Table], None]]:
    """What is called with some rows after the other; the file is there when this context ends well, and not before."""
    waiting: list[pa.Table] = []
    with atomic_path(file) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:

        def add(rows: pa.Table) -> None:
            waiting.append(rows)
            if sum(map(len, waiting)) >= ROWS:  # cut evenly: the file is the same however the rows came
                table = pa.concat_tables(waiting)
                even = len(table) - len(table) % ROWS
                writer.write_table(table.slice(0, even), row_group_size=ROWS)
                waiting[:] = [table.slice(even)]

        yield add
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=ROWS)


def join_regions(file: Path, parts: Sequence[Path]) -> None:
    """One file of what is in several, one after the other."""
    with region_writer(file) as add:
        for part in parts:
            for batch in pq.ParquetFile(part).iter_batches(ROWS):
                add(pa.Table.from_batches([batch]))
