"""Bad and odd input: a clear message, and the run continues where it can."""

import csv
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

import somnet
from somnet.errors import ConfigError, DataError
from somnet.training.train import train_without_report

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

NOT_UTF8 = b"caf\xe9.png"

UNREADABLE = {
    "text.jpg": "not an image",
    "empty.jpg": "empty",
    "cut.jpg": "truncated or damaged",
    "bomb.png": "more than 100 million pixels",
    "dot.png": "1 x 1 pixels",
    "thread.png": "3 x 4000 pixels",
}
READABLE = ("cmyk.jpg", "deep.png", "palette.png", "moving.gif", "turned.jpg", "größe 写真.png", "caf\\xe9.png")


def bomb() -> bytes:
    """A PNG of some 100 bytes that claims 100,000 x 100,000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(64))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def spoil(folder: Path, photos: "Photos") -> None:
    """Put one of each odd file into a class folder."""
    picture = photos.picture(0, 0)
    (folder / "text.jpg").write_text("I am no picture")
    (folder / "empty.jpg").touch()
    picture.save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:700])
    (folder / "bomb.png").write_bytes(bomb())
    Image.new("RGB", (1, 1)).save(folder / "dot.png")
    Image.new("RGB", (3, 4000)).save(folder / "thread.png")
    picture.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257).save(folder / "deep.png")
    picture.quantize(16).save(folder / "palette.png", transparency=0)
    picture.save(folder / "moving.gif", save_all=True, append_images=[photos.picture(1, 1), photos.picture(2, 2)])
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    picture.resize((64, 32)).save(folder / "turned.jpg", exif=turned)
    photos.picture(0, 1).save(folder / "größe 写真.png")
    with open(os.path.join(os.fsencode(folder), NOT_UTF8), "wb") as file:
        photos.picture(0, 2).save(file, "PNG")


@dataclass(frozen=True)
class Spoilt:
    """A run on a data set with one of each odd file, and a class of one image."""

    out: Path
    log: str
    issues: dict[str, dict[str, Any]]
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def spoilt(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    base = tmp_path_factory.mktemp("spoilt")
    web = photos.fill(base / "web", names=("good", "odd"), train=3, test=1)
    spoil(web / "train" / "odd", photos)
    (web / "train" / "single").mkdir()
    photos.picture(2, 0).save(web / "train" / "single" / "0.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        run = somnet.train(web, tiny.config(), out=base / "run", workers=1)
    rows = pq.read_table(run.path / "issues.parquet").to_pylist()
    log = (run.path / "train.log").read_text()
    return Spoilt(run.path, log, {row["file_name"]: row for row in rows}, run.summary)


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_picture_is_left_out_with_its_reason(spoilt: Spoilt, name: str) -> None:
    row = spoilt.issues[f"train/odd/{name}"]
    assert row["is_unreadable_issue"]
    assert UNREADABLE[name] in row["unreadable_reason"]
    assert row["given_label"] == "odd"
    assert row["label_score"] is None
    with (spoilt.out / "issues.csv").open(newline="", encoding="utf-8") as file:
        [line] = [line for line in csv.DictReader(file) if line["file_name"] == f"train/odd/{name}"]
    assert line["unreadable_reason"] == row["unreadable_reason"]


@pytest.mark.parametrize("name", READABLE)
def test_odd_pictures_take_part(spoilt: Spoilt, name: str) -> None:
    row = spoilt.issues[f"train/odd/{name}"]
    assert not row["is_unreadable_issue"]
    assert 0 <= row["label_score"] <= 1


def test_a_turned_picture_has_its_boxes_in_the_upright_frame(spoilt: Spoilt) -> None:
    regions = pq.read_table(spoilt.out / "regions.parquet").to_pylist()
    [whole] = [row["box"] for row in regions if row["file_name"] == "train/odd/turned.jpg" and row["region"] == 0]
    assert whole == [0, 0, 32, 64]


def test_a_class_of_one_image_takes_part_with_a_warning(spoilt: Spoilt) -> None:
    assert not spoilt.issues["train/single/0.png"]["is_unreadable_issue"]
    assert "'single' (1)" in spoilt.log


def test_bad_files_are_counted_and_named_in_the_log(spoilt: Spoilt) -> None:
    assert spoilt.summary["data"] == {"classes": 3, "train": 14, "test": 2, "unreadable": 6}
    assert "6 unreadable files" in spoilt.log
    assert "text.jpg: not an image" in spoilt.log
    assert len(spoilt.issues) == 20


def test_a_manifest_that_leads_out_of_its_folder(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    """The known truth of the same manifest gives the scores of the summary."""
    web = tmp_path / "web"
    (web / "images").mkdir(parents=True)
    photos.picture(0, 50).save(tmp_path / "secret.png")
    os.symlink(tmp_path / "secret.png", web / "images" / "link.png")
    rows = [("../secret.png", "a", ""), (str(tmp_path / "secret.png"), "a", ""), ("images/link.png", "b", "")]
    for number in range(8):
        photos.picture(number % 2, number).save(web / "images" / f"{number}.png")
        rows.append((f"images/{number}.png", "ab"[number % 2], "a" if number else "b"))
    rows.append(("images/gone.png", "a", ""))
    with (web / "metadata.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file_name", "label", "true_label", "true_box"])
        writer.writerows([*row, "8 10 44 40" if row[2] else ""] for row in rows)
    run = somnet.train(web, tiny.config("plain"), out=tmp_path / "run", workers=1)
    reasons = {row["file_name"]: row["unreadable_reason"] for row in run.scores().to_pylist()}
    assert all("outside the data folder" in reasons[row[0]] for row in rows[:2])
    assert "leads out of the data" in reasons["images/link.png"]
    assert "No such file" in reasons["images/gone.png"]
    assert run.summary["data"] == {"classes": 2, "train": 8, "test": 0, "unreadable": 4}
    assert run.summary["test"] == {"top1": None, "top5": None, "n": 0}
    assert 0 <= run.summary["noise"]["auroc"] <= 1
    assert 0 < run.summary["regions"]["image_iou"] == run.summary["regions"]["best_iou"]  # plain knows no regions


def test_a_folder_whose_name_is_no_utf8(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / os.fsdecode(b"caf\xe9"), train=3, test=1)
    run = somnet.train(web, tiny.config("plain"), out=tmp_path / "run", workers=1)
    assert run.summary["data"]["train"] == 9
    assert run.evaluate(web, workers=1).n == 3


def test_prediction_of_a_name_that_is_no_utf8(
    photos: "Photos", tiny: "Tiny", data: Path, tmp_path: Path, cli: "Callable[..., Outcome]"
) -> None:
    folder = tmp_path / os.fsdecode(b"d\xe9")
    folder.mkdir()
    photos.picture(0, 0).save(folder / "a.png")
    run = train_without_report(data, tiny.config("plain"), out=tmp_path / "run", workers=1)
    outcome = cli("predict", run.path, folder, "--out", tmp_path / "p.csv")
    assert outcome.code == 0, outcome.err
    assert "d\\xe9/a.png" in (tmp_path / "p.csv").read_text(encoding="utf-8")


def test_no_name_of_a_file_writes_a_line_of_its_own(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, cli: "Callable[..., Outcome]"
) -> None:
    """Web images are called whatever somebody chose: a terminal obeys escape sequences, and people believe a log."""
    web = photos.fill(tmp_path / "web", names=("a\nb", "c"), train=3, test=1)
    (web / "train" / "c" / "\x1b[2J\nerror: all is lost.jpg").write_text("no picture")
    shown = "train/c/\\x1b[2J\\x0aerror: all is lost.jpg: not an image"
    trained = cli("train", web, "--out", tmp_path / "run", "--method", "plain", "--workers", 0, *tiny.flags())
    assert trained.code == 0, trained.err
    assert shown in trained.err
    assert shown in (tmp_path / "run" / "train.log").read_text()
    assert shown in cli("propose", web, "--workers", 0).out
    tables = cli("eval", tmp_path / "run", web).out + cli("clean", tmp_path / "run", "--out", "x", "--dry-run").out
    assert tables.count("\na\\x0ab ") == 2
    assert "\x1b" not in trained.err + tables


def empty(_: "Photos", folder: Path) -> None:
    folder.mkdir()


def one_class(photos: "Photos", folder: Path) -> None:
    photos.fill(folder, names=("only",), train=2, test=1)


def second_class_is_text(photos: "Photos", folder: Path) -> None:
    photos.fill(folder, names=("only",), train=2, test=1)
    (folder / "train" / "other").mkdir()
    (folder / "train" / "other" / "a.jpg").write_text("no picture")


def no_subfolders(photos: "Photos", folder: Path) -> None:
    folder.mkdir()
    photos.picture(0, 0).save(folder / "a.png")


def nothing(_: "Photos", __: Path) -> None:
    return


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (empty, "contains no images: give a folder with"),
        (one_class, "only the class 'only'.*at least 2 classes"),
        (second_class_is_text, "only the class 'only'.*a.jpg: not an image"),
        (no_subfolders, "a single class: give its parent, .*, or put the images of each class into a folder"),
        (nothing, "does not exist"),
    ],
)
def test_data_that_cannot_be_trained_on(
    make: "Callable[[Photos, Path], None]", said: str, photos: "Photos", tiny: "Tiny", tmp_path: Path
) -> None:
    make(photos, tmp_path / "web")
    with pytest.raises(DataError, match=said):
        somnet.train(tmp_path / "web", tiny.config(), out=tmp_path / "run", workers=1)


def test_too_few_bags_for_k_means(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", train=2, test=1)
    with pytest.raises(DataError, match=r"3 bags for 9 slots.*somnet\.memory\.side"):
        somnet.train(web, tiny.config("somnet", **{"somnet.memory.kmeans": True}), out=tmp_path / "run", workers=1)


def test_an_unknown_model_is_told_before_the_images_are_read(tmp_path: Path, photos: "Photos") -> None:
    data = photos.fill(tmp_path / "web", ("ash", "oak"), train=2)
    config = somnet.Config().with_settings({"model.name": "resnet51"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("somnet.training.train.open_dataset", lambda *_: pytest.fail("the images were read"))
        with pytest.raises(ConfigError, match=r"no model 'resnet51'.* perhaps .*resnet50"):
            somnet.train(data, config, out=tmp_path / "run", device="cpu", workers=0)
