"""Regions are written as they come, and the file does not depend on how they came."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet.runs import region_table
from somnet.runs.region_table import SCHEMA, join_regions, region_writer


def rows(start: int, stop: int) -> pa.Table:
    """Made-up regions of these numbers."""
    numbers = list(range(start, stop))
    columns = {
        "file_name": list(map(str, numbers)),
        "region": numbers,
        "box": [[0.0, 0.0, float(n), 1.0] for n in numbers],
    }
    return pa.table({field.name: columns.get(field.name, [None] * len(numbers)) for field in SCHEMA}).cast(SCHEMA)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_table, "ROWS", 10)


def written(file: Path, *ends: int) -> bytes:
    with region_writer(file) as add:
        for start, stop in zip((0, *ends), ends, strict=False):
            add(rows(start, stop))
    return file.read_bytes()


def test_the_file_is_the_same_however_the_rows_came(tmp_path: Path) -> None:
    whole = written(tmp_path / "a", 47)
    assert written(tmp_path / "b", 3, 4, 15, 40, 47) == whole
    assert pq.read_table(tmp_path / "a").equals(rows(0, 47))
    file = pq.ParquetFile(tmp_path / "a")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [10, 10, 10, 10, 7]


def test_rows_are_on_disk_before_the_last_has_come(tmp_path: Path) -> None:
    with region_writer(tmp_path / "a") as add:
        (temporary,) = tmp_path.iterdir()
        before = temporary.stat().st_size
        for start in range(0, 1000, 5):
            add(rows(start, start + 5))
        assert temporary.stat().st_size > before + 1000
        assert not (tmp_path / "a").exists()


def test_the_parts_of_ranks_are_joined_into_the_same_file(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", 47)
    for name, start, stop in (("a", 0, 23), ("b", 23, 23), ("c", 23, 47)):
        with region_writer(tmp_path / name) as add:
            if start < stop:
                add(rows(start, stop))
    join_regions(tmp_path / "joined", [tmp_path / name for name in "abc"])
    assert (tmp_path / "joined").read_bytes() == whole


def test_what_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with region_writer(tmp_path / "a") as add:
            add(rows(0, 33))
            raise KeyboardInterrupt

    before = written(tmp_path / "a", 5)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == before
