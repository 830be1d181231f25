"""Cleaned images as Hugging Face's `datasets` reads them: Parquet files with the bytes, at least one for each split."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = "huggingface"
SHARD_BYTES = 500_000_000  # of images in one file, as the hub likes it
ROWS_AT_ONCE = 100  # a row group: what somebody who looks at an image has to fetch
SPLITS = {"val": "validation"}  # as they are called there
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
COLUMNS = {  # with what `datasets` is to make of each
    "image": (IMAGE, {"_type": "Image"}),
    "label": (pa.int64(), {"_type": "ClassLabel"}),
    "weight": (pa.float32(), {"dtype": "float32", "_type": "Value"}),
    "label_score": (pa.float32(), {"dtype": "float32", "_type": "Value"}),
    "original_label": (pa.string(), {"dtype": "string", "_type": "Value"}),
}

Row = Mapping[str, Any]


def write_huggingface(folder: Path, listed: Sequence[Row], classes: Sequence[str]) -> None:
    """huggingface/data/train-00000-of-00001.parquet and so on, from the rows of a cleaned folder's manifest."""
    names = list(dict.fromkeys([*classes, *(row["label"] for row in listed)]))
    features: dict[str, dict[str, Any]] = {name: dict(kind) for name, (_, kind) in COLUMNS.items()}
    features["label"]["names"] = names
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()], metadata)
    target = folder / FOLDER / "data"
    target.mkdir(parents=True)
    number = {name: i for i, name in enumerate(names)}
    for split in dict.fromkeys(row["split"] for row in listed):
        shards = list(_shards(folder, [row for row in listed if row["split"] == split]))
        for place, rows in enumerate(shards):
            name = f"{SPLITS.get(split, split)}-{place:05d}-of-{len(shards):05d}.parquet"
            with pq.ParquetWriter(target / name, schema) as writer:
                for start in range(0, len(rows), ROWS_AT_ONCE):
                    full = [_row(folder, row, number) for row in rows[start : start + ROWS_AT_ONCE]]
                    writer.write_table(pa.Table.from_pylist(full, schema=schema))


def _shards(folder: Path, rows: Sequence[Row]) -> Iterator[list[Row]]:
    shard: list[Row] = []
    size = 0
    for row in rows:
        shard.append(row)
        size += (folder / row["file_name"]).stat().st_size
        if size >= SHARD_BYTES:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _row(folder: Path, row: Row, number: Mapping[str, int]) -> dict[str, Any]:
    file = folder / row["file_name"]
    image = {"bytes": file.read_bytes(), "path": file.name}
    others = {name: row.get(name) for name in ("weight", "label_score", "original_label")}
    return {"image": image, "label": number[row["label"]], **others}
