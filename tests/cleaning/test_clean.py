"""A cleaned copy of a run's data: what is in it, and that the data stay as they are."""

import csv
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from somnet.cleaning import clean as cleaning
from somnet.cleaning.clean import CleaningRules, clean, with_margin
from somnet.cleaning.verdicts import judge
from somnet.data import location
from somnet.data.dataset import open_dataset
from somnet.data.sources import open_source
from somnet.errors import ConfigError, DataError, RunError
from somnet.runs.run import Run
from somnet.system.compute import Compute
from somnet.system.files import link_or_copy
from somnet.training.train import train_without_report
from tests.children import exit_code, forked
from tests.cleaning.conftest import HOSTILE, WRONG, Made, metadata, removed, with_scores

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


# --- duplicates of the run


def test_train_lists_the_duplicates(made: Made) -> None:
    with (made.run / "duplicates.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["group"], row["file_name"], row["split"], row["exact"]) for row in csv.DictReader(file)]
    assert rows == [
        ("0", "train/ash/0.png", "train", "true"),
        ("0", "train/ash/copy.png", "train", "true"),
        ("1", "train/ash/1.png", "train", "true"),
        ("1", "test/ash/leak.png", "test", "true"),
    ]


def test_leaks_are_named_in_the_log(made: Made) -> None:
    text = (made.run / "train.log").read_text(encoding="utf-8")
    assert "1 leaks" in text
    assert "train/ash/1.png = test/ash/leak.png" in text


def test_scores_know_the_groups(made: Made) -> None:
    rows = {row["file_name"]: row for row in Run(made.run).scores().to_pylist()}
    flagged = [name for name, row in rows.items() if row["is_near_duplicate_issue"]]
    assert flagged == ["train/ash/copy.png"]
    assert rows["train/ash/1.png"]["duplicate_group"] == 1  # its copy is a test image
    assert rows["train/ash/2.png"]["duplicate_group"] is None


# --- what is written


def test_what_goes_has_a_reason_and_the_rest_is_there(made: Made, run: Path, tmp_path: Path, photos: "Photos") -> None:
    out = tmp_path / "cleaned"
    result = clean(run, out)
    assert removed(out) == {
        WRONG: "label",
        "train/ash/1.png": "test-leak",
        "train/ash/copy.png": "duplicate",
        "train/ash/broken.png": "unreadable",
    }
    assert result.removed == {"ash": {"duplicate": 1, "test-leak": 1, "unreadable": 1}, "oak, red": {"label": 1}}
    assert result.kept == {"=birch": 11, "ash": 5, "oak, red": 5}
    rows = metadata(out)
    assert sum(row["split"] == "train" for row in rows) == 21
    assert sum(row["split"] == "test" for row in rows) == 7  # untouched
    for row in rows:
        assert (out / row["file_name"]).samefile(row["original_path"].replace("\\xe9", "\udce9"))
    listed = {row["file_name"] for row in rows}
    there = {str(file.relative_to(out)) for file in out.rglob("*.*") if file.is_file()}
    assert there - {"metadata.parquet", "removed.csv", "changed.csv", "kept_in_doubt.csv", ".somnet.json"} == listed
    assert photos.fingerprint(made.data) == made.before


def test_odd_names_survive(run: Path, tmp_path: Path) -> None:
    clean(run, tmp_path / "cleaned")
    names = {row["file_name"] for row in metadata(tmp_path / "cleaned")}
    assert f"train/=birch/{HOSTILE}" in names
    assert "train/=birch/caf_xe9.png" in names  # no backslash, which is a separator to others
    assert {"train/=birch/0.gif", "train/=birch/0-2.png", "train/=birch/0-3.png"} <= names  # known by their stems
    assert any(name.startswith("train/=birch/nnn") and len(name) < 230 for name in names)


def test_somnet_trains_on_the_cleaned_data(run: Path, tmp_path: Path, tiny: "Tiny") -> None:
    clean(run, tmp_path / "cleaned")
    index = open_source(tmp_path / "cleaned")
    assert index.classes == ("=birch", "ash", "oak, red")
    config = tiny.config("plain", **{"train.epochs": 1})
    again = train_without_report(tmp_path / "cleaned", config, out=tmp_path / "2", device="cpu", workers=0)
    assert again.summary["data"] == {"classes": 3, "train": 21, "test": 7, "unreadable": 0}


def test_a_margin_is_cut_too_and_ends_with_the_image() -> None:
    assert with_margin((10.0, 20.0, 50.0, 80.0), 200, 100) == (4, 11, 56, 89)  # 0.15 x 40 and 0.15 x 60
    assert with_margin((0.0, 5.0, 100.0, 95.0), 100, 100) == (0, 0, 100, 100)


def test_crops_show_the_best_region_and_a_margin(made: Made, run: Path, tmp_path: Path) -> None:
    result = clean(run, tmp_path / "cleaned", CleaningRules(policy="crop"))
    assert result.cropped == 1
    (row,) = [row for row in metadata(tmp_path / "cleaned") if row["file_name"] == "train/ash/2.jpg"]
    assert row["box"] == [5, 4, 37, 28]  # of 32 x 24 pixels, where the crop has it
    with Image.open(tmp_path / "cleaned/train/ash/2.jpg") as crop, Image.open(made.data / "train/ash/2.png") as whole:
        assert crop.size == (42, 32)
        part = whole.crop((5, 8, 47, 40)).resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        assert crop.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)) == pytest.approx(part, abs=4)


def test_weights_follow_the_scores(run: Path, tmp_path: Path) -> None:
    result = clean(run, tmp_path / "cleaned", CleaningRules(policy="reweight"))
    assert sum(result.kept.values()) == 23
    weights = {row["original_path"].split("/web/")[1]: row["weight"] for row in metadata(tmp_path / "cleaned")}
    assert weights[WRONG] == pytest.approx(0.1)
    assert weights["test/ash/leak.png"] == 1


def test_somnet_trains_by_the_weights_or_says_who_does(run: Path, tmp_path: Path, tiny: "Tiny") -> None:
    out, data = tmp_path / "2", tmp_path / "cleaned"
    clean(run, data, CleaningRules(policy="reweight"))
    with pytest.raises(DataError, match=r"'linear-probe' does not take: choose one of admil, .*plain, .*somnet\+"):
        train_without_report(data, tiny.config("linear-probe"), out, device="cpu", workers=0)
    config = tiny.config("plain", **{"train.epochs": 1})
    weighted = train_without_report(data, config, out, device="cpu", workers=0).data["fingerprint"]
    table = pq.read_table(data / "metadata.parquet")
    pq.write_table(table.drop_columns("weight"), data / "metadata.parquet")
    assert weighted != open_dataset(data, config, Compute(workers=0)).fingerprint()  # a resume must find the same


def test_what_is_kept_in_doubt_is_listed(made: Made, tmp_path: Path) -> None:
    low = {"train/ash/4.png": 0.45, "train/ash/2.png": 0.3}
    run = with_scores(
        made, tmp_path, label_score=low, is_background_issue={"train/ash/3.png": True}, belief={"train/ash/3.png": 0.2}
    )
    result = clean(run, tmp_path / "cleaned", CleaningRules(policy="crop", threshold=0.1))
    with (tmp_path / "cleaned/kept_in_doubt.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "Poor picture" not in row["reason"]]
    assert [(row["file_name"], row["kept_as"], row["label_score"]) for row in rows[:2]] == [
        ("train/ash/2.png", "train/ash/2.png", "0.3000"),
        ("train/ash/4.png", "train/ash/4.png", "0.4500"),
    ]
    assert rows[0]["reason"] == "The label “ash” has only 30 %."
    (whole,) = [row for row in rows if row["file_name"] == "train/ash/3.png"]
    assert "left whole" in whole["reason"]
    assert result.cropped == 0
    with (tmp_path / "cleaned/kept_in_doubt.csv").open(encoding="utf-8") as file:
        assert result.in_doubt == sum(1 for _ in file) - 1


def test_decisions_have_the_last_word(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    file.write_text(
        f'file_name,decision,label\n"{WRONG}",keep,\ntrain/ash/5.png,drop,\ntrain/ash/4.png,relabel,\'=birch\n'
    )
    result = clean(run, tmp_path / "cleaned", CleaningRules(decisions=file))
    assert result.relabelled == 1
    assert removed(tmp_path / "cleaned")["train/ash/5.png"] == "decision"
    assert WRONG not in removed(tmp_path / "cleaned")
    (moved,) = [row for row in metadata(tmp_path / "cleaned") if row["original_path"].endswith("ash/4.png")]
    assert (moved["label"], moved["original_label"]) == ("=birch", "ash")
    assert moved["file_name"].startswith("train/=birch/4")


def test_what_was_decided_in_a_review_is_followed_without_a_flag(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (run / "decisions.csv").write_text("file_name,decision,label\ntrain/ash/5.png,drop,\n")
    clean(run, tmp_path / "cleaned")
    assert removed(tmp_path / "cleaned")["train/ash/5.png"] == "decision"
    assert f"{run / 'decisions.csv'}: what was decided there is followed" in caplog.text
    (tmp_path / "none.csv").write_text("file_name,decision,label\n")
    clean(run, tmp_path / "other", CleaningRules(decisions=tmp_path / "none.csv"))
    assert removed(tmp_path / "other").get("train/ash/5.png") != "decision"


def test_what_was_dropped_before_the_training_is_listed(made: Made, tiny: "Tiny", tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_text("file_name,decision,label\ntrain/ash/5.png,drop,\n")
    config = tiny.config("plain", **{"train.epochs": 1, "decisions": (str(file),)})
    data = shutil.copytree(made.data, tmp_path / "web")
    train_without_report(data, config, out=tmp_path / "run", device="cpu", workers=0)
    (data / "train" / "ash" / "5.png").unlink()  # who drops an image may well delete it
    for number, decisions in enumerate((None, file)):  # the same decisions again say nothing new
        clean(tmp_path / "run", tmp_path / f"cleaned{number}", CleaningRules(decisions=decisions))
        assert removed(tmp_path / f"cleaned{number}")["train/ash/5.png"] == "decision"


def test_what_was_kept_before_the_training_stays(made: Made, tiny: "Tiny", tmp_path: Path) -> None:
    first, later = tmp_path / "first.csv", tmp_path / "later.csv"
    first.write_text(
        "file_name,decision,label\ntrain/ash/copy.png,keep,\ntrain/ash/1.png,keep,\ntrain/ash/5.png,drop,\n"
    )
    config = tiny.config("plain", **{"train.epochs": 1, "decisions": (str(first),)})
    train_without_report(made.data, config, out=tmp_path / "run", device="cpu", workers=0)
    clean(tmp_path / "run", tmp_path / "cleaned")
    gone = removed(tmp_path / "cleaned")
    assert gone["train/ash/0.png"] == "duplicate"  # of the copy, which a person kept
    assert not {"train/ash/copy.png", "train/ash/1.png"} & set(gone)  # the latter a leak into test
    later.write_text("file_name,decision,label\ntrain/ash/1.png,drop,\n")
    clean(tmp_path / "run", tmp_path / "other", CleaningRules(decisions=later))
    assert removed(tmp_path / "other")["train/ash/1.png"] == "decision"
    later.write_text("file_name,decision,label\ntrain/ash/5.png,keep,\n")
    with pytest.raises(ConfigError, match=r"was dropped before .* was trained.*train again with --decisions"):
        clean(tmp_path / "run", tmp_path / "third", CleaningRules(decisions=later))


def test_an_image_that_is_to_be_dropped_may_be_deleted(
    made: Made, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = shutil.copytree(made.data, tmp_path / "web")
    (data / "train" / "ash" / "5.png").unlink()
    with pytest.raises(RunError, match=r"5\.png is not in .* any more"):
        clean(run, tmp_path / "cleaned", data=data)
    (run / "decisions.csv").write_text("file_name,decision,label\ntrain/ash/5.png,drop,\n")
    clean(run, tmp_path / "cleaned", data=data)
    assert removed(tmp_path / "cleaned")["train/ash/5.png"] == "decision"


def test_what_is_not_as_it_was_is_listed(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    file.write_text("file_name,decision,label\ntrain/ash/4.png,relabel,'=birch\n")
    clean(run, tmp_path / "cleaned", CleaningRules(decisions=file))
    with (tmp_path / "cleaned/changed.csv").open(newline="", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["file_name"], row["label"], row["new_label"], row["cropped"]) == (
        "train/ash/4.png",
        "ash",
        "'=birch",
        "false",
    )


def test_of_copies_with_level_scores_the_first_stays() -> None:
    table = pa.table(
        {
            "file_name": ["a.png", "b.png", "c.png"],
            "given_label": ["x", "x", "x"],
            "is_unreadable_issue": [False] * 3,
            "label_score": [0.9, 0.9001, 0.8],
            "duplicate_group": [0, 0, 0],
        }
    )
    assert judge(table, "drop").reasons == [None, "duplicate", "duplicate"]


def test_decisions_of_another_run_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("file_name,decision,label\nelsewhere.png,drop,\n")
    with pytest.raises(ConfigError, match=r"elsewhere\.png"):
        clean(run, tmp_path / "cleaned", CleaningRules(decisions=tmp_path / "d.csv"))


# --- places


def test_places_that_would_harm_are_refused(made: Made, run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="inside the data"):
        clean(run, made.data / "train" / "cleaned")
    with pytest.raises(RunError, match="lie inside"):
        clean(run, made.data.parent)
    with pytest.raises(RunError, match="inside the run"):
        clean(run, run / "cleaned")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="not a somnet cleaned data set"):
            clean(run, tmp_path / "thesis", overwrite=overwrite)
    assert (tmp_path / "thesis/thesis.txt").read_text() == "mine"


def test_a_cleaned_folder_is_replaced_only_when_asked(run: Path, tmp_path: Path) -> None:
    clean(run, tmp_path / "cleaned")
    with pytest.raises(RunError, match="--overwrite"):
        clean(run, tmp_path / "cleaned")
    clean(run, tmp_path / "cleaned", CleaningRules(policy="reweight"), overwrite=True)
    assert WRONG not in removed(tmp_path / "cleaned")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cleaned", "run"]


@pytest.mark.parametrize("name", ["decisions.csv", "train/ash/mine.png", "fiftyone.zip", ".git/HEAD", ".DS_Store"])
def test_files_of_the_users_outlive_a_cleaned_folder(run: Path, tmp_path: Path, name: str) -> None:
    clean(run, tmp_path / "cleaned", formats=cleaning.FORMATS)
    (tmp_path / "cleaned" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "cleaned" / name).write_text("mine")
    clean(run, tmp_path / "cleaned", overwrite=True)
    assert (tmp_path / "cleaned" / name).read_text() == "mine"
    assert not (tmp_path / "cleaned" / "coco.json").exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cleaned", "run"]


@pytest.mark.parametrize("verb", ["clean", "export"])
def test_what_only_looks_like_a_leftover_is_not_replaced(run: Path, tmp_path: Path, cli: "Cli", verb: str) -> None:
    (tmp_path / "out" / ".download.part").mkdir(parents=True)
    (tmp_path / "out" / ".download.part" / "thesis.txt").write_text("mine")
    assert cli(verb, run, "--out", tmp_path / "out").code == 2
    assert (tmp_path / "out" / ".download.part" / "thesis.txt").read_text() == "mine"


def test_the_command_to_type_next_can_be_copied(run: Path, tmp_path: Path, cli: "Cli") -> None:
    done = cli("clean", run, "--out", tmp_path / "it's clean")
    assert shlex.split(done.out.splitlines()[-1])[-1] == str(tmp_path / "it's clean")


@pytest.mark.parametrize("words", [("clean",), ("export", "--format", "timm")])
def test_the_folder_that_one_is_in_is_refused(
    run: Path, tmp_path: Path, cli: "Cli", monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    done = cli(*words, run, "--out", ".")
    assert done.code == 2
    assert done.err.startswith("error: . is the folder you are in")
    assert not list(tmp_path.glob("new/*"))


def test_moved_data_can_be_named(made: Made, run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(made.data, moved)
    told = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**told, "path": str(tmp_path / "gone")}))
    with pytest.raises(RunError, match="--data"):
        clean(run, tmp_path / "cleaned")
    clean(run, tmp_path / "cleaned", data=moved)
    assert (tmp_path / "cleaned/train/ash/2.png").samefile(moved / "train/ash/2.png")


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
def test_another_file_system_gets_copies(made: Made, run: Path) -> None:
    out = Path("/dev/shm") / f"somnet-cleaned-{os.getpid()}"
    try:
        clean(run, out)
        copy, original = out / "train/ash/2.png", made.data / "train/ash/2.png"
        assert copy.read_bytes() == original.read_bytes()
        assert copy.stat().st_dev != original.stat().st_dev
    finally:
        shutil.rmtree(out, ignore_errors=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_leaves_no_half_folder(run: Path, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter(range(5))

    def link_and_die(source: str, target: Path) -> None:
        link_or_copy(source, target)
        if next(left, None) is None:
            os.kill(os.getpid(), number)

    def clean_and_die() -> None:
        monkeypatch.setattr(location, "link_or_copy", link_and_die)
        clean(run, tmp_path / "cleaned")

    assert exit_code(forked(clean_and_die)) != 0
    assert not (tmp_path / "cleaned").exists()
    assert (tmp_path / ".cleaned.somnet-new").exists() == (number == signal.SIGKILL)
    clean(run, tmp_path / "cleaned")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cleaned", "run"]


# --- the command


def test_a_dry_run_only_prints(run: Path, tmp_path: Path, cli: "Cli") -> None:
    done = cli("clean", run, "--out", tmp_path / "cleaned", "--dry-run")
    assert done.code == 0
    assert not (tmp_path / "cleaned").exists()
    total = next(line for line in done.out.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "21", "1", "1", "1", "1"]
    assert "without --dry-run" in done.out


def test_the_command_says_what_is_next(run: Path, tmp_path: Path, cli: "Cli") -> None:
    done = cli("clean", run, "--out", tmp_path / "cleaned", "--threshold", "0.5", "--format", "coco,cleanlab")
    assert done.code == 0
    assert f"somnet train {tmp_path / 'cleaned'}" in done.out
    assert (tmp_path / "cleaned/coco.json").is_file()
    assert (tmp_path / "cleaned/cleanlab/issues.csv").is_file()


@pytest.mark.parametrize(
    "words", [("--policy", "burn"), ("--format", "voc"), ("--threshold", "7"), ("--max-drop-per-class", "-1")]
)
def test_odd_choices_are_refused(run: Path, tmp_path: Path, cli: "Cli", words: tuple[str, str]) -> None:
    done = cli("clean", run, "--out", tmp_path / "cleaned", *words)
    assert done.code == 2
    assert not (tmp_path / "cleaned").exists()
