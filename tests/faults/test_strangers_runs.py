"""Run folders made to harm whoever opens them: little memory, a clear error, nothing read or written outside."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.disturbed import somnet_process

if TYPE_CHECKING:
    from tests.conftest import Outcome

    Cli = Callable[..., Outcome]

MEGABYTES = 2000


def change_data(run: Path, **values: object) -> None:
    told = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(told | values))


def change_config(run: Path, pattern: str, value: str) -> None:
    text = (run / "config.toml").read_text()
    changed = re.sub(pattern, value, text, count=1, flags=re.MULTILINE)
    assert changed != text
    (run / "config.toml").write_text(changed)


def fill_table(run: Path, name: str, rows: int) -> None:
    """Many rows in few bytes: all are alike, and written as a run length."""
    schema = pq.read_schema(run / name)
    part = pa.table([pa.nulls(2_000_000, field.type) for field in schema], schema=schema)
    with pq.ParquetWriter(run / name, schema, compression="zstd") as writer:
        for _ in range(rows // 2_000_000):
            writer.write_table(part)


def swell(run: Path, name: str, column: str) -> None:
    """A text of 200 kB in 20,000 rows, written once: 4 GB in 7 kB."""
    table = pq.read_table(run / name)
    place, text = table.schema.get_field_index(column), pa.array(["x" * 200_000])
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), text)
    many = table.take(pa.array([0] * 20_000)).set_column(place, column, rows)
    pq.write_table(many, run / name, compression="zstd", store_schema=False)
    assert (run / name).stat().st_size < 20_000


def swell_boxes(run: Path) -> None:
    """350 million corners, 1.4 GB in 50 kB: as many regions as there were, written one by one, read as one group."""
    table = pq.read_table(run / "regions.parquet")
    each = 350_000_000 // table.num_rows + 1
    one = pa.ListArray.from_arrays(pa.array([0, each], pa.int32()), pa.array(np.zeros(each, np.float32)))
    corners = pa.chunked_array([one] * table.num_rows)
    table = table.set_column(table.schema.get_field_index("box"), "box", corners)
    pq.write_table(table, run / "regions.parquet", compression="zstd", use_dictionary=False)
    assert (run / "regions.parquet").stat().st_size < 1_000_000
    assert pq.read_metadata(run / "regions.parquet").num_row_groups == 1


def write_objects(file: Path, megabytes: int, before: str = "[", behind: str = "{}]") -> None:
    """As many objects as fit into a file."""
    file.write_text(before + "{}," * (megabytes * 1_000_000 // 3) + behind)


def write_copies(file: Path, rows: int) -> None:
    file.write_text("group,file_name,split,label,exact\n" + "1,a,train,b,true\n" * rows)


def link(file: Path, target: Path | str) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(target)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


HARM: dict[str, Callable[[Path], None]] = {
    "2^31 images": lambda run: change_data(run, images=2**31),
    "2,000,000 classes": lambda run: change_data(run, classes=[str(n) for n in range(2_000_000)]),
    "a memory of a million slots": lambda run: change_config(run, r"^side = .*", "side = 1000"),
    "a giant model": lambda run: change_config(run, r"^name = .*", 'name = "vit_giant_patch14_clip_224"'),
    "8 million rows of scores": lambda run: fill_table(run, "issues.parquet", 8_000_000),
    "8 million rows of regions": lambda run: fill_table(run, "regions.parquet", 8_000_000),
    "names of 4 GB": lambda run: swell(run, "issues.parquet", "file_name"),
    "reasons of 4 GB": lambda run: swell(run, "issues.parquet", "unreadable_reason"),
    "names of 4 GB among those of the images": lambda run: swell(run, "images.parquet", "file_name"),
    "regions with 350 million corners": swell_boxes,
    "30 million objects in the metrics": lambda run: write_objects(run / "metrics.jsonl", 90),
    "30 million objects in data.json": lambda run: write_objects(
        run / "data.json", 90, '{"path": "/", "classes": ["a"], "images": 1, "fingerprint": "x", "more": [', "{}]}"
    ),
    "5 million copies": lambda run: write_copies(run / "duplicates.csv", 5_000_000),
    "data.json is /dev/zero": lambda run: link(run / "data.json", "/dev/zero"),
    "config.toml is /dev/zero": lambda run: link(run / "config.toml", "/dev/zero"),
    "config.toml is a pipe": lambda run: pipe(run / "config.toml"),
    "a checkpoint from outside": lambda run: link(run / "checkpoints/last.safetensors", "/etc/passwd"),
    "a report outside": lambda run: link(run / "report", run.parent / "thesis"),
    "a log outside": lambda run: link(run / "train.log", run.parent / "thesis" / "a.txt"),
    "an export outside": lambda run: link(run / "export", run.parent / "thesis"),
}
EACH_VERB = {"predict", "report"}
REFUSED_BY = {  # all others by each verb; but a report needs no network, and a prediction no tables
    "a memory of a million slots": {"predict"},
    "a giant model": {"predict"},
    "names of 4 GB": {"report"},
    "reasons of 4 GB": {"report"},
    "names of 4 GB among those of the images": {"report"},
    "regions with 350 million corners": {"report"},
    "5 million copies": {"report"},
}


@pytest.fixture
def stranger(trained: Path, tmp_path: Path) -> Path:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.txt").write_text("years of work")
    return Path(shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("report")))


@pytest.mark.parametrize("harm", HARM)
def test_a_run_of_a_strangers_is_refused_in_a_line(harm: str, stranger: Path, data: Path, cli: "Cli") -> None:
    HARM[harm](stranger)
    picture = next((data / "test").rglob("*.png"))
    verbs = {"predict": (stranger, picture, "--out", stranger.parent / "p.csv"), "report": (stranger,)}
    ends = {verb: cli(verb, *words) for verb, words in verbs.items()}
    for done in ends.values():
        assert "Traceback" not in done.err
        assert done.code in (0, 2)
        assert done.code == 0 or str(stranger) in done.err.strip().splitlines()[-1]
    assert {verb for verb, done in ends.items() if done.code == 2} >= REFUSED_BY.get(harm, EACH_VERB)
    assert [file.name for file in (stranger.parent / "thesis").iterdir()] == ["a.txt"]
    assert (stranger.parent / "thesis" / "a.txt").read_text() == "years of work"


def test_what_is_refused_by_one_verb_is_a_harm() -> None:
    assert REFUSED_BY.keys() <= HARM.keys()


@pytest.mark.long
@pytest.mark.parametrize("harm", HARM)
def test_a_run_of_a_strangers_takes_little_memory(harm: str, stranger: Path, data: Path) -> None:
    HARM[harm](stranger)
    picture = next((data / "test").rglob("*.png"))
    notes, cache = stranger.parent / "notes", stranger.parent / "cache"
    for words in (
        ["predict", stranger, picture, "--out", stranger.parent / "p.csv"],
        ["report", stranger],
        ["clean", stranger, "--out", stranger.parent / "cleaned"],
        ["export", stranger, "--format", "timm"],
    ):
        ended = somnet_process(words, notes, cache=cache)
        assert ended.code in (0, 2), ended.text
        assert ended.megabytes < MEGABYTES
