"""The command line, as a user meets it: real processes where it matters, the same entry point elsewhere."""

import csv
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import somnet
from somnet.errors import OPENCV_FIX

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]

COLUMNS = [
    "file_name",
    "given_label",
    "verified",
    "predicted_label",
    "predicted_score",
    "is_label_issue",
    "label_score",
    "is_outlier_issue",
    "outlier_score",
    "suggested_label",
    "review_order",
    "belief",
    "is_background_issue",
    "background_score",
    "is_unreadable_issue",
    "unreadable_reason",
    "is_near_duplicate_issue",
    "near_duplicate_score",
    "duplicate_group",
    "is_test_leak_issue",
    "test_leak_score",
    "test_leak_of",
    "is_poor_picture_issue",
    "poor_picture_score",
    "poor_picture_reason",
    "winner_slot",
    "d_score",
    "r_score",
    "a_score",
    "roi_weight",
    "clean_box",
    "reasons",
]


def in_a_process(*words: object) -> subprocess.CompletedProcess[str]:
    """`somnet WORDS`, without a terminal."""
    command = [str(Path(sys.executable).with_name("somnet")), *map(str, words)]
    hidden = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@dataclass(frozen=True)
class Finished:
    """A run that `somnet train` left, and the data it was trained on."""

    data: Path
    before: dict[str, str]
    out: Path
    flags: list[str]
    process: subprocess.CompletedProcess[str]

    def again(self, *more: str) -> list[object]:
        return ["train", self.data, "--out", self.out, *self.flags, *more]


@pytest.fixture(scope="module")
def finished(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Finished:
    base = tmp_path_factory.mktemp("a folder whose long name would not fit on one line of a terminal's 80 columns")
    data = photos.fill(base / "web")
    (data / "train" / "ash" / "broken.jpg").write_text("no picture")
    before = photos.fingerprint(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        process = in_a_process("train", data, "--out", base / "run", *tiny.flags(), "--workers", 1)
    assert process.returncode == 0, process.stderr
    return Finished(data, before, base / "run", tiny.flags(), process)


def one_line_error(outcome: "Outcome | subprocess.CompletedProcess[str]") -> str:
    code, text = (
        (outcome.returncode, outcome.stderr)
        if isinstance(outcome, subprocess.CompletedProcess)
        else (outcome.code, outcome.err)
    )
    assert code == 2, text
    assert "Traceback" not in text
    line = text.strip().splitlines()[-1]  # after what was logged
    assert line.startswith("error: ")
    return line


def test_summary_has_the_documented_form(finished: Finished) -> None:
    summary = json.loads((finished.out / "summary.json").read_text())
    assert {name: set(value) if isinstance(value, dict) else type(value) for name, value in summary.items()} == {
        "method": str,
        "seed": int,
        "config_hash": str,
        "data": {"classes", "train", "test", "unreadable"},
        "test": {"top1", "top5", "n"},
        "noise": {"auroc", "belief_auroc"},
        "regions": {"best_iou", "image_iou"},
        "seconds": {"propose", "features", "train", "score", "total"},
        "versions": {"somnet", "python", "torch", "timm"},
    }
    assert summary["data"] == {"classes": 3, "train": 18, "test": 6, "unreadable": 1}
    assert summary["test"]["n"] == 6
    assert summary["test"]["top5"] == 1.0  # of 3 classes
    assert summary["noise"]["auroc"] is None  # a plain folder says nothing about the truth


def test_issues_have_a_row_per_training_image(finished: Finished) -> None:
    table = pq.read_table(finished.out / "issues.parquet")
    with (finished.out / "issues.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert table.column_names == list(rows[0]) == COLUMNS
    files = {f"train/{path.parent.name}/{path.name}" for path in finished.data.glob("train/*/*")}
    assert set(table["file_name"].to_pylist()) == files
    assert table.num_rows == len(rows) == len(files) == 19
    bad = [row for row in rows if row["is_unreadable_issue"] == "true"]
    assert [(row["file_name"], row["unreadable_reason"]) for row in bad] == [("train/ash/broken.jpg", "not an image")]


def test_no_cell_of_the_csv_starts_a_formula(finished: Finished) -> None:
    assert "=birch" in pq.read_table(finished.out / "issues.parquet")["given_label"].to_pylist()
    with (finished.out / "issues.csv").open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert "'=birch" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


def test_without_a_terminal_the_output_is_plain_lines(finished: Finished) -> None:
    text = finished.process.stdout + finished.process.stderr
    assert "\x1b" not in text
    assert "\r" not in text
    assert "train: 18 images, 6 to 6 per class" in text
    assert "training: " in text
    assert "Traceback" not in text


def test_done_is_said_when_all_is_done(finished: Finished) -> None:
    text = finished.process.stderr
    assert text.index("index.html") < text.index(": every image with its scores") < text.index("next, see what was")
    assert ": every image with its scores" in (finished.out / "train.log").read_text().splitlines()[-6]


def test_a_line_of_the_log_is_never_broken_in_two(finished: Finished) -> None:
    """What is said to be typed next can be copied, however long and odd the path."""
    for command in ("report {} --open", "clean {} --out DIR", "export {} --format onnx", "predict {} IMAGES"):
        assert f"somnet {command.format(shlex.quote(str(finished.out)))}\n" in finished.process.stderr


def test_existing_run_is_not_overwritten(finished: Finished, photos: "Photos", cli: "Cli") -> None:
    before = photos.fingerprint(finished.out)
    message = one_line_error(cli(*finished.again()))
    assert "--resume" in message
    assert "--overwrite" in message
    assert photos.fingerprint(finished.out) == before


def test_resume_of_a_finished_run_does_nothing(finished: Finished, photos: "Photos", cli: "Cli") -> None:
    before = photos.fingerprint(finished.out)
    outcome = cli(*finished.again("--resume"))
    assert outcome.code == 0, outcome.err
    assert "finished already" in " ".join(outcome.err.split())
    after = photos.fingerprint(finished.out)
    assert {name for name in after if after[name] != before.get(name)} <= {"train.log"}


def test_resume_with_other_settings_names_them(finished: Finished, photos: "Photos", cli: "Cli") -> None:
    before = photos.fingerprint(finished.out)
    message = one_line_error(cli(*finished.again("--resume", "--set", "train.lr=0.5")))
    assert "train.lr was 0.01, now 0.5" in message
    assert photos.fingerprint(finished.out) == before


def test_resume_and_overwrite_together_are_refused(finished: Finished, cli: "Cli") -> None:
    assert "contradict" in one_line_error(cli(*finished.again("--resume", "--overwrite")))


def test_resume_needs_the_folder(data: Path, cli: "Cli") -> None:
    assert "--out" in one_line_error(cli("train", data, "--resume"))


@pytest.mark.parametrize("flag", [(), ("--resume",), ("--overwrite",)])
def test_a_folder_that_is_no_run_is_left_alone(
    data: Path, tiny: "Tiny", photos: "Photos", cli: "Cli", tmp_path: Path, flag: tuple[str, ...]
) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("thesis.txt", "issues.csv", "checkpoints/mine.bin"):
        (tmp_path / name).write_text("years of work")
    before = photos.fingerprint(tmp_path)
    assert str(tmp_path) in one_line_error(cli("train", data, "--out", tmp_path, *tiny.flags(), *flag))
    assert photos.fingerprint(tmp_path) == before


@pytest.mark.parametrize("flag", ["--resume", "--overwrite"])
def test_a_config_of_another_program_makes_no_run(
    data: Path, tiny: "Tiny", photos: "Photos", cli: "Cli", tmp_path: Path, flag: str
) -> None:
    """config.toml is a common name: only one that somnet wrote marks a folder that may be emptied."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.toml").write_text('baseURL = "https://example.org/"\n')
    for name in ("data.json", "train.log", "checkpoints/mine.bin"):
        (tmp_path / name).write_text("years of work")
    before = photos.fingerprint(tmp_path)
    one_line_error(cli("train", data, "--out", tmp_path, *tiny.flags(), flag))
    assert photos.fingerprint(tmp_path) == before


def test_overwrite_starts_over_and_keeps_what_is_not_the_runs(
    data: Path, tiny: "Tiny", cli: "Cli", tmp_path: Path
) -> None:
    def command(seed: int, *more: str) -> list[object]:
        flags = [*tiny.flags(), "--method", "plain", "--seed", seed, "--workers", 1]
        return ["train", data, "--out", tmp_path / "run", *flags, *more]

    assert cli(*command(0)).code == 0
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert cli(*command(1, "--overwrite")).code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["seed"] == 1
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_eval_measures_the_test_images(finished: Finished, cli: "Cli") -> None:
    outcome = cli("eval", finished.out, finished.data)
    assert outcome.code == 0, outcome.err
    assert "6 images" in outcome.out
    top1 = json.loads((finished.out / "summary.json").read_text())["test"]["top1"]
    assert f"top-1 {100 * top1:.2f} %" in outcome.out
    assert [line.split("  ")[0] for line in outcome.out.splitlines()[1:4]] == ["=birch", "ash", "oak, red"]


def test_predict_writes_a_row_per_file(
    finished: Finished, photos: "Photos", cli: "Cli", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    photos.picture(0, 1).save(tmp_path / "=1+1.png")
    photos.picture(1, 1).save(tmp_path / "folder" / "b.png")
    (tmp_path / "folder" / "bad.jpg").write_text("no picture")
    monkeypatch.chdir(tmp_path)
    outcome = cli("predict", finished.out, "=1+1.png", "folder", "--out", "p.csv")
    assert outcome.code == 0, outcome.err
    assert "3 rows, 1 of them unreadable" in outcome.out
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == ["'=1+1.png", "folder/b.png", "folder/bad.jpg"]
    assert [row["unreadable_reason"] for row in rows] == ["", "", "not an image"]
    assert {row["predicted_label"] for row in rows} <= {"'=birch", "ash", "oak, red", ""}
    assert [bool(row["predicted_label"]) for row in rows] == [True, True, False]
    shares = [float(rows[0][name]) for name in ("probability", "probability_2", "probability_3")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert shares == sorted(shares, reverse=True)


def test_propose_counts_boxes_and_names_bad_files(finished: Finished, cli: "Cli") -> None:
    outcome = cli("propose", finished.data, "--set", "proposals.max_boxes=4", "--workers", 1)
    assert outcome.code == 0, outcome.err
    assert "24 images with" in outcome.out
    assert "boxes; 1 unreadable file\n" in outcome.out
    assert "train/ash/broken.jpg: not an image" in outcome.out


def test_doctor_checks_this_machine(cli: "Cli") -> None:
    outcome = cli("doctor")
    assert outcome.code == 0
    for name in ("python", "torch", "EdgeBoxes", "offline", "GPU", "disk"):
        assert name in outcome.out


def test_doctor_fails_without_edge_boxes(cli: "Cli", monkeypatch: pytest.MonkeyPatch) -> None:
    import cv2

    monkeypatch.delattr(cv2, "ximgproc")
    outcome = cli("doctor")
    assert outcome.code == 1
    assert OPENCV_FIX in outcome.out


def test_version() -> None:
    done = in_a_process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, somnet.__version__)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--method", "nope"], "plain, plain-roi"),
        (["--set", "train.epoch=3"], "epochs"),
        (["--set", "train.epochs"], "name=value"),
        (["--epochs", "0"], "train.epochs"),
        (["--model", "resnet_of_mine"], "resnet_of_mine"),
        (["--config", "none.toml"], "none.toml"),
        (["--device", "cuda:7"], "GPU"),
        (["--device", "gpu"], "gpu"),
        (["--device", "cpu:3"], "cpu:3"),
        (["--device", "meta"], "meta"),
        (["--set", "train.lr=inf"], "train.lr"),
    ],
)
def test_a_wrong_setting_is_one_line(
    data: Path, tiny: "Tiny", cli: "Cli", tmp_path: Path, words: list[str], named: str
) -> None:
    assert named in one_line_error(cli("train", data, "--out", tmp_path / "run", *tiny.flags(), *words))


@pytest.mark.slow
def test_a_wrong_setting_is_one_line_of_a_real_process(data: Path) -> None:
    done = in_a_process("propose", data, "--set", "proposals.boxes=3")
    assert "proposals.boxes" in one_line_error(done)
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_method_takes_no_folder(data: Path, cli: "Cli", tmp_path: Path) -> None:
    one_line_error(cli("train", data, "--out", tmp_path / "run", "--method", "nope"))
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_cannot_be_used(tmp_path: Path, data: Path, cli: "Cli") -> None:
    for words in (["eval", tmp_path, data], ["predict", tmp_path, data]):
        assert "is not a run" in one_line_error(cli(*words))


def test_the_users_data_is_unchanged(finished: Finished, photos: "Photos") -> None:
    """After all that the tests above did with it."""
    assert photos.fingerprint(finished.data) == finished.before


def test_train_ends_with_a_report_and_the_verb_writes_it_again(
    finished: Finished, cli: "Cli", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = finished.out / "report" / "index.html"
    assert index.is_file()
    assert f"look at it: {index}" in finished.process.stderr
    opened = tmp_path / "opened"
    opener = tmp_path / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{opener.parent}{os.pathsep}{os.environ['PATH']}")
    index.unlink()
    done = cli("report", finished.out, "--pictures", 4, "--open")
    assert done.code == 0, done.err
    assert str(index) in done.out
    assert len(list((finished.out / "report" / "pictures").glob("[0-9]*/*.jpg"))) == 4
    for _ in range(1200):  # the browser starts behind our back
        if opened.is_file() and opened.read_text():
            break
        time.sleep(0.1)
    assert opened.read_text().strip() == str(index.resolve())
    assert one_line_error(cli("report", tmp_path)).endswith("give the --out folder of somnet train")
