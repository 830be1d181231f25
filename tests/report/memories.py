"""A memory of any size for a run that nobody trained."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.nn import functional as F

from somnet.runs.checkpoint import save_checkpoint
from somnet.runs.run import Run
from somnet.system.folders import LAST


def set_regions(run: Run, **columns: pa.Array) -> None:
    """Replace columns of regions.parquet, or add them."""
    table = pq.read_table(run.path / "regions.parquet")
    kept = [name for name in table.column_names if name not in columns]
    table = table.select(kept)
    for name, column in columns.items():
        table = table.append_column(name, column)
    pq.write_table(table, run.path / "regions.parquet")


def with_memory(run: Run, side: int) -> Run:
    """The run with random keys, values and winners; slot 0 wins nothing."""
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    slots, count = side * side, pq.read_metadata(run.path / "regions.parquet").num_rows
    winners, similarity = rng.integers(1, slots, count, dtype=np.int32), rng.random(count, dtype=np.float32)
    set_regions(run, winner_slot=pa.array(winners), similarity=pa.array(similarity))
    tables = {
        "keys": F.normalize(torch.randn(slots, 8, generator=generator), dim=1),
        "d": torch.rand(slots, len(run.classes), generator=generator) ** 8,
        "r": torch.rand(len(run.classes), slots, generator=generator) ** 8,
    }
    save_checkpoint(run.path / LAST, {f"method.memory.{name}": table for name, table in tables.items()}, {})
    return run
