"""Thousands of broken pictures and manifests of any content: none ends a run, each bad file is named."""

import csv
import json
import os
import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from somnet.data.decode import read_picture
from somnet.data.sources import open_source
from somnet.errors import DataError, UnreadableImage
from tests.faults.disturbed import somnet_process
from tests.faults.mutations import bombs, mutated, picture_file

if TYPE_CHECKING:
    from tests.conftest import Photos

MOST_MEGABYTES = 2000  # of the parent
VALID = 10


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_mutated_images(count: int, photos: "Photos", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", names=("valid",), train=VALID, test=1)
    folder = web / "train" / "mutated"
    folder.mkdir()
    for number in range(count):
        rng = random.Random(number)
        (folder / f"{number}.jpg").write_bytes(mutated(picture_file(rng), rng))
    for name, content in bombs().items():
        (folder / name).write_bytes(content)
    before = photos.fingerprint(web)
    ended = somnet_process(["propose", web, "--workers", 2], tmp_path / "notes", cache=tmp_path / "cache")
    assert ended.code == 0, ended.text
    assert "Traceback" not in ended.text
    assert ended.megabytes < MOST_MEGABYTES
    named = {line.strip().partition(": ")[0] for line in ended.text.splitlines() if line.startswith("  train/")}
    assert named == {os.path.relpath(file, web) for file in folder.iterdir() if not readable(file)}
    assert len(named) > count // 4
    assert f"{VALID + 1 + count + len(bombs()) - len(named)} images with" in ended.text
    assert photos.fingerprint(web) == before


def readable(file: Path) -> bool:
    try:
        read_picture(file, at_least=64)
    except UnreadableImage:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("copies", [2, pytest.param(6, marks=pytest.mark.long)])
def test_large_pictures_in_many_threads(copies: int, trained: Path, tmp_path: Path) -> None:
    """Pictures are decoded by threads of the parent; each of these takes nearly a gigabyte."""
    for number in range(copies):
        (tmp_path / f"{number}.png").write_bytes(bombs()["allowed.png"])
    words = ["predict", trained, *tmp_path.glob("*.png"), "--out", tmp_path / "p.csv"]
    ended = somnet_process(words, tmp_path / "notes", cache=tmp_path / "cache")
    assert ended.code == 0, ended.text
    assert f"{copies} rows, 0 of them unreadable" in ended.text
    assert ended.megabytes < MOST_MEGABYTES


NAMES = st.one_of(
    st.sampled_from(["a.png", "in/b.png", "link.png", "../secret.png", "/etc/passwd", "in/../../secret.png", "in", ""]),
    st.text(max_size=20),
    st.text(string.printable, max_size=300),
    st.none(),
    st.integers(),
    st.floats(),
    st.lists(st.integers(), max_size=2),
)
VALUES = st.one_of(st.none(), st.text(max_size=20), st.integers(), st.floats(), st.lists(st.floats(), max_size=5))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"file_name": NAMES, "label": VALUES},
        optional={"split": VALUES, "true_label": VALUES, "true_box": VALUES, "other": VALUES},
    ),
    min_size=1,
    max_size=5,
)


def must_stay_inside(root: Path) -> None:
    """The manifest is refused with its name, or lists files below its folder alone."""
    try:
        index = open_source(root)
    except DataError as error:
        assert str(root) in str(error)  # noqa: PT017
        return
    for row, problem in enumerate(index.column("problem")):
        if problem is None:
            assert Path(os.path.realpath(index.path(row))).is_relative_to(os.path.realpath(root))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("manifests")
    (base / "web" / "in").mkdir(parents=True)
    (base / "secret.png").touch()
    os.symlink(base / "secret.png", base / "web" / "link.png")
    return base / "web"


def write(root: Path, kind: str, rows: Sequence[dict[str, Any]]) -> None:
    for old in root.glob("metadata.*"):
        old.unlink()
    file = root / f"metadata.{kind}"
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "csv":
        with file.open("w", newline="", encoding="utf-8", errors="surrogatepass") as stream:
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = csv.DictWriter(stream, names)
            writer.writeheader()
            writer.writerows(rows)
    else:
        texts = [{name: None if value is None else repr(value) for name, value in row.items()} for row in rows]
        pq.write_table(pa.Table.from_pylist(texts), file)


def fuzz_rows(root: Path, count: int) -> None:
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(rows=ROWS, kind=st.sampled_from(["csv", "jsonl", "parquet"]))
    def check(rows: list[dict[str, Any]], kind: str) -> None:
        write(root, kind, rows)
        must_stay_inside(root)

    check()


def fuzz_bytes(root: Path, count: int) -> None:
    rows = [{"file_name": f"in/{number}.png", "label": "a", "true_box": "1 2 3 4"} for number in range(5)]
    for number in range(count):
        kind = ("csv", "jsonl", "parquet")[number % 3]
        write(root, kind, rows)
        file = root / f"metadata.{kind}"
        file.write_bytes(mutated(file.read_bytes(), random.Random(number)))
        must_stay_inside(root)


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.long)])
@pytest.mark.parametrize("fuzz", [fuzz_rows, fuzz_bytes])
def test_manifests_of_any_content(fuzz: Any, count: int, root: Path) -> None:
    fuzz(root, count)
