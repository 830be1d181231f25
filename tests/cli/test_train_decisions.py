"""`somnet train --decisions`, as a user meets it: what a person decided is truth, and stays so in the run."""

import csv
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.runs.run import Run

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


def names(data: Path) -> list[str]:
    return [file.relative_to(data).as_posix() for file in sorted((data / "train").rglob("*.*"))]


def write(file: Path, *rows: tuple[str, ...]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("file_name", "decision", "label"), *rows])
    return file


def test_decisions_are_trained_on_and_kept_in_the_run(
    cli: "Cli", photos: "Photos", tiny: "Tiny", tmp_path: Path
) -> None:
    """In a real process; then the run goes on without the file, and is refused with another one."""
    data, out = photos.fill(tmp_path / "web"), tmp_path / "run"
    kept, dropped, moved, *_ = names(data)
    new = sorted(folder.name for folder in (data / "train").iterdir())[2]
    file = write(tmp_path / "d.csv", (kept, "keep", ""), (dropped, "drop", ""), (moved, "relabel", new))
    words = ["train", data, "--out", out, "--workers", 0, "--method", "plain", *tiny.flags()]
    command = [sys.executable, "-m", "somnet", *words, "--decisions", file]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "decisions: 1 kept, 1 relabelled, 1 dropped and not trained on" in done.stderr
    rows = {row["file_name"]: row for row in Run(out).scores().to_pylist()}
    assert set(rows) == set(names(data)) - {dropped}
    assert {name for name, row in rows.items() if row["verified"]} == {kept, moved}
    assert rows[moved]["given_label"] == new
    assert rows[moved]["label_score"] == rows[kept]["label_score"] == 1
    order = {name: row["review_order"] for name, row in rows.items() if row["review_order"] is not None}
    assert set(order) == set(rows) - {kept, moved}  # fewer than 50
    assert sorted(order.values()) == list(range(1, len(order) + 1))
    file.unlink()
    (out / "summary.json").unlink()  # as if it had been killed before
    again = cli(*words, "--resume")
    assert again.code == 0, again.err
    assert (out / "summary.json").is_file()
    other = cli(*words, "--resume", "--decisions", write(file, (kept, "drop", "")))
    assert other.code == 2
    assert "was started with other decisions" in " ".join(other.err.split())


def test_a_moved_run_has_its_own_decisions(cli: "Cli", data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    name = names(data)[0]
    file = write(tmp_path / "d.csv", (name, "drop", ""))
    done = cli("train", data, "--out", tmp_path / "run", "--method", "plain", *tiny.flags(), "--decisions", file)
    assert done.code == 0, done.err
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert Run(tmp_path / "moved").config.decisions == (str(tmp_path / "moved" / "decisions-used.csv"),)
    assert name not in Run(tmp_path / "moved").scores()["file_name"].to_pylist()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("train/none.jpg", "keep", ""), "training images that are not there, as train/none.jpg"),
        ((None, "relabel", "unicorn"), "a class that the data do not have, 'unicorn'"),
        ((None, "maybe", ""), "line 2 is not a decision"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    cli: "Cli", data: Path, tmp_path: Path, row: tuple[str | None, str, str], said: str
) -> None:
    file = write(tmp_path / "d.csv", (row[0] or names(data)[0], *row[1:]))
    done = cli("train", data, "--out", tmp_path / "run", "--decisions", file)
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert not (tmp_path / "run").exists()
