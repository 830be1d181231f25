"""Every picture becomes upright RGB; everything else a reason."""

import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from somnet.data import decode
from somnet.data.decode import read_picture, read_sizes
from somnet.data.location import Location, content_key
from somnet.errors import UnreadableImage


def gradient(width: int = 64, height: int = 48) -> Image.Image:
    """Red grows to the right, green downwards, blue stays."""
    red = np.broadcast_to(np.linspace(0, 255, width), (height, width))  # (H, W)
    green = np.broadcast_to(np.linspace(0, 255, height)[:, None], (height, width))  # (H, W)
    return Image.fromarray(np.stack([red, green, np.full_like(red, 90)], axis=-1).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def read_bytes(data: bytes, at_least: int | None = None) -> decode.Picture:
    return read_picture(io.BytesIO(data), at_least=at_least)


def refusal(data: bytes) -> str:
    with pytest.raises(UnreadableImage) as caught:
        read_bytes(data)
    return str(caught.value)


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)  # (H, W, 3)


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_claiming(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(64))
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


# --- what is read


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_allowed_format_is_read(kind: str) -> None:
    picture = read_bytes(encoded(gradient(), kind))
    assert picture.image.mode == "RGB"
    assert picture.image.size == (picture.width, picture.height) == (64, 48)
    assert abs(pixels(picture.image) - pixels(gradient())).mean() < 8


@pytest.mark.parametrize("name", ["café.jpg", "写真.jpg", "a b\n.jpg", os.fsdecode(b"caf\xe9.jpg")])
def test_any_file_name_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    try:
        path.write_bytes(encoded(gradient(), "JPEG"))
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system does not take the name")
    assert read_picture(path).width == read_picture(str(path)).width == 64


def test_extension_is_irrelevant(tmp_path: Path) -> None:
    path = tmp_path / "really_a_png.jpg"
    path.write_bytes(encoded(gradient(), "PNG"))
    assert read_picture(path).image.size == (64, 48)


def test_cmyk_jpeg() -> None:
    picture = read_bytes(encoded(gradient().convert("CMYK"), "JPEG", quality=95))
    assert abs(pixels(picture.image) - pixels(gradient())).mean() < 8


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(kind: str) -> None:
    ramp = np.tile(np.linspace(0, 65535, 256), (32, 1)).astype(np.uint16)  # (H, W)
    read = pixels(read_bytes(encoded(Image.fromarray(ramp), kind)).image)
    assert read.mean() == pytest.approx(127.5, abs=1)
    assert abs(read[0, :, 0] - np.arange(256)).max() <= 1


def test_32_bit_integers_of_16_bit_range() -> None:
    ramp = np.tile(np.linspace(0, 65535, 256), (32, 1)).astype(np.int32)  # (H, W)
    read = pixels(read_bytes(encoded(Image.fromarray(ramp), "TIFF")).image)
    assert abs(read[0, :, 0] - np.arange(256)).max() <= 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 255), (0, 65535), (-1e3, 1e3), (-3e38, 3e38)])
def test_floats_of_any_range(low: float, high: float) -> None:
    ramp = np.tile(np.linspace(low, high, 256), (32, 1)).astype(np.float32)  # (H, W)
    read = pixels(read_bytes(encoded(Image.fromarray(ramp), "TIFF")).image)
    assert abs(read[0, :, 0] - np.arange(256)).max() <= 1


def test_floats_that_are_no_numbers() -> None:
    broken = np.full((16, 16), np.nan, np.float32)  # (H, W)
    broken[0] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_bytes(encoded(Image.fromarray(broken), "TIFF")).image.size == (16, 16)


def test_palette_with_transparency_is_on_white() -> None:
    image = Image.new("P", (16, 16), 0)
    image.putpalette([0, 0, 0, 200, 30, 40])
    image.paste(1, (8, 0, 16, 16))
    read = read_bytes(encoded(image, "PNG", transparency=0)).image
    assert read.getpixel((2, 2)) == (255, 255, 255)
    assert read.getpixel((12, 2)) == (200, 30, 40)


def test_alpha_is_composited_on_white() -> None:
    read = read_bytes(encoded(Image.new("RGBA", (16, 16), (200, 0, 100, 128)), "PNG")).image
    assert read.getpixel((5, 5)) == pytest.approx((227, 127, 177), abs=2)
    read = read_bytes(encoded(Image.new("LA", (16, 16), (0, 0)), "PNG")).image
    assert read.getpixel((5, 5)) == (255, 255, 255)


def test_transparent_colour_of_an_rgb_png() -> None:
    read = read_bytes(encoded(Image.new("RGB", (16, 16), (1, 2, 3)), "PNG", transparency=(1, 2, 3))).image
    assert read.getpixel((5, 5)) == (255, 255, 255)


def test_lab_tiff() -> None:
    read = read_bytes(encoded(Image.new("LAB", (16, 16), (255, 128, 128)), "TIFF")).image  # white
    assert pixels(read).min() > 245


def test_one_bit() -> None:
    read = read_bytes(encoded(Image.new("1", (16, 16), 1), "PNG")).image
    assert read.getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_animation_gives_its_first_frame(kind: str) -> None:
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(first, kind, save_all=True, append_images=[second], duration=50, **options)
    assert read_bytes(data).image.getpixel((8, 8)) == pytest.approx((255, 0, 0), abs=3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int) -> None:
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # stored turned left, shown turned right
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = gradient() if orientation == 1 else gradient().transpose(turned[orientation])
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    picture = read_bytes(encoded(stored, kind, exif=exif))
    assert (picture.width, picture.height) == picture.image.size == (64, 48)
    assert abs(pixels(picture.image) - pixels(gradient())).mean() < 8


def test_broken_exif_does_not_cost_the_picture() -> None:
    data = encoded(gradient(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff garbage")
    assert read_bytes(data).image.size == (64, 48)


# --- reduced decoding


@pytest.mark.parametrize("at_least", [100, 150, 224, 599, 600, 5000])
def test_reduced_jpeg_keeps_the_original_frame(at_least: int) -> None:
    picture = read_bytes(encoded(gradient(800, 600), "JPEG"), at_least)
    assert (picture.width, picture.height) == (800, 600)
    assert min(picture.image.size) >= min(at_least, 600)
    assert abs(picture.image.width / picture.image.height - 800 / 600) < 0.02
    assert (picture.image.size == (800, 600)) == (at_least > 300)


def test_reduced_and_turned() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture = read_bytes(encoded(gradient(800, 600), "JPEG", exif=exif), 100)
    assert (picture.width, picture.height) == (600, 800)
    assert picture.image.size == (150, 200)


@pytest.mark.parametrize(
    ("kind", "large", "decodings"), [("JPEG", False, 3), ("PNG", False, 1), ("JPEG", True, 5), ("PNG", True, 5)]
)
def test_several_sizes_are_what_each_would_be_alone_and_decoded_once_if_alike(
    kind: str, large: bool, decodings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 640 x 480 pixels: 100 and 120 are decoded at a quarter, 130 and 240 at half, 241 as they are."""
    if large:
        monkeypatch.setattr(decode, "LARGE_PIXELS", 100)
    file = tmp_path / "a"
    file.write_bytes(encoded(gradient(640, 480), kind))
    sizes = [100, 130, 241, 120, 240]
    alone = [read_picture(file, at_least=size) for size in sizes]
    decoded = []
    once = decode._decode
    monkeypatch.setattr(decode, "_decode", lambda *arguments: decoded.append(1) or once(*arguments))  # type: ignore[func-returns-value]
    with file.open("rb") as stream:
        key = content_key(stream)
    together = read_sizes(Location(str(file)), sizes, key)
    assert len(decoded) == decodings
    for one, other in zip(alone, together, strict=True):
        assert (one.width, one.height) == (other.width, other.height) == (640, 480)
        assert np.array_equal(pixels(one.image), pixels(other.image))


def test_other_formats_are_not_reduced() -> None:
    assert read_bytes(encoded(gradient(800, 600), "PNG"), 100).image.size == (800, 600)


# --- what is refused, and why


def test_text_named_jpg(tmp_path: Path) -> None:
    path = tmp_path / "notes.jpg"
    path.write_text("not a picture at all\n" * 20)
    with pytest.raises(UnreadableImage, match=r"^not an image$"):
        read_picture(path)


def test_reason_does_not_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.jpg"
    path.write_bytes(encoded(gradient(), "JPEG")[:-200])
    with pytest.raises(UnreadableImage) as caught:
        read_picture(path)
    assert "secret" not in str(caught.value)


def test_empty_file() -> None:
    assert refusal(b"") == "the file is empty"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match="no such file"):
        read_picture(tmp_path / "absent.jpg")


def test_folder_and_pipe(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match="folder"):
        read_picture(tmp_path)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadableImage, match="not a regular file"):
        read_picture(tmp_path / "pipe.jpg")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> None:  # root may read all files, so the refusal is simulated
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "locked.jpg"
    path.write_bytes(encoded(gradient(), "JPEG"))
    monkeypatch.setattr("builtins.open", deny)
    with pytest.raises(UnreadableImage, match="permission"):
        read_picture(path)


def test_impossible_path() -> None:
    with pytest.raises(UnreadableImage):
        read_picture("nul\0byte.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_truncated(kind: str, share: float) -> None:
    data = encoded(gradient(200, 150), kind)
    assert "truncated" in refusal(data[: int(len(data) * share)])


def test_png_bomb_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.core.new", None)  # no pixel memory may be asked for
    monkeypatch.setattr("PIL.Image.core.fill", None)
    assert len(png_claiming(100_000, 100_000)) < 100
    assert "100 million pixels" in refusal(png_claiming(100_000, 100_000))
    assert refusal(png_claiming(10_001, 10_000)) == "10001 x 10000 pixels: more than 100 million pixels"


def test_a_file_beyond_the_byte_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MAX_BYTES", 100)
    assert "GB" in refusal(encoded(gradient(), "PNG"))


@pytest.mark.parametrize("size", [(1, 1), (3, 4000), (4000, 7)])
def test_too_small(size: tuple[int, int]) -> None:
    reason = refusal(encoded(Image.new("RGB", size), "PNG"))
    assert reason == f"{size[0]} x {size[1]} pixels: a side below 8 pixels shows nothing"


def test_smallest_allowed() -> None:
    assert read_bytes(encoded(Image.new("RGB", (8, 8)), "PNG")).image.size == (8, 8)


@pytest.mark.parametrize(
    ("head", "name"),
    [(b"\0\0\0\x18ftypqt  ", "video"), (b"%PDF-1.7", "PDF"), (b"8BPS\0\1", "PSD"), (b"\0\0\1\0\1\0", "ICO")],
)
def test_unsupported_format_is_named(head: bytes, name: str) -> None:
    assert refusal(head + bytes(64)).startswith(f"{name} is not a supported format")


def test_known_to_pillow_yet_not_allowed() -> None:
    assert refusal(encoded(gradient(), "TGA")) == "not an image"


def test_warnings_stay_inside() -> None:
    header = encoded(gradient(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\0\0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_bytes(header)
        refusal(png_claiming(9_500, 9_500))  # above Pillow's own warning, below its error


# --- whatever the bytes, one kind of error

SAMPLES = [
    encoded(gradient(), "JPEG"),
    encoded(gradient(), "PNG"),
    encoded(gradient(), "GIF", save_all=True, append_images=[gradient().rotate(90)]),
    encoded(gradient(), "WEBP"),
    encoded(gradient(), "BMP"),
    encoded(gradient(), "TIFF", compression="tiff_lzw"),
    encoded(gradient(), "PPM"),
]


def assert_decodes_or_is_refused(data: bytes) -> None:
    try:
        picture = read_bytes(data, 16)
    except UnreadableImage:
        return
    assert picture.image.mode == "RGB"
    assert min(picture.image.size) >= 1


@settings(max_examples=300, deadline=None)
@given(
    sample=st.sampled_from(SAMPLES),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4)), max_size=6),
    header_edits=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3),
    share=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_mutated_files_decode_or_are_refused(
    sample: bytes, edits: list[tuple[float, bytes]], header_edits: list[tuple[int, int]], share: float
) -> None:
    data = bytearray(sample)
    for place, patch in edits:
        start = int(place * len(data))
        data[start : start + len(patch)] = patch
    for start, value in header_edits:
        data[start] = value
    assert_decodes_or_is_refused(bytes(data[: int(len(data) * share)]))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused(data: bytes) -> None:
    assert_decodes_or_is_refused(data)
