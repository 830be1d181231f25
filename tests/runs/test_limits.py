"""What the tables of a run may cost to read: sound ones are read wherever they are, whatever the process has done."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet.errors import RunError
from somnet.runs.limits import LONGEST_TEXT, read_run_table

READ = """
import sys
from pathlib import Path
import pyarrow as pa
from somnet.runs.limits import read_run_table
from somnet.system.allocator import keep_memory
keep_memory()  # which asks for 256 MB at once
pa.set_cpu_count(16)
print(read_run_table(Path(sys.argv[1])).num_rows)
"""


def test_a_sound_table_is_read_on_many_cores_and_by_an_allocator_that_keeps_memory(tmp_path: Path) -> None:
    """In a process of its own: what it has taken before, and its cores, decide."""
    rows = 300_000
    columns = {f"score_{number}": pa.array(range(rows), pa.float32()) for number in range(20)}
    names = pa.array([f"train/kiwi/Image_{number}.jpg" for number in range(rows)])
    pq.write_table(pa.table({"file_name": names, **columns}), tmp_path / "issues.parquet", compression="zstd")
    some = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", READ, str(tmp_path / "issues.parquet")]
    done = subprocess.run(command, env=some, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(rows)), done.stderr


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_text_that_is_far_too_long_is_refused(kind: pa.DataType, tmp_path: Path) -> None:
    for length in (LONGEST_TEXT, LONGEST_TEXT + 1):
        texts = pa.array(["x" * length, "y"]).cast(kind)
        pq.write_table(pa.table({"file_name": texts}), tmp_path / f"{length}.parquet")
    assert read_run_table(tmp_path / f"{LONGEST_TEXT}.parquet").num_rows == 2
    with pytest.raises(RunError, match="a file_name that is far too long"):
        read_run_table(tmp_path / f"{LONGEST_TEXT + 1}.parquet")
