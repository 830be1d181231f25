"""The regions of a run, a few at a time: the same as all at once, whatever the groups of the file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet.errors import RunError
from somnet.report.regions import Regions
from somnet.runs.run import Run
from somnet.system.folders import REGIONS
from tests.report.conftest import made_up_run

FILES = [(f"{number}.jpg", "ab"[number % 2]) for number in range(20)]  # two regions each


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made_up_run(tmp_path / "run", FILES, bad=[("broken.jpg", "empty")])


def with_groups_of(run: Run, rows: int) -> pa.Table:
    table = pq.read_table(run.path / REGIONS)
    pq.write_table(table, run.path / REGIONS, row_group_size=rows)
    return table


@pytest.mark.parametrize("rows", [1, 3, 7, 1000])
def test_each_image_has_its_regions(run: Run, rows: int) -> None:
    table = with_groups_of(run, rows)
    regions = Regions(run)
    assert regions.first.tolist() == list(range(0, 41, 2))
    assert regions.weighed
    for number in [*range(20), 0, 19, 3]:  # also there and back
        mine = table.slice(2 * number, 2)
        found = regions.of_image(number)
        assert found.box.tolist() == np.rint(np.array(mine["box"].to_pylist())).astype(int).tolist()
        assert found.weight.tolist() == mine["roi_weight"].to_numpy().astype(float).round(4).tolist()
        assert found.details["slot"].tolist() == mine["winner_slot"].to_pylist()
        assert found.details.keys() == regions.details


def test_what_the_method_does_not_tell_is_left_out(run: Run) -> None:
    table = with_groups_of(run, 9)
    none = table.set_column(table.column_names.index("d_score"), "d_score", pa.nulls(len(table), pa.float32()))
    whole = np.tile(np.array([1.0, 0.0], np.float32), 20)
    none = none.set_column(table.column_names.index("roi_weight"), "roi_weight", pa.array(whole))
    pq.write_table(none, run.path / REGIONS, row_group_size=9)
    regions = Regions(run)
    assert regions.details == Regions(made_up_run(run.path.parent / "other", FILES)).details - {"d"}
    assert "d" not in regions.of_image(3).details
    assert not regions.weighed  # all weight is on the images themselves


def test_nothing_is_kept_of_what_was_looked_through(run: Run) -> None:
    table = pq.read_table(run.path / REGIONS)
    many = pa.concat_tables([table] * 1000)
    slots = pa.array(np.random.default_rng(0).integers(0, 2**30, len(many)), pa.int32())  # which cannot be packed
    many = many.set_column(many.column_names.index("winner_slot"), "winner_slot", slots)
    pq.write_table(many, run.path / REGIONS, row_group_size=9000)
    before = pa.total_allocated_bytes()
    regions = Regions(run)
    assert len(regions.first) == 20_001
    assert pa.total_allocated_bytes() - before < slots.nbytes / 2


def test_a_file_that_is_gone_or_damaged_is_named(run: Run) -> None:
    regions = Regions(run)
    content = bytearray((run.path / REGIONS).read_bytes())
    content[4:200] = bytes(196)
    (run.path / REGIONS).write_bytes(content)
    with pytest.raises(RunError, match=r"regions.parquet is damaged"):
        Regions(run)
    assert len(regions.first) == 21
    (run.path / REGIONS).unlink()
    with pytest.raises(RunError, match="has no regions yet"):
        Regions(run)
