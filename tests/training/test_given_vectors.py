"""A training on vectors that another model has made of the images: one command to scores, a classifier and a report."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import somnet
from somnet.config import ModelConfig
from somnet.data.embeddings import read_embeddings, vector_width
from somnet.data.sources import open_source
from somnet.errors import ConfigError, DataError, RunError
from somnet.system.files import display_name

if TYPE_CHECKING:
    from tests.conftest import Outcome

    Cli = Callable[..., Outcome]

WIDTH = 12


def names_of(data: Path) -> list[str]:
    return [display_name(name) for name in open_source(data).column("file_name")]


def made_vectors(data: Path) -> NDArray[np.float32]:
    """Vectors that tell the classes of the images apart, in the order of their names."""
    index = open_source(data)
    rng = np.random.default_rng(0)
    middles = 3 * rng.standard_normal((len(index.classes), WIDTH))
    return (middles[index.labels()] + rng.standard_normal((len(index), WIDTH))).astype(np.float32)


def write_parquet(file: Path, names: list[str], vectors: Any) -> Path:
    column = pa.array([None if row is None else list(row) for row in vectors], pa.list_(pa.float32()))
    pq.write_table(pa.table({"file_name": pa.array(names), "vector": column}), file)
    return file


@pytest.fixture
def vectors(data: Path, tmp_path: Path) -> Path:
    return write_parquet(tmp_path / "v.parquet", names_of(data)[::-1], made_vectors(data)[::-1])


def test_from_vectors_to_a_report_in_one_command(data: Path, vectors: Path, tmp_path: Path, cli: "Cli") -> None:
    done = cli("train", data, "--embeddings", vectors, "--out", tmp_path / "run", "--workers", 0)
    assert done.code == 0, done.err
    assert "predict" not in done.err
    run = somnet.Run(tmp_path / "run")
    assert run.config.method == "linear-probe"
    assert run.summary["test"]["top1"] == 1.0  # the vectors tell the classes apart
    assert (run.path / "report" / "map.html").is_file()
    assert np.load(run.path / "vectors.npy").shape == (18, WIDTH)
    assert run.scores()["label_score"].to_numpy().min() > 0.5
    evaluated = run.evaluate(data, device="cpu", workers=0)
    assert evaluated.top1 == 1.0
    for refused in (["predict", run.path, data, "--out", tmp_path / "p.csv"], ["export", run.path, "--format", "timm"]):
        told = cli(*refused)
        assert told.code == 2
        assert "linear classifier for the vectors of" in told.err


def test_other_data_need_vectors_of_their_own(data: Path, vectors: Path, trained: Path, tmp_path: Path) -> None:
    config = somnet.Config(method="linear-probe").with_settings({"model.embeddings": str(vectors)})
    run = somnet.train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    others = tmp_path / "others"
    shutil.copytree(data / "test", others)
    with pytest.raises(DataError, match="no vector of 6 of 6 images"):
        run.evaluate(others, device="cpu", workers=0)
    held_out = [row for row, name in enumerate(names_of(data)) if name.startswith("test/")]
    file = write_parquet(tmp_path / "o.parquet", names_of(others), made_vectors(data)[held_out])
    assert run.evaluate(others, embeddings=file, device="cpu", workers=0).top1 == 1.0
    with pytest.raises(RunError, match="not trained on vectors: leave these out"):
        somnet.Run(trained).evaluate(data, embeddings=file, device="cpu", workers=0)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--model", "tf_efficientnet_lite0"], "--model"),  # the default, but it was typed
        (["--model", "resnet18", "--weights", "w.safetensors"], "--model and --weights"),
        (["--set", "model.name=resnet18"], "model.name=resnet18"),
        (["--freeze", "none"], "model.freeze=none"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "plan"])
def test_a_network_beside_vectors_is_refused(
    verb: str, flags: list[str], named: str, data: Path, vectors: Path, tmp_path: Path, cli: "Cli"
) -> None:
    if verb == "plan" and "--weights" in flags:
        pytest.skip("weights cost no time")
    out = ["--out", tmp_path / "run"] if verb == "train" else []
    done = cli(verb, data, "--embeddings", vectors, *out, *flags)
    assert done.code == 2
    assert f"so {named} would be ignored: leave that out, or --embeddings\n" in done.err
    assert not (tmp_path / "run").exists()


def test_in_python_a_network_beside_vectors_is_refused(data: Path, vectors: Path, tmp_path: Path) -> None:
    config = somnet.Config(method="linear-probe", model=ModelConfig(name="resnet18", embeddings=str(vectors)))
    with pytest.raises(ConfigError, match=r"model.name=resnet18 .*\(in Python: model.embeddings of Config\)$"):
        somnet.train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    assert not (tmp_path / "run").exists()


def test_the_config_of_a_run_on_vectors_starts_another(data: Path, vectors: Path, tmp_path: Path, cli: "Cli") -> None:
    for name, flags in {
        "one": ["--embeddings", vectors],
        "two": ["--config", tmp_path / "one" / "config.toml"],
    }.items():
        done = cli("train", data, *flags, "--out", tmp_path / name, "--workers", 0)
        assert done.code == 0, done.err
    assert (tmp_path / "one" / "issues.csv").read_bytes() == (tmp_path / "two" / "issues.csv").read_bytes()


def test_wrong_labels_are_found_by_vectors_alone(data: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped"
    swapped.mkdir()
    index, rng = open_source(data), np.random.default_rng(1)
    names, labels = names_of(data), index.labels()
    rows, wrong = [], set()
    for copy in range(6):  # enough images to tell
        for row, name in enumerate(names):
            target = swapped / f"{copy}-{row}.png"
            target.write_bytes((data / name).read_bytes() + bytes([copy]))
            label = int(labels[row])
            if rng.random() < 0.1:
                label = (label + 1) % len(index.classes)
                wrong.add(target.name)
            rows.append((target.name, index.classes[label], int(labels[row])))
    lines = "\n".join(f"{name},{label}" for name, label, _ in rows)
    (swapped / "metadata.csv").write_text(f"file_name,label\n{lines}\n")
    middles = 3 * rng.standard_normal((len(index.classes), WIDTH))
    found = [middles[shown] + rng.standard_normal(WIDTH) for _, _, shown in rows]
    file = write_parquet(tmp_path / "v.parquet", [name for name, _, _ in rows], found)
    config = somnet.Config(method="linear-probe").with_settings({"model.embeddings": str(file)})
    run = somnet.train(swapped, config, out=tmp_path / "run", device="cpu", workers=0)
    scores = run.scores().sort_by("label_score")
    worst = set(scores["file_name"].to_pylist()[: len(wrong)])
    assert len(worst & wrong) >= 0.9 * len(wrong)


def test_what_embed_writes_is_read(data: Path, tiny: Any, tmp_path: Path, cli: "Cli") -> None:
    done = cli("embed", data, "--out", tmp_path / "own.parquet", "--workers", 0, *tiny.flags())
    assert done.code == 0, done.err
    index = open_source(data)
    assert vector_width(tmp_path / "own.parquet") == 96
    assert read_embeddings(tmp_path / "own.parquet", index).of(index).shape == (24, 96)


def test_rows_of_an_array_are_in_the_order_of_the_files(data: Path, vectors: Path, tmp_path: Path) -> None:
    index = open_source(data)
    np.save(tmp_path / "v.npy", made_vectors(data).astype(np.float64))
    by_row, by_name = (read_embeddings(file, index).of(index) for file in (tmp_path / "v.npy", vectors))
    assert np.array_equal(by_row, by_name)


def test_a_resume_needs_the_same_vectors(data: Path, vectors: Path, tmp_path: Path) -> None:
    config = somnet.Config(method="linear-probe").with_settings({"model.embeddings": str(vectors)})
    run = somnet.train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    (run.path / "summary.json").unlink()
    write_parquet(vectors, names_of(data), made_vectors(data) + 1)
    with pytest.raises(RunError, match="are not those that"):
        somnet.train(data, config, out=run.path, device="cpu", workers=0, resume=True)


SPOILT: dict[str, tuple[Callable[[list[str], NDArray[np.float32]], tuple[list[str], Any]], str]] = {
    "a missing one": (lambda n, v: (n[1:], v[1:]), "no vector of 1 of"),
    "other names": (lambda n, v: ([f"/home/me/{name}" for name in n], v), "/home/me/"),
    "NaN": (lambda n, v: (n, np.where(np.arange(len(v))[:, None] == 3, np.nan, v)), "NaN"),
    "infinite": (lambda n, v: (n, np.where(np.arange(len(v))[:, None] == 3, np.inf, v)), "infinite"),
    "twice": (lambda n, v: (n[:1] + n, np.concatenate([v[:1], v])), "several vectors of"),
    "nothing": (lambda n, v: (n, [None, *v[1:]]), "no vectors|without a vector"),
    "uneven": (lambda n, v: (n, [v[0], v[1][:5], *v[2:]]), "different lengths"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_vectors_that_do_not_fit_are_refused_before_anything_is_written(data: Path, tmp_path: Path, what: str) -> None:
    spoil, told = SPOILT[what]
    file = write_parquet(tmp_path / "v.parquet", *spoil(names_of(data), made_vectors(data)))
    config = somnet.Config(method="linear-probe").with_settings({"model.embeddings": str(file)})
    with pytest.raises(DataError, match=told) as error:
        somnet.train(data, config, out=tmp_path / "run", device="cpu", workers=0)
    assert str(file) in str(error.value)
    assert not (tmp_path / "run").exists()


def test_files_of_other_kinds_are_refused(data: Path, tmp_path: Path, cli: "Cli") -> None:
    np.save(tmp_path / "few.npy", np.zeros((23, 4)))
    np.save(tmp_path / "flat.npy", np.zeros(24))
    np.save(tmp_path / "objects.npy", np.array([{}] * 24), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "text.parquet").write_text("no table")
    pq.write_table(pa.table({"file_name": ["a"], "label": ["b"]}), tmp_path / "scores.parquet")
    pq.write_table(pa.table({"vector": [[1.0]]}), tmp_path / "nameless.parquet")
    told = {
        "few.npy": "has 23 rows, but the data have 24 images",
        "flat.npy": "a row of numbers for each image",
        "objects.npy": "not an array of numpy",
        "text.npy": "not an array of numpy",
        "text.parquet": "not a Parquet file",
        "scores.parquet": "no column of vectors",
        "nameless.parquet": "no column file_name",
        "missing.parquet": "give an existing file",
        "missing.npy": "give an existing file",
        "v.csv": "neither .parquet nor .npy",
    }
    for name, words in told.items():
        done = cli("train", data, "--embeddings", tmp_path / name, "--out", tmp_path / "run", "--workers", 0)
        assert done.code == 2, name
        assert words in done.err, done.err
    done = cli("train", data, "--embeddings", tmp_path / "few.npy", "--method", "elr", "--out", tmp_path / "run")
    assert done.code == 2
    assert "--method linear-probe" in done.err
