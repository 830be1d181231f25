"""What an evaluation tells beside the accuracy: what is taken for what, and which files are wrong."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

import somnet
from somnet.cleaning.clean import clean
from somnet.errors import RunError
from somnet.report.confusion import matrix_picture, write_evaluation
from somnet.runs.run import Evaluation, Run, WrongImage, accuracy_of

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

CLASSES = ("<b>ash", "=oak", "pine")


@pytest.fixture
def result() -> Evaluation:
    scores = np.array([[3, 1, 0], [0, 2, 1], [0, 2, 1], [0, 1, 5], [9, 0, 0], [0, 4, 1]], np.float32)
    return accuracy_of(scores, np.array([0, 0, 0, 1, 1, 2]), CLASSES)


def test_the_matrix_counts_labels_by_rows(result: Evaluation) -> None:
    assert result.matrix.tolist() == [[1, 2, 0], [1, 0, 1], [0, 1, 0]]
    assert result.confusions() == [
        ("<b>ash", "=oak", 2),
        ("=oak", "<b>ash", 1),
        ("=oak", "pine", 1),
        ("pine", "=oak", 1),
    ]
    assert result.top1 == pytest.approx(1 / 6)


def test_names_are_text_in_picture_tables_and_notebooks(result: Evaluation, tmp_path: Path) -> None:
    picture = ElementTree.fromstring(matrix_picture(result))
    titles = [element.text for element in picture.iter() if element.tag.endswith("title")]
    assert len(titles) == 9
    assert "<b>ash taken for =oak: 2" in titles
    assert "&lt;b&gt;ash" in result._repr_html_()
    wrong = (WrongImage("=1.png", "=oak", "pine", 0.9),)
    write_evaluation(Evaluation(**{**vars(result), "wrong": wrong}), tmp_path / "out")
    rows = list(csv.reader((tmp_path / "out/wrong.csv").open()))
    assert rows[1] == ["'=1.png", "'=oak", "pine", "0.900000"]
    assert list(csv.reader((tmp_path / "out/confusion.csv").open()))[1:] == [
        ["<b>ash", "1", "2", "0"],
        ["'=oak", "1", "0", "1"],
        ["pine", "0", "1", "0"],
    ]


def test_eval_names_confusions_and_wrong_files(
    trained: Path, photos: "Photos", tmp_path: Path, cli: "Callable[..., Outcome]"
) -> None:
    """Pictures under a wrong label, which a trained network does not follow."""
    folder = photos.fill(tmp_path / "web", train=0, test=0) / "test"
    for name in ("ash", "oak, red"):
        for number in range(3):
            photos.picture(number, number).save(folder / name / f"{number}.png")
    outcome = cli("eval", trained, tmp_path / "web", "--out", tmp_path / "told")
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader((tmp_path / "told/wrong.csv").open()))
    assert len(rows) >= 3  # at most one picture in three can be right in each folder, unless all are taken for one
    assert f"{rows[0]['label']} taken for" in outcome.out
    assert all(row["label"] != row["predicted_label"] for row in rows)
    again = cli("eval", trained, tmp_path / "web", "--out", tmp_path / "told")
    assert again.code == 2
    assert "--overwrite" in again.err


def test_images_that_were_trained_on_are_named(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And a network that was not trained to its end; and that there is nothing to resume."""
    data = photos.fill(tmp_path / "web", names=("ash", "oak"), train=3, test=2)
    run = somnet.train(data, tiny.config("plain", **{"train.epochs": 1}), out=tmp_path / "run", workers=0, resume=True)
    assert f"there is nothing to resume in {tmp_path / 'run'}: a new training begins" in caplog.text
    caplog.clear()
    run.evaluate(data, workers=0)
    assert "were trained on" not in caplog.text
    shutil.copytree(data / "train" / "ash", data / "test" / "ash", dirs_exist_ok=True)
    run.evaluate(data, workers=0)
    assert "3 of 7 images were trained on" in caplog.text
    assert "half trained" not in caplog.text
    (run.path / "summary.json").unlink()
    list(run.predict([data / "test" / "ash" / "0.png"]))
    assert "is not finished, so its network is half trained: continue with somnet train --resume" in caplog.text


# --- runs in Python


def test_a_run_shows_what_it_is(trained: Path) -> None:
    run = somnet.Run(trained)
    assert repr(run) == f"Run({str(trained)!r}: somnet with test_resnet, 3 classes, 18 images, finished)"
    assert "test_resnet" in run._repr_html_()
    assert f"<td>{100 * run.summary['test']['top1']:.2f} %" in run._repr_html_()


def test_a_run_without_test_images_shows_itself_too(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    data = photos.fill(tmp_path / "web", ("ash", "oak"), train=4, test=0)
    run = somnet.train(data, tiny.config("plain"), out=tmp_path / "run", device="cpu", workers=0)
    assert run.summary["test"]["top1"] is None
    assert "accuracy" not in run._repr_html_()


def test_scores_are_a_frame_where_pandas_is(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = somnet.Run(trained).to_pandas()
    assert list(frame.columns) == somnet.Run(trained).scores().column_names
    assert len(frame) == 18
    assert frame.label_score.is_monotonic_increasing
    assert "<table" in frame._repr_html_()
    monkeypatch.setattr("somnet.runs.run_folder.find_spec", lambda _: None)
    with pytest.raises(RunError, match=r"pip install pandas, or take scores\(\)"):
        somnet.Run(trained).to_pandas()


def test_a_run_has_the_verbs_as_methods(trained: Path, tmp_path: Path) -> None:
    run = somnet.Run(trained)
    cleaned = run.clean(tmp_path / "cleaned", dry_run=True)
    assert sum(cleaned.kept.values()) + sum(sum(gone.values()) for gone in cleaned.removed.values()) == 18
    assert "ash" in cleaned._repr_html_()
    assert (run.export("timm", tmp_path / "timm") / "model.safetensors").is_file()
    assert isinstance(run, Run)


def test_a_cleaned_copy_does_not_lie_in_a_run(trained: Path) -> None:
    for out in (trained / "clean", trained / "deep/clean"):
        with pytest.raises(RunError, match="lies inside the run"):
            clean(trained, out)
        assert not out.exists()


@pytest.mark.slow
def test_a_finished_run_is_not_continued_with_other_data(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, cli: "Callable[..., Outcome]"
) -> None:
    photos.fill(tmp_path / "a")
    photos.fill(tmp_path / "b", train=5)
    command = ("--out", tmp_path / "run", "--method", "plain", "--workers", 0, *tiny.flags())
    assert cli("train", tmp_path / "a", *command).code == 0
    other = cli("train", tmp_path / "b", *command, "--resume")
    assert other.code == 2
    assert "are not those that" in other.err
    (tmp_path / "a").rename(tmp_path / "moved")
    same = cli("train", tmp_path / "moved", *command, "--resume")
    assert same.code == 0, same.err
    assert "finished already" in " ".join(same.err.split())
