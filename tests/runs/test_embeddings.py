"""Images as vectors, for other programs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import somnet
from somnet.runs.embedding import _unit

if TYPE_CHECKING:
    from tests.conftest import Outcome, Tiny

    Cli = Callable[..., Outcome]


def test_embed_writes_a_vector_for_each_image(data: Path, tiny: "Tiny", tmp_path: Path, cli: "Cli") -> None:
    command = ("embed", data, "--out", tmp_path / "v.parquet", "--workers", 0, *tiny.flags())
    done = cli(*command)
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "v.parquet")
    assert table.num_rows == 24
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 96)
    labels = {name.split("/")[1] for name in table["file_name"].to_pylist()}
    assert set(table["label"].to_pylist()) == labels
    assert len({tuple(vector) for vector in table["embedding"].to_pylist()}) > 20
    again = cli(*command)
    assert again.code == 2
    assert "--overwrite" in again.err


def test_a_run_gives_the_vectors_that_it_classifies(trained: Path, data: Path) -> None:
    run = somnet.Run(trained)
    table = run.embeddings(device="cpu", workers=0)
    vectors = np.array(table["embedding"].to_pylist(), np.float32)  # (n, F)
    weight, bias = (value.detach().numpy() for value in (run.model.classifier.weight, run.model.classifier.bias))
    best = (vectors @ weight.T + bias).argmax(axis=1)
    files = [data / name for name in table["file_name"].to_pylist()]
    assert [run.classes[i] for i in best] == [found.labels[0] for found in run.predict(files, device="cpu", top=1)]


def test_a_run_keeps_what_its_images_look_like_in_few_numbers(trained: Path, data: Path, tiny: "Tiny") -> None:
    vectors = np.load(trained / "vectors.npy")
    count = len(list((data / "train").rglob("*.png")))
    assert vectors.shape == (count, count)  # of 96 numbers no more can differ than there are images
    run = somnet.Run(trained)
    table = run.embeddings(device="cpu", workers=0)  # with random weights, those of the trained network
    full = np.array(table["embedding"].to_pylist(), np.float64)[np.array(table["split"].to_pylist()) == "train"]
    full /= np.linalg.norm(full, axis=1, keepdims=True)
    apart, kept = (np.linalg.norm(each[:, None] - each, axis=2) for each in (full, vectors.astype(np.float64)))
    assert kept == pytest.approx(apart, abs=1e-3)  # distances are what they were


@pytest.mark.filterwarnings("error")
def test_vectors_of_a_network_that_has_gone_wrong_are_numbers() -> None:
    features = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 0], [3e38, 3e38]], np.float32)
    assert _unit(features) == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1], [1, 0], [0.5**0.5, 0.5**0.5]]))
