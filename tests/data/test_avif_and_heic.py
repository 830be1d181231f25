"""Formats that not every build of Pillow reads."""

import io

import pytest
from PIL import ExifTags, Image

from somnet.data import decode
from tests.data.test_decode import encoded, gradient, read_bytes, refusal


def test_avif_is_read() -> None:
    assert read_bytes(encoded(gradient(), "AVIF")).image.size == gradient().size


def test_heic_is_read_upright() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    stream = io.BytesIO()
    pillow_heif.from_pillow(gradient()).save(stream, exif=exif.tobytes())
    picture = read_bytes(stream.getvalue())
    width, height = gradient().size
    assert (picture.width, picture.height) == picture.image.size == (height, width)


def test_a_damaged_heic_is_not_called_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "FORMATS", ("JPEG", "HEIF"))
    assert refusal(b"\0\0\0\x18ftypheic" + bytes(64)) == decode.DAMAGED


def test_heic_without_its_package_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "FORMATS", ("JPEG", "PNG"))
    reason = refusal(b"\0\0\0\x18ftypheic" + bytes(64))
    assert reason == "HEIC is not a supported format; JPEG, PNG and, after pip install 'somnet[heic]', HEIC are"
