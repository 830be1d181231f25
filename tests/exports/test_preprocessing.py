"""An exported graph in the hands of somebody who has its metadata and nothing of somnet: the same classes."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile

import somnet
from somnet.runs.run import Run
from somnet.training.train import train_without_report

if TYPE_CHECKING:
    from tests.conftest import Tiny

pytestmark = pytest.mark.slow  # it makes 200 files and writes a graph

KINDS = 20
PHOTOS = 200
LARGE = (5200, 3100)  # more than 16 million pixels
SURE = {"model.freeze": "none", "train.epochs": 10, "train.lr": 0.1}  # a network whose probabilities are far from even


@pytest.fixture(scope="module")
def run(data: Path, tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Run:
    base = tmp_path_factory.mktemp("sure")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOMNET_CACHE", str(base / "cache"))
        return train_without_report(data, tiny.config("plain", **SURE), base / "run", workers=0)


@pytest.fixture(scope="module")
def graph(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return somnet.export(run, "onnx", tmp_path_factory.mktemp("exported") / "onnx") / "model.onnx"


def base(number: int) -> Image.Image:
    """Coloured patches of all sizes on a slope of light, of an odd shape."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(40, 300, 2))
    rows, columns = np.mgrid[0:height, 0:width]
    slope = (rows / height * 90 + columns / width * 60 + rng.integers(0, 100))[..., None]
    pixels = slope + rng.integers(0, 40, (height, width, 3))
    for _ in range(6):
        top, left = rng.integers(0, height - 8), rng.integers(0, width - 8)
        down, right = rng.integers(8, height), rng.integers(8, width)
        pixels[top : top + down, left : left + right] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels.astype(np.uint8))


def with_alpha(photo: Image.Image, number: int) -> Image.Image:
    alpha = np.random.default_rng(number).integers(0, 256, (8, 8)).astype(np.uint8)
    result = photo.copy()
    result.putalpha(Image.fromarray(alpha).resize(photo.size))
    return result


def deep(photo: Image.Image, number: int) -> Image.Image:
    grey = np.asarray(photo.convert("L")).astype(np.uint16) * 257
    return Image.fromarray(grey // (1 + number % 3))


def turned(photo: Image.Image, orientation: int) -> dict[str, Any]:
    exif = Image.Exif()
    exif[274] = orientation
    return {"exif": exif}


def save(photo: Image.Image, number: int) -> tuple[bytes, str]:
    """A file of the kind that this number stands for, and how its name ends."""
    kinds: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (photo, "PNG", {}),
        (photo, "JPEG", {"quality": 90}),
        (photo, "JPEG", {"quality": 60, "subsampling": 2, "progressive": True}),
        (photo.resize((photo.width * 4, photo.height * 4)), "JPEG", {"quality": 85}),
        (photo.resize((photo.width * 2, photo.height * 9)), "JPEG", {"quality": 85}),
        (photo, "JPEG", turned(photo, 2 + number // KINDS % 7)),
        (photo.resize((1500, 900)), "JPEG", turned(photo, 8 - number // KINDS % 7)),
        (photo, "PNG", turned(photo, 2 + number // KINDS % 7)),
        (photo, "TIFF", turned(photo, 2 + number // KINDS % 7)),
        (deep(photo, number), "PNG", {}),
        (deep(photo, number), "TIFF", {}),
        (Image.fromarray(np.asarray(photo.convert("L")).astype(np.float32) / 255), "TIFF", {}),
        (with_alpha(photo, number), "PNG", {}),
        (with_alpha(photo, number), "WEBP", {"lossless": True}),
        (with_alpha(photo, number).convert("LA"), "PNG", {}),
        (photo.quantize(16), "PNG", {"transparency": number % 16}),
        (photo.quantize(64), "GIF", {}),
        (photo.convert("CMYK"), "JPEG", {"quality": 90}),
        (photo.convert("1") if number % 40 < 20 else photo.convert("L"), "PNG", {}),
        (photo.resize((9 + number % 20, 8 + number % 30)), "PNG", {}),
    ]
    image, kind, options = kinds[number % KINDS]
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue(), kind.lower()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """200 photos of all kinds."""
    folder = tmp_path_factory.mktemp("kinds")

    def written() -> Iterator[Path]:
        for number in range(PHOTOS):
            content, ending = save(base(number), number)
            (folder / f"{number:03d}.{ending}").write_bytes(content)
            yield folder / f"{number:03d}.{ending}"
        for ending in ("png", "jpeg"):  # two of them large
            base(7).resize(LARGE).save(folder / f"large.{ending}")
            yield folder / f"large.{ending}"

    return list(written())


def pixels_by(about: dict[str, Any], file: Path) -> NDArray[np.uint8]:
    """What the metadata say, step by step in their order, written from them alone."""
    side = about["size"][0]
    image: Any = Image.open(file)
    stored = image.width * image.height
    for step in about["order"]:
        if step == "decode" and image.format == "JPEG":
            scale = next(s for s in about["jpeg_scales"] if s * side <= min(image.size) or s == 1)
            image.draft(None, (image.width // scale, image.height // scale))
        elif step == "depth" and image.mode in ("I", "F", "I;16"):
            grey = np.asarray(image).astype(np.float64)
            whites = about["deep_whites"] if image.mode == "F" else about["deep_whites"][-1:]
            white = next(white for white in whites if grey.max() <= white)
            image = carried(image, Image.fromarray(np.rint(grey * 255 / white).astype(np.uint8)))
        elif step == "colour":
            image = carried(image, over(image, about["background"]))
        elif step == "upright":
            image = upright(image)
        elif step == "reduce" and stored > about["large_pixels"]:
            image = image.reduce(max(1, min(image.size) // side))
        elif step == "resize":
            assert about["resize"] == {"filter": "bilinear", "antialias": True, "keep_aspect_ratio": False}
            image = image.resize(about["size"], Image.Resampling.BILINEAR)
    assert (about["layout"], about["channels"], about["dtype"]) == ("NCHW", "RGB", "uint8")
    return np.asarray(image).transpose(2, 0, 1)


def carried(old: Any, new: Any) -> Any:
    """Pixels without their orientation would never be upright."""
    if isinstance(old, ImageFile.ImageFile):
        old.load()
    new.info["orientation"] = old.info.get("orientation", old.getexif().get(274, 1))
    return new


def over(image: Any, background: list[int]) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")  # type: ignore[no-any-return]
    rgba = np.asarray(image.convert("RGBA")).astype(np.float64)
    alpha = rgba[..., 3:] / 255
    return Image.fromarray(np.rint(alpha * rgba[..., :3] + (1 - alpha) * background).astype(np.uint8))


def upright(image: Any) -> Image.Image:
    pixels = np.asarray(image)
    turns: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
        1: lambda p: p,
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: p.transpose(1, 0, 2)[:, ::-1],
        7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
        8: lambda p: p.transpose(1, 0, 2)[::-1],
    }
    return Image.fromarray(np.ascontiguousarray(turns[image.info["orientation"]](pixels)))


def test_metadata_alone_give_the_classes_of_predict(graph: Path, run: Run, files: list[Path]) -> None:
    session = onnxruntime.InferenceSession(graph)
    about = session.get_modelmeta().custom_metadata_map
    labels, steps = json.loads(about["labels"]), json.loads(about["preprocessing"])
    pixels = np.stack([pixels_by(steps, file) for file in files])
    [logits] = session.run(["logits"], {"pixels": pixels})
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = list(run.predict(files, device="cpu", top=len(labels)))
    assert [one.unreadable_reason for one in expected] == [None] * len(files)
    told = [dict(zip(one.labels, one.probabilities, strict=True)) for one in expected]
    given = np.array([[by_label[label] for label in labels] for by_label in told])
    assert np.abs(shares - given).max() < 0.02
    assert [labels[best] for best in shares.argmax(axis=1)] == [one.labels[0] for one in expected]
    assert np.bincount(given.argmax(axis=1)).min() > 10  # the network tells the pictures apart


def test_each_step_tells(graph: Path, files: list[Path]) -> None:
    """Without any one of them some of the pictures look otherwise."""
    steps = json.loads(onnxruntime.InferenceSession(graph).get_modelmeta().custom_metadata_map["preprocessing"])
    some = [*files[:KINDS], files[-2]]
    right = [pixels_by(steps, file).astype(int) for file in some]
    others = {
        "background": {**steps, "background": [0, 0, 0]},
        "deep_whites": {**steps, "deep_whites": [255.0, 65535.0 * 2]},
        "jpeg_scales": {**steps, "jpeg_scales": [1]},
        "large_pixels": {**steps, "large_pixels": 10**9},
    }
    for name, other in others.items():
        apart = [np.abs(pixels_by(other, file) - pixels).mean() for file, pixels in zip(some, right, strict=True)]
        assert max(apart) > 0.5, name
