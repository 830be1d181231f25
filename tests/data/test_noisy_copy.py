"""A noisy copy of a data set: the truth kept, and nothing touched that is not to be noisy."""

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from somnet.data import noise
from somnet.data.noise import moved_box, outline, parse_noise, paste, write_noisy
from somnet.data.sources import open_source
from somnet.errors import ConfigError, DataError, SomnetError

if TYPE_CHECKING:
    from tests.conftest import Photos

BLUE = (0, 0, 200)


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "metadata.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)  # (H, W, 3)


def filled(folder: Path, colour: tuple[int, int, int], count: int = 3, size: tuple[int, int] = (90, 70)) -> Path:
    """A folder of pictures of one colour."""
    folder.mkdir()
    for number in range(count):
        Image.new("RGB", size, colour).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    return filled(tmp_path / "scenes", BLUE)


# --- pasting


@pytest.mark.parametrize("size", [(64, 64), (200, 50), (30, 400), (1000, 8)])
def test_a_pasted_photo_fills_its_box_and_nothing_else(size: tuple[int, int]) -> None:
    for seed in range(20):
        photo, scene = Image.new("RGB", size, "red"), Image.new("RGB", (50, 40), BLUE)
        image, (x1, y1, x2, y2) = paste(photo, scene, np.random.default_rng(seed))
        assert image.size == (320, 320)
        assert 0 <= x1 < x2 <= 320
        assert 0 <= y1 < y2 <= 320
        assert 0.35 * 320 - 1 <= max(x2 - x1, y2 - y1) <= 0.60 * 320 + 1
        inside = np.zeros((320, 320), bool)  # (H, W)
        inside[y1:y2, x1:x2] = True
        found = np.asarray(image).astype(int)  # (H, W, 3)
        assert (found[~inside] == BLUE).all()
        assert (found[(y1 + y2) // 2, (x1 + x2) // 2] == (255, 0, 0)).all()
        assert (found[inside][:, 0] > 200).mean() > 0.4  # an ellipse with a wide outline at least
        assert (np.abs(found[[y1, y2 - 1], [x1, x2 - 1]] - BLUE) < 40).all()  # corners fade out
        assert scene.size == (50, 40)  # a scene serves many photos


def test_an_outline_by_hand() -> None:
    ellipse = outline((5, 5), 2.0, 0.5)
    assert ellipse[2, 2] == 1.0
    assert ellipse[2, 4] == pytest.approx((1 - 0.8) / 0.5)
    assert ellipse[0, 0] == 0.0  # the corner lies outside
    assert outline((5, 5), 100.0, 0.5)[0, 0] == pytest.approx((1 - 0.8 * 2**0.01) / 0.5)  # of a rectangle it does not
    assert outline((6, 3), 4.0, 0.1).shape == (3, 6)


def test_test_photos_can_be_pasted_too(tmp_path: Path, scenes: Path) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / "web" / split / name).mkdir(parents=True)
            Image.new("RGB", (40, 40), (230, 0, 0)).save(tmp_path / "web" / split / name / "0.png")
    write_noisy(tmp_path / "web", tmp_path / "out", parse_noise(f"flip=1,paste={scenes},paste_test=1"), workers=1)
    rows = rows_of(tmp_path / "out")
    assert all(row["true_box"] for row in rows)
    assert all(row["label"] == row["true_label"] for row in rows if row["split"] == "test")  # labels stay right
    with pytest.raises(ConfigError, match="paste_test"):
        parse_noise("flip=0.1,paste_test=1")
    with pytest.raises(ConfigError, match="0 or 1"):
        parse_noise("paste=x,paste_test=yes")


def test_pasted_photos_reach_every_place_of_the_scene() -> None:
    photo, scene = Image.new("RGB", (64, 64)), Image.new("RGB", (64, 64))
    boxes = np.array([paste(photo, scene, np.random.default_rng(seed))[1] for seed in range(300)])
    assert (boxes.min(axis=0)[:2] <= 5).all()
    assert (boxes.max(axis=0)[2:] >= 315).all()


def test_a_box_moves_with_its_picture() -> None:
    assert moved_box((0, 0, 100, 50), (100, 50), (10, 20, 60, 45)) == (10, 20, 60, 45)
    assert moved_box((20, 10, 40, 50), (100, 50), (10, 20, 60, 45)) == (20, 25, 30, 45)


def test_the_written_box_is_where_the_photo_is(tmp_path: Path, scenes: Path) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / "web" / split / name).mkdir(parents=True)
            for number in range(3):
                photo = Image.new("RGB", (40 + 30 * number, 80), (230, 0, 0))
                photo.save(tmp_path / "web" / split / name / f"{number}.png")
    write_noisy(tmp_path / "web", tmp_path / "out", parse_noise(f"paste={scenes}"), workers=1)
    rows = rows_of(tmp_path / "out")
    assert Counter(row["split"] for row in rows) == {"train": 6, "test": 6}
    for row in rows:
        found = pixels(tmp_path / "out" / row["file_name"])  # (H, W, 3)
        red = (found[..., 0] > 150) & (found[..., 2] < 100)  # (H, W)
        if row["split"] == "test":
            assert row["true_box"] == ""
            assert red.all()
            continue
        x1, y1, x2, y2 = map(int, row["true_box"].split())
        ys, xs = np.nonzero(red)
        edges = np.array((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1))
        inside = edges - (x1, y1, x2, y2)
        assert (inside[:2] >= -2).all()  # a JPEG blurs edges
        assert (inside[2:] <= 2).all()
        assert np.abs(inside).max() <= 0.2 * max(x2 - x1, y2 - y1)  # soft outlines leave a margin
        assert np.abs(edges[:2] + edges[2:] - (x1 + x2, y1 + y2)).max() <= 6  # on all sides the same


# --- the copy


RECIPE = "flip=0.25,asymmetric=0.25,open=0.25,paste={scenes},foreign={foreign}"


def test_the_copy_tells_the_truth(data: Path, tmp_path: Path, scenes: Path) -> None:
    foreign = filled(tmp_path / "foreign", (0, 200, 0))
    write_noisy(data, tmp_path / "out", parse_noise(RECIPE.format(scenes=scenes, foreign=foreign)), workers=1)
    rows = rows_of(tmp_path / "out")
    index = open_source(data)
    source = [(split, index.classes[label]) for split, label in zip(index.column("split"), index.labels(), strict=True)]
    assert [row["split"] for row in rows] == [split for split, _ in source]
    kinds: Counter[str] = Counter()
    for row, (split, label) in zip(rows, source, strict=True):
        shown = pixels(tmp_path / "out" / row["file_name"])  # (H, W, 3)
        green = (shown[..., 1] > 150) & (shown[..., 0] < 60) & (shown[..., 2] < 60)
        if split == "test":
            assert (row["label"], row["true_label"], row["true_box"]) == (label, label, "")
            assert shown.shape == (64, 64, 3)
        elif green.all():
            assert (row["label"], row["true_label"], row["true_box"]) == (label, "none", "")
            kinds["foreign"] += 1
        else:
            assert row["true_label"] == label
            assert row["true_box"]
            assert shown.shape == (320, 320, 3)
            kinds["right" if row["label"] == label else "wrong"] += 1
    assert kinds == {"foreign": 5, "wrong": 9, "right": 4}  # 18 images: a quarter is 4.5


def test_test_photos_are_as_they_were(data: Path, tmp_path: Path, scenes: Path) -> None:
    write_noisy(data, tmp_path / "out", parse_noise(f"flip=0.5,open=0.5,paste={scenes}"), workers=1)
    index = open_source(data)
    for number, row in enumerate(rows_of(tmp_path / "out")):
        if row["split"] == "test":
            with Image.open(index.path(number)) as photo:
                photo.save(tmp_path / "same.jpg", quality=92)
            assert (tmp_path / "out" / row["file_name"]).read_bytes() == (tmp_path / "same.jpg").read_bytes()


def test_known_truth_is_kept(tmp_path: Path, scenes: Path) -> None:
    """A data set that tells its own noise, made noisier."""
    web = filled(tmp_path / "web", (200, 0, 0), count=4, size=(100, 50))
    lines = ["0.png,a,train,b,20 10 40 50", "1.png,b,train,b,", "2.png,a,train,,", "3.png,b,test,a,20 10 40 50"]
    (web / "metadata.csv").write_text("\n".join(["file_name,label,split,true_label,true_box", *lines]))
    write_noisy(web, tmp_path / "out", parse_noise("flip=0"), workers=1)
    rows = [tuple(row.values())[1:] for row in rows_of(tmp_path / "out")]
    assert rows[0] == ("a", "train", "b", "20 10 40 50")
    assert rows[1:3] == [("b", "train", "b", ""), ("a", "train", "a", "")]
    assert rows[3] == ("b", "test", "a", "20 10 40 50")
    write_noisy(web, tmp_path / "pasted", parse_noise(f"paste={scenes}"), workers=1)
    part, whole = (
        np.array(row["true_box"].split(), float) for row in rows_of(tmp_path / "pasted")[:2]
    )  # the photo's own box, and the whole photo
    assert (part[2] - part[0]) / (part[3] - part[1]) == pytest.approx(20 / 40, rel=0.05)
    assert (whole[2] - whole[0]) / (whole[3] - whole[1]) == pytest.approx(100 / 50, rel=0.05)


def test_a_class_called_none_is_not_taken_for_nothing(photos: "Photos", tmp_path: Path, scenes: Path) -> None:
    web = photos.fill(tmp_path / "web", names=("none", "some"), train=2, test=1)
    write_noisy(web, tmp_path / "out", parse_noise(f"open=1,foreign={scenes}"), workers=1)
    assert {row["true_label"] for row in rows_of(tmp_path / "out") if row["split"] == "train"} == {"none of them"}


def test_labels_survive_whatever_they_hold(photos: "Photos", tmp_path: Path) -> None:
    names = ('a "quoted" |one|', "=1+1", "<script>", "ä, b\nc")
    web = photos.fill(tmp_path / "web", names=names, train=2, test=1)
    write_noisy(web, tmp_path / "out", parse_noise("flip=0.5"), workers=1)
    assert open_source(tmp_path / "out").classes == tuple(sorted(names))
    assert {row["true_label"] for row in rows_of(tmp_path / "out")} == set(names)


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(
    data: Path, photos: "Photos", tmp_path: Path, scenes: Path
) -> None:
    recipe = parse_noise(f"flip=0.4,open=0.1,paste={scenes}")
    for name, seed, workers in (("a", 5, 1), ("b", 5, 2), ("c", 6, 1)):
        write_noisy(data, tmp_path / name, recipe, seed=seed, workers=workers)
    a, b, c = (photos.fingerprint(tmp_path / name) for name in "abc")
    assert a == b
    assert a.keys() == c.keys()
    assert a["metadata.csv"] != c["metadata.csv"]


def test_the_recipes_own_seed_comes_first(data: Path, photos: "Photos", tmp_path: Path) -> None:
    write_noisy(data, tmp_path / "a", parse_noise("flip=0.4,seed=5"), seed=1, workers=1)
    write_noisy(data, tmp_path / "b", parse_noise("flip=0.4"), seed=5, workers=1)
    assert photos.fingerprint(tmp_path / "a") == photos.fingerprint(tmp_path / "b")


def test_the_source_is_untouched(data: Path, photos: "Photos", tmp_path: Path, scenes: Path) -> None:
    before = photos.fingerprint(data), photos.fingerprint(scenes)
    write_noisy(data, tmp_path / "out", parse_noise(f"flip=0.4,open=0.1,paste={scenes}"), workers=2)
    assert (photos.fingerprint(data), photos.fingerprint(scenes)) == before


@pytest.mark.parametrize("where", ["web", "web/noisy", "scenes/noisy"])
def test_nothing_is_written_among_the_pictures(photos: "Photos", tmp_path: Path, scenes: Path, where: str) -> None:
    web = photos.fill(tmp_path / "web", train=1, test=1)
    before = photos.fingerprint(tmp_path)
    with pytest.raises(DataError, match="outside"):
        write_noisy(web, tmp_path / where, parse_noise(f"flip=0.4,paste={scenes}"))
    assert photos.fingerprint(tmp_path) == before


def test_a_manifest_cannot_reach_out(photos: "Photos", tmp_path: Path) -> None:
    """Neither reading, through a file name, nor writing, through a split."""
    web = tmp_path / "deep" / "web"
    photos.fill(web, names=("a", "b"), train=1, test=1)
    photos.picture(0, 0).save(tmp_path / "deep" / "secret.png")
    good = ["train/a/0.png,a,train", "train/b/0.png,b,train"]
    bad = ["../secret.png,a,train", "test/a/1.png,a,../../escaped", f"{tmp_path}/deep/secret.png,b,train"]
    (web / "metadata.csv").write_text("\n".join(["file_name,label,split", *good, *bad]))
    write_noisy(web, tmp_path / "out", parse_noise("flip=0"), workers=1)
    assert [row["file_name"] for row in rows_of(tmp_path / "out")] == ["train/000000.jpg", "train/000001.jpg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["metadata.csv", "train"]


def test_an_unreadable_photo_is_left_out(
    photos: "Photos", tmp_path: Path, scenes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web = photos.fill(tmp_path / "web", names=("a", "b"), train=3, test=1)
    (web / "train" / "a" / "1.png").write_text("no picture")
    Image.new("L", (65_600, 8)).save(web / "train" / "b" / "0.png")  # longer than a JPEG can be
    write_noisy(web, tmp_path / "out", parse_noise(f"paste={scenes}"), workers=1)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 6
    assert {row["file_name"] for row in rows} == {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.jpg")
    }
    assert "2 photos are left out" in caplog.text
    assert "1.png: not an image" in caplog.text
    assert "65600 x 8 pixels" in caplog.text


def test_an_unreadable_scene_is_named(data: Path, tmp_path: Path, scenes: Path) -> None:
    for file in scenes.iterdir():
        file.write_text("no picture")
    with pytest.raises(DataError, match=r"scenes/\d.png cannot be pasted into: not an image: remove it"):
        write_noisy(data, tmp_path / "out", parse_noise(f"paste={scenes}"), workers=1)
    assert not (tmp_path / "out" / "metadata.csv").exists()


@pytest.mark.parametrize("recipe", ["paste={}", "open=0.1,foreign={}"])
def test_scenes_must_be_there(data: Path, tmp_path: Path, recipe: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no picture")
    for place in ("empty", "missing"):
        with pytest.raises(DataError, match="give a folder of photos"):
            write_noisy(data, tmp_path / "out", parse_noise(recipe.format(tmp_path / place)))
    assert not (tmp_path / "out").exists()


def test_the_manifest_is_written_last(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(out: Path, rows: list[noise.Row]) -> None:
        assert not (out / "metadata.csv").exists()
        assert len(rows) == 24
        for name, *_ in rows:
            pixels(out / name)
        raise InterruptedError("killed here")

    monkeypatch.setattr(noise, "write_manifest", check)
    with pytest.raises(InterruptedError):
        write_noisy(data, tmp_path / "out", parse_noise("flip=0.4"), workers=1)
    monkeypatch.undo()
    write_noisy(data, tmp_path / "out", parse_noise("flip=0.4"), workers=1)  # and can be written over
    assert len(rows_of(tmp_path / "out")) == 24


def test_a_place_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SomnetError, match=r"cannot write .*out.*: choose a writable place"):
        write_noisy(data, tmp_path / "out", parse_noise("flip=0.4"), workers=1)
