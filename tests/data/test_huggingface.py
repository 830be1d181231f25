"""Parquet and Arrow files with image bytes, as Hugging Face's datasets writes them."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from somnet.data.decode import read_picture
from somnet.data.index import Index
from somnet.data.sources import open_source
from somnet.errors import DataError
from somnet.system.files import cache_folder

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NAMES = ["dog", "cat", "eel"]  # not in alphabetical order: the order is the author's


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (16, 12), (shade, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def table(
    labels: list[Any], *, names: list[str] | None = NAMES, start: int = 0, column: str = "label", **more: Any
) -> pa.Table:
    """Rows of red pictures, each of its own shade."""
    rows = [{"bytes": png(start + number), "path": f"photo{number}.png"} for number in range(len(labels))]
    columns = {"image": pa.array(rows, IMAGE), column: pa.array(labels), **more}
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    if names is not None:
        features[column] = {"names": names, "_type": "ClassLabel"}
    return pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def put_parquet(file: Path, content: pa.Table, **options: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, file, **options)
    return file


def put_arrow(file: Path, content: pa.Table, rows: int = 2, **options: Any) -> Path:
    """As save_to_disk does: a stream of record batches."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_stream(file, content.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(content, max_chunksize=rows)
    return file


def shades(index: Index) -> list[int]:
    pixels = [read_picture(location).image.getpixel((0, 0)) for location in index.locations()]
    return [pixel[0] for pixel in pixels if isinstance(pixel, tuple)]


def given(index: Index) -> list[str]:
    return [index.classes[label] for label in index.labels()]


def test_parquet_of_the_hub(tmp_path: Path) -> None:
    put_parquet(tmp_path / "data/train-00000-of-00002.parquet", table([1, 0, 1]), row_group_size=2)
    put_parquet(tmp_path / "data/train-00001-of-00002.parquet", table([0], start=10))
    put_parquet(tmp_path / "data/test-00000-of-00001.parquet", table([1], start=20))
    index = open_source(tmp_path)
    assert index.classes == ("dog", "cat")
    assert index.empty == ("eel",)
    assert index.column("split") == ["test", "train", "train", "train", "train"]
    assert given(index) == ["cat", "cat", "dog", "cat", "dog"]
    assert shades(index) == [20, 0, 1, 2, 10]
    assert index.column("file_name")[1] == b"data/train-00000-of-00002.parquet/0-photo0.png"
    assert {os.path.dirname(index.path(row)) for row in range(5)} == {str(cache_folder() / "unpacked")}


def test_it_is_unpacked_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    file = put_parquet(tmp_path / "a.parquet", table([0, 1]))
    place = Path(open_source(file).path(0))
    first = os.stat(place).st_ino
    assert os.stat(open_source(file).path(0)).st_ino == first
    put_parquet(file, table([1, 0, 1], start=50))
    index = open_source(file)
    assert (shades(index), given(index)) == ([50, 51, 52], ["cat", "dog", "cat"])
    times = os.stat(file)
    put_parquet(file, table([0, 1, 0], start=60))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert os.stat(file).st_size == times.st_size  # as after cp -p of another file
    assert shades(open_source(file)) == [60, 61, 62]
    put_parquet(file, table([1, 0, 1], start=50))
    assert shades(open_source(file)) == [50, 51, 52]
    whole = place.read_bytes()
    for length in (0, 300, len(whole) // 2, len(whole) - 8):  # a cache that somebody has damaged
        place.write_bytes(whole[:length])
        assert shades(open_source(file)) == [50, 51, 52]


@pytest.mark.parametrize("folder", ["", "train/"])
def test_a_folder_of_save_to_disk_is_read_in_place(tmp_path: Path, folder: str) -> None:
    file = put_arrow(tmp_path / f"{folder}data-00000-of-00001.arrow", table([1, 0, 1, 0, 0]))
    (tmp_path / f"{folder}state.json").write_text("{}")
    index = open_source(tmp_path)
    assert (shades(index), given(index)) == ([0, 1, 2, 3, 4], ["cat", "dog", "cat", "dog", "dog"])
    assert {index.path(row) for row in range(5)} == {str(file)}
    assert not cache_folder().joinpath("unpacked").exists()


def test_splits_of_save_to_disk(tmp_path: Path) -> None:
    put_arrow(tmp_path / "train/data-00000-of-00001.arrow", table([1, 0]))
    put_arrow(tmp_path / "validation/data-00000-of-00001.arrow", table([1], start=7))
    index = open_source(tmp_path)
    assert index.column("split") == ["train", "train", "val"]
    assert shades(index) == [0, 1, 7]


def test_compressed_arrow_is_unpacked(tmp_path: Path) -> None:
    file = put_arrow(tmp_path / "data-00000.arrow", table([1, 0, 1]), compression="zstd")
    index = open_source(file)
    assert shades(index) == [0, 1, 2]
    assert index.path(0) != str(file)


def test_labels_that_are_words_or_numbers_without_names(tmp_path: Path) -> None:
    words = open_source(put_parquet(tmp_path / "a.parquet", table(["b", "a", None], names=None)))
    assert (words.classes, words.labels().tolist()) == (("a", "b"), [1, 0, -1])
    assert words.column("problem") == [None, None, "the row has no label: fill it in"]
    numbers = open_source(put_parquet(tmp_path / "b.parquet", table([10, 2, -1], names=None)))
    assert (numbers.classes, numbers.labels().tolist()) == (("2", "10"), [1, 0, -1])


def test_the_only_column_of_classes_is_the_label(tmp_path: Path) -> None:
    index = open_source(put_parquet(tmp_path / "a.parquet", table([0, 1], column="species")))
    assert given(index) == ["dog", "cat"]
    with pytest.raises(DataError, match=r"has no column label \(it has image, kind\)"):
        open_source(put_parquet(tmp_path / "b.parquet", table([0, 1], column="kind", names=None)))


def test_the_truth_comes_along(tmp_path: Path) -> None:
    index = open_source(put_parquet(tmp_path / "a.parquet", table([0, 1], true_label=pa.array(["cat", None]))))
    assert index.column("true_label") == ["cat", None]


def test_bytes_alone_and_rows_without_any(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    put_parquet(file, pa.table({"img": pa.array([png(1), None, png(3)], pa.large_binary()), "label": [0, 1, 0]}))
    index = open_source(file)
    assert index.column("file_name") == [b"a.parquet/0.png", b"a.parquet/1", b"a.parquet/2.png"]
    assert index.column("problem")[1] == "the row has no image bytes: save it with its images"
    rows = [{"bytes": None, "path": "/etc/passwd"}, {"bytes": png(2), "path": "../../up.png"}]
    put_parquet(file, pa.table({"image": pa.array(rows, IMAGE), "label": [0, 1]}))
    index = open_source(file)
    assert index.column("file_name") == [b"a.parquet/0-passwd", b"a.parquet/1-up.png"]
    assert index.column("problem")[0] is not None


def test_a_label_beyond_the_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has a label 7, but only 3 names"):
        open_source(put_parquet(tmp_path / "a.parquet", table([0, 7])))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_damaged_file_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"data/train.{suffix}"
    put = put_parquet if suffix == "parquet" else put_arrow
    content = put(file, table([0, 1, 0, 1])).read_bytes()
    middle = len(content) // 3
    for damaged in (content[:middle], content[:4] + b"\xff" * 60 + content[64:]):
        file.write_bytes(damaged)
        with pytest.raises(DataError):
            open_source(Path(f"huggingface:{tmp_path}"))


def test_a_manifest_is_not_taken_for_images(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(png(1))
    pq.write_table(pa.table({"file_name": ["cat.png"], "label": ["cat"]}), tmp_path / "metadata.parquet")
    assert open_source(tmp_path).column("file_name") == [b"cat.png"]
    assert open_source(tmp_path / "metadata.parquet").column("file_name") == [b"cat.png"]


@pytest.mark.slow
def test_a_training_from_parquet(tmp_path: Path, photos: Any, tiny: Any) -> None:
    """From one file to a cleaned copy in the same layout, which is read again."""
    from somnet.cleaning.clean import clean
    from somnet.training.train import train_without_report

    for split, numbers in (("train", range(6)), ("test", range(6, 8))):
        rows = []
        for number in numbers:
            for label in (0, 1):
                stream = io.BytesIO()
                photos.picture(label, number).save(stream, "PNG")
                rows.append({"image": {"bytes": stream.getvalue(), "path": None}, "label": label})
        schema = table([0]).schema
        put_parquet(tmp_path / f"web/data/{split}-00000-of-00001.parquet", pa.Table.from_pylist(rows, schema=schema))
    config = tiny.config("plain", **{"train.epochs": 1})
    run = train_without_report(tmp_path / "web", config, out=tmp_path / "run", device="cpu", workers=0)
    assert run.classes == ("dog", "cat")
    cleaned = clean(run, tmp_path / "cleaned", formats=("huggingface",))
    again = open_source(tmp_path / "cleaned/huggingface")
    assert len(again.of_split("train")) == sum(cleaned.kept.values())
    assert (len(again.of_split("test")), again.classes) == (4, ("dog", "cat"))
    assert read_picture(again.location(0)).image.size == (64, 64)
