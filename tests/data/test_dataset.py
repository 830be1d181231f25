"""A data set made ready: what is used, what is left out, what is said."""

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from somnet.data.bags import CachedInputs, PixelInputs
from somnet.data.dataset import make_inputs, make_views, open_dataset, region_inputs, training_views
from somnet.data.description import describe
from somnet.data.location import Location
from somnet.data.transforms import to_square
from somnet.data.views import View
from somnet.errors import DataError
from somnet.nn.backbones import Network
from somnet.system.compute import Compute

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny


def test_training_and_held_out_images_are_told_apart(data: Path, tiny: "Tiny") -> None:
    found = open_dataset(data, tiny.config(), Compute(workers=1))
    assert found.classes == ("=birch", "ash", "oak, red")
    assert np.bincount(found.train.labels).tolist() == [6, 6, 6]
    assert found.test is not None
    assert np.bincount(found.test.labels).tolist() == [2, 2, 2]
    assert found.unreadable == ()


def test_val_stands_in_for_test_and_is_not_trained_on(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", train=2, test=1)
    (web / "test").rename(web / "val")
    found = open_dataset(web, tiny.config(), Compute(workers=1))
    assert (len(found.train), len(found.test or ())) == (6, 3)


def test_a_clean_val_split_is_kept_beside_train_and_test(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web = photos.fill(tmp_path / "web", train=2, test=1)
    rng = np.random.default_rng(0)
    for kind in (web / "train").iterdir():
        (web / "val" / kind.name).mkdir(parents=True)
        shutil.copy(next(kind.iterdir()), web / "val" / kind.name / "copy.jpg")
        Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(web / "val" / kind.name / "own.png")
    usual = open_dataset(web, tiny.config(), Compute(workers=1))
    found = open_dataset(web, tiny.config(clean_val=True), Compute(workers=1))
    assert usual.right is None
    assert found.right is not None
    assert found.right.labels.tolist() == [0, 1, 2]  # the copies are trained on
    assert "3 of 6 readable images of val calibrate label_score" in caplog.text
    assert (len(found.train), len(found.test or ())) == (6, 3)
    assert found.fingerprint() == usual.fingerprint()  # the training is the same


def test_without_a_val_split_none_is_clean(data: Path, tiny: "Tiny") -> None:
    with pytest.raises(DataError, match="has no validation images: put rightly labelled ones under val/"):
        open_dataset(data, tiny.config(clean_val=True), Compute(workers=1))


def test_the_fingerprint_knows_names_labels_and_content(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    def fingerprint() -> str:
        return open_dataset(web, tiny.config(), Compute(workers=1)).fingerprint()

    web = photos.fill(tmp_path / "web", train=2, test=1)
    first = fingerprint()
    assert fingerprint() == first
    (web / "test" / "ash" / "2.png").unlink()
    assert fingerprint() == first  # held-out images may change
    (web / "train" / "ash" / "0.png").rename(web / "train" / "ash" / "x.png")
    renamed = fingerprint()
    (web / "train" / "ash" / "x.png").rename(web / "train" / "=birch" / "x.png")
    moved = fingerprint()
    photos.picture(0, 77).save(web / "train" / "=birch" / "x.png")
    assert len({first, renamed, moved, fingerprint()}) == 4


def test_what_was_found_is_said(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    web = photos.fill(tmp_path / "web", names=("a", "b"), train=2, test=1)
    (web / "train" / "a" / "0.png").unlink()
    (web / "test" / "new").mkdir()
    photos.picture(0, 9).save(web / "test" / "new" / "0.png")
    for number in range(7):
        (web / "train" / "b" / f"bad{number}.jpg").write_text("no picture")
    said = "\n".join(describe(open_dataset(web, tiny.config(), Compute(workers=1)), images_per_bag=2))
    assert "3 classes" in said
    assert "train: 3 images, 1 to 2 per class" in said
    assert "test: 3 images" in said
    assert "no training image of new" in said
    assert "fewer images than the 2 of a bag: 'a' (1)" in said
    assert "7 unreadable files" in said
    assert "bad4.jpg: not an image" in said
    assert "and 2 more" in said
    assert "bad5.jpg" not in said


def test_a_manifest_without_training_images_is_refused(photos: "Photos", tiny: "Tiny", tmp_path: Path) -> None:
    photos.picture(0, 0).save(tmp_path / "a.png")
    (tmp_path / "metadata.csv").write_text("file_name,label,split\na.png,a,test\n")
    with pytest.raises(DataError, match="no training images"):
        open_dataset(tmp_path, tiny.config(), Compute(workers=1))


def test_images_of_an_unknown_split_are_counted_and_named(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        photos.picture(number % 2, number).save(tmp_path / f"{number}.png")
    splits = ("train", "Train", "train", "TRAIN", "dev", "fold 2")
    rows = [f"{number}.png,{'ab'[number % 2]},{split}" for number, split in enumerate(splits)]
    (tmp_path / "metadata.csv").write_text("\n".join(["file_name,label,split", *rows]))
    assert len(open_dataset(tmp_path, tiny.config(), Compute(workers=1)).train) == 4
    assert "left out: 2 images whose split is not one of train, val, test: dev, fold 2" in caplog.text


def test_maps_are_computed_once_and_are_those_of_the_trunk(
    data: Path, tiny: "Tiny", monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config()
    part = open_dataset(data, config, Compute(workers=1)).train
    network = Network(config.model, 3).eval()
    inputs = make_inputs(part, network, config.model.imgsz, Compute(workers=0))
    assert isinstance(inputs, CachedInputs)
    pixels, boxes, mask = PixelInputs(part.index, inputs.boxes, 64)(4, None)
    with torch.no_grad():
        expected = network.prepare(pixels[None])[0]
    got, got_boxes, got_mask = inputs(4, 123)
    assert torch.allclose(got.float(), expected, atol=1e-2, rtol=1e-2)
    assert torch.equal(got_boxes, boxes)
    assert torch.equal(got_mask, mask)
    monkeypatch.setattr(network, "prepare", lambda _: pytest.fail("computed again"))
    make_inputs(part, network, config.model.imgsz, Compute(workers=0))


def test_without_a_frozen_trunk_the_inputs_are_pixels(data: Path, tiny: "Tiny") -> None:
    config = tiny.config(**{"method": "plain", "model.freeze": "none"})
    part = open_dataset(data, config, Compute(workers=1)).train
    inputs = make_inputs(part, Network(config.model, 3), config.model.imgsz, Compute(workers=0))
    plain, augmented = inputs(0, None)[0], inputs(0, 5)[0]
    assert plain.dtype == augmented.dtype == torch.uint8
    assert plain.shape == augmented.shape == (3, 64, 64)
    assert not torch.equal(plain, augmented)
    assert torch.equal(augmented, inputs(0, 5)[0])


def halves(count: int) -> View:
    """The left half of every image, of the last one mirrored; but of the first image all is seen."""
    boxes = np.tile(np.array([0, 0, 0.5, 1], np.float32), (count, 1))
    boxes[0] = (0, 0, 1, 1)
    return View(boxes, np.arange(count) == count - 1)


@pytest.mark.parametrize("freeze", ["trunk", "none"])
def test_a_view_is_the_part_of_the_image_at_full_size(data: Path, tiny: "Tiny", freeze: str) -> None:
    config = tiny.config(**{"model.freeze": freeze})
    part = open_dataset(data, config, Compute(workers=1)).train
    network = Network(config.model, 3).eval()
    inputs = make_views(part, network, config.model.imgsz, Compute(workers=0), [halves(len(part))])[0]
    for row, box in ((0, (0, 0, 64, 64)), (4, (0, 0, 32, 64)), (len(part) - 1, (0, 0, 32, 64))):
        seen, boxes, _ = inputs(row, None)
        picture = Image.open(part.index.path(row)).convert("RGB").crop(box)
        cut = to_square(ImageOps.mirror(picture) if row == len(part) - 1 else picture, 64)
        with torch.no_grad():
            expected = network.prepare(cut[None])[0]
        assert torch.allclose(seen.float(), expected.float(), atol=1e-2, rtol=1e-2)
        assert boxes[0].tolist() == [0, 0, 1, 1]


def test_maps_of_views_and_of_whole_images_are_kept_apart(
    data: Path, tiny: "Tiny", monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config()
    part = open_dataset(data, config, Compute(workers=1)).train
    network = Network(config.model, 3).eval()
    whole = make_inputs(part, network, config.model.imgsz, Compute(workers=0))
    left = halves(len(part))
    right_way_round = View(left.boxes, np.zeros(len(part), bool))
    views = make_views(part, network, config.model.imgsz, Compute(workers=0), [left, right_way_round])
    assert torch.equal(whole(0, None)[0], views[0](0, None)[0])
    assert not torch.equal(whole(4, None)[0], views[0](4, None)[0])
    assert torch.equal(views[1](4, None)[0], views[0](4, None)[0])
    assert not torch.equal(views[1](len(part) - 1, None)[0], views[0](len(part) - 1, None)[0])
    monkeypatch.setattr(network, "prepare", lambda _: pytest.fail("computed again"))
    make_views(part, network, config.model.imgsz, Compute(workers=0), [right_way_round, left])


def test_a_picture_is_opened_once_for_all_its_views_whatever_the_threads(
    data: Path, tiny: "Tiny", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config()
    part = open_dataset(data, config, Compute(workers=1)).train
    network = Network(config.model, 3).eval()
    opened: list[str] = []

    def open_known(location: Location, key: bytes) -> io.BufferedReader | io.BytesIO:
        opened.append(location.path)
        return known(location, key)

    known = Location.open_known
    monkeypatch.setattr(Location, "open_known", open_known)
    maps = []
    for workers in (1, 3):
        monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / str(workers)))
        views = training_views(part, network, config, Compute(workers=workers))
        make_inputs(part, network, config.model.imgsz, Compute(workers=workers))  # whole images are among the views
        maps.append(torch.stack([view(row, None)[0] for view in views for row in range(len(part))]))
    assert sorted(opened) == sorted(2 * [part.index.location(row).path for row in range(len(part))])
    assert torch.equal(*maps)


def test_regions_are_the_image_and_its_first_proposals(data: Path, tiny: "Tiny") -> None:
    config = tiny.config("somnet", **{"views.proposals": 2})
    part = open_dataset(data, config, Compute(workers=1)).train
    network = Network(config.model, 3).eval()
    seen, boxes, mask = region_inputs(part, network, config, Compute(workers=0))(1, None)
    assert boxes.tolist() == [[0, 0, 1, 1], *part.scan.boxes[1, :2].tolist()]
    assert mask.tolist() == [True, True, True]
    assert torch.equal(seen[0], make_inputs(part, network, config.model.imgsz, Compute(workers=0))(1, None)[0])
    assert not torch.equal(seen[0], seen[1])
