"""From names, folders and patterns to a table of predictions."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from somnet.errors import DataError
from somnet.report.heatmaps import with_heatmaps
from somnet.runs.prediction import Prediction
from somnet.runs.predictions import image_files, write_predictions
from somnet.runs.run import Run

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos

    Cli = Callable[..., Outcome]

ODD = "<img src=x onerror=alert(1)>"


@pytest.fixture
def web(photos: "Photos", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images in folders, with what crawlers leave beside them, in the current folder."""
    for number, name in enumerate(("b.png", "a/c.png", "a/B.png", "a/deep/d.jpg", "photo[1].png", "z/d.png")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        photos.picture(number, number).save(tmp_path / name)
    for name in ("a/notes.pdf", "a/film.mp4", "a/list.csv", "a/.hidden.png"):
        (tmp_path / name).write_text("not for us")
    (tmp_path / "a" / "broken.jpg").write_text("no picture")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["b.png"], ["b.png"]),
        (["a"], ["a/B.png", "a/broken.jpg", "a/c.png", "a/deep/d.jpg"]),
        (["a/*.png"], ["a/B.png", "a/c.png"]),
        (["**/d.*"], ["a/deep/d.jpg", "z/d.png"]),
        (["a/*"], ["a/B.png", "a/broken.jpg", "a/c.png", "a/deep/d.jpg"]),
        (["z", "a/c.png", "a/c.png", "z/*"], ["z/d.png", "a/c.png"]),
        (["photo[1].png"], ["photo[1].png"]),
        (["a/notes.pdf"], ["a/notes.pdf"]),
    ],
)
def test_names_folders_and_patterns(web: Path, words: list[str], expected: list[str]) -> None:
    assert image_files([Path(word) for word in words]) == expected


def test_nothing_found_is_named(web: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches \*\.tiff"):
        image_files([Path("*.tiff")])
    for missing in ("missing.png", "missing/"):
        with pytest.raises(DataError, match=r"missing.* does not exist"):
            image_files([Path("b.png"), Path(missing)])
    (web / "empty").mkdir()
    with pytest.raises(DataError, match="no images in empty"):
        image_files([Path("empty")])


def test_a_name_that_is_no_text_survives(web: Path, trained: Path, photos: "Photos") -> None:
    name = os.fsencode(web) + b"/z/\xff.png"
    with open(name, "wb") as file:
        photos.picture(0, 0).save(file, "PNG")
    found = Run(trained).predict(image_files([Path("z")]), device="cpu")
    assert write_predictions(with_heatmaps(found, Path("heat")), Path("p.jsonl"), top=3) == (2, 0)
    rows = [json.loads(line) for line in Path("p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["file_name"] for row in rows] == ["z/d.png", "z/\\xff.png"]


def test_a_batch_changes_nothing(web: Path, trained: Path) -> None:
    run, files = Run(trained), ["a/c.png", "a/broken.jpg", "b.png", "missing.png", "a/B.png", "z/d.png"]
    whole = list(run.predict(files, device="cpu"))
    assert [row.file_name for row in whole] == files
    assert [row.unreadable_reason for row in whole if not row.labels] == ["not an image", "there is no such file"]
    for size in (1, 2, 5):
        parts = list(run.predict(files, device="cpu", batch_size=size))
        assert [row.labels for row in parts] == [row.labels for row in whole]
        for part, row in zip(parts, whole, strict=True):
            assert part.probabilities == pytest.approx(row.probabilities, abs=1e-6)


def test_evidence_adds_up_to_the_logit(web: Path, trained: Path) -> None:
    """Exact, as the classifier is linear and the pooling a mean."""
    run = Run(trained)
    [row] = run.predict(["b.png"], device="cpu", evidence=True)
    [plain] = run.predict("b.png", device="cpu")  # a single file needs no list
    assert row.labels == plain.labels
    assert row.probabilities == pytest.approx(plain.probabilities, abs=1e-6)
    assert plain.evidence is None
    assert row.evidence is not None
    assert row.evidence.ndim == 2
    with torch.no_grad():
        pixels = torch.from_numpy(np.asarray(Image.open("b.png")).copy()).permute(2, 0, 1)[None]
        logits = run.model(run.model.prepare(pixels))[0]
    assert float(row.evidence.mean()) == pytest.approx(float(logits.max() - logits.mean()), abs=1e-4)


def test_heat_maps_get_names_of_their_own(web: Path, trained: Path, photos: "Photos", cli: "Cli") -> None:
    (web / "A").mkdir()
    photos.picture(1, 2).save(web / "A" / "C.png")
    photos.picture(1, 2).save(web / "A" / f"{'x' * 240}.png")
    before = photos.fingerprint(web)
    outcome = cli("predict", trained, "a", "A", "z", "--out", "p.csv", "--heatmaps", "heat", "--top-k", 2)
    assert outcome.code == 0, outcome.err
    assert "p.csv: 7 rows, 1 of them unreadable" in outcome.out
    assert "heat: a picture" in outcome.out
    with open("p.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["heatmap"] for row in rows] == [
        "heat/B.jpg",
        "",
        "heat/c.jpg",
        "heat/d.jpg",
        "heat/C-2.jpg",
        f"heat/{'x' * 150}.jpg",
        "heat/d-2.jpg",
    ]
    assert {name for name in rows[0] if name} >= {"label_2", "probability_2"}
    assert "label_3" not in rows[0]
    assert {str(path) for path in Path("heat").iterdir()} == {row["heatmap"] for row in rows} - {""}
    for path in Path("heat").iterdir():
        Image.open(path).load()
    again = cli("predict", trained, "a", "--out", "q.csv", "--heatmaps", "z")  # the user's own photos
    assert again.code == 2
    assert "not empty" in again.err
    assert photos.fingerprint(web).items() >= before.items()
    assert not Path("q.csv").exists()


def test_the_format_follows_from_the_name(web: Path, trained: Path, cli: "Cli") -> None:
    outcome = cli("predict", trained, "b.png", "a/broken.jpg", "--out", "p.jsonl")
    assert outcome.code == 0, outcome.err
    good, bad = (json.loads(line) for line in Path("p.jsonl").read_text(encoding="utf-8").splitlines())
    assert sorted(good["labels"]) == sorted(Run(trained).classes)
    assert sum(good["probabilities"]) == pytest.approx(1, abs=1e-5)
    assert (bad["labels"], bad["unreadable_reason"]) == ([], "not an image")
    wrong = cli("predict", trained, "b.png", "--out", "b.png")
    assert wrong.code == 2
    assert ".csv or .jsonl" in wrong.err
    Image.open("b.png").load()
    before = Path("p.jsonl").read_bytes()
    refused = cli("predict", trained, "b.png", "--out", "p.jsonl")
    assert (refused.code, Path("p.jsonl").read_bytes()) == (2, before)
    assert "p.jsonl exists: add --overwrite to replace it, or give another --out" in refused.err
    assert cli("predict", trained, "b.png", "--out", "p.jsonl", "--overwrite").code == 0
    assert Path("p.jsonl").read_bytes() == before.splitlines(keepends=True)[0]


def test_an_error_half_way_leaves_the_old_table(tmp_path: Path) -> None:
    def broken() -> Iterator[Prediction]:
        yield Prediction("a.jpg", ("ash",), (1.0,))
        raise DataError("stop")

    out = tmp_path / "p.csv"
    out.write_text("old")
    with pytest.raises(DataError, match="stop"):
        write_predictions(broken(), out, top=1)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


TEXT = st.one_of(
    st.sampled_from([ODD, '"><script>', "=cmd()", "+1", "@x", "\u202eabc", "x" * 200, "a,b\nc"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
)


@given(name=TEXT, label=TEXT, reason=st.none() | TEXT)
def test_any_text_survives_in_both_tables(
    tmp_path_factory: pytest.TempPathFactory, name: str, label: str, reason: str | None
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    row = Prediction(name, (), (), reason) if reason else Prediction(name, (label,), (0.5,))
    for file in ("p.csv", "p.jsonl"):
        assert write_predictions([row, Prediction("good")], folder / file, top=2) == (2, int(reason is not None))
    read, _ = (json.loads(line) for line in (folder / "p.jsonl").read_text(encoding="utf-8").split("\n") if line)
    assert (read["file_name"], read["labels"], read["unreadable_reason"]) == (name, list(row.labels), reason)
    with (folder / "p.csv").open(newline="", encoding="utf-8") as file_:
        header, cells, _ = csv.reader(file_)
    assert len(cells) == len(header)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert cells[0].removeprefix("'") == name.removeprefix("'")


@pytest.mark.parametrize("out", ["p.csv", "p.jsonl"])
def test_a_table_is_never_replaced_by_errors(web: Path, out: str) -> None:
    Path(out).write_text("the old one")
    bad = [Prediction("a/broken.jpg", unreadable_reason="not an image"), Prediction("b", unreadable_reason="empty")]
    with pytest.raises(
        DataError, match=r"none of 2 files can be read \(the first: not an image\), so p\..* not written"
    ):
        write_predictions(bad, Path(out), top=2)
    assert Path(out).read_text() == "the old one"
    assert write_predictions([*bad, Prediction("c", ("ash",), (1.0,))], Path(out), top=1) == (3, 2)
