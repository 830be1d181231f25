"""The only place that opens an image."""

import contextlib
import importlib.util
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError, features

from somnet.data.location import MAX_BYTES, Location
from somnet.errors import UnreadableImage
from somnet.system.allocator import give_back_memory

FORMATS: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # an MPO opens as JPEG
if features.check("avif"):  # some builds of Pillow lack it
    FORMATS += ("AVIF",)
if importlib.util.find_spec("pillow_heif") is not None:
    import pillow_heif

    pillow_heif.register_heif_opener()
    FORMATS += ("HEIF",)  # photos of phones; they call it HEIC
MAX_PIXELS = 100_000_000
LARGE_PIXELS = 16_000_000
MIN_SIDE = 8
BACKGROUND = (255, 255, 255)  # behind what is transparent
DEEP_WHITES = (1.0, 255.0, 65535.0)  # what floats may mean by white: they have no agreed range

_one_large = threading.Lock()  # a large picture takes up to a gigabyte: threads decode them one at a time

_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\0", b"MM\0*")
_OTHER_FORMATS = {  # (offset, signature) of files that people do take for photos
    (4, b"ftyphei"): "HEIC",
    (4, b"ftypmif1"): "HEIF",
    (4, b"ftypavif"): "AVIF",
    (4, b"ftyp"): "video",
    (4, b"jP  "): "JPEG 2000",
    (0, b"\0\0\1\0"): "ICO",
    (0, b"8BPS"): "PSD",
    (0, b"%PDF"): "PDF",
    (0, b"<svg"): "SVG",
}
HEIC = ("HEIC", "HEIF")
DAMAGED = "the image header is truncated or damaged"
_TURNS = {  # EXIF orientation: what makes the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)


@dataclass(frozen=True)
class Picture:
    """A decoded image and the size of its upright original, the frame of all boxes."""

    image: Image.Image  # RGB, upright, possibly reduced
    width: int
    height: int


def read_picture(
    source: Location | Path | str | BinaryIO, *, at_least: int | None = None, key: bytes | None = None
) -> Picture:
    """Decode an image file, a stretch of one, or a stream; raise UnreadableImage, with the reason, for anything else.

    With `at_least`, a large JPEG is decoded at a reduced size, its shorter side no less than that; so is every
    picture of more than 16 million pixels. With the `key` of its content, a file that has changed since is unreadable.
    """
    with _named_reasons():
        if isinstance(source, Path | str):
            source = Location(str(source))
        if isinstance(source, Location):
            with source.open() if key is None else source.open_known(key) as stream:
                return _read(stream, at_least, {})
        return _read(source, at_least, {})


def read_sizes(source: Location, sizes: Sequence[int], key: bytes) -> list[Picture]:
    """What `read_picture` gives for each of these values of `at_least`; the file is read once, unless it is large.

    It is decoded once for all that come out alike, which for most pictures is all.
    """
    decoded: dict[tuple[int, int], Picture] = {}
    pictures: list[Picture] = []
    with _named_reasons(), contextlib.ExitStack() as streams:
        stream = streams.push(source.open_known(key))
        for at_least in sizes:
            if stream.closed:  # together with the pixels of a large picture
                stream = streams.push(source.open_known(key))
            pictures.append(_read(stream, at_least, decoded))
    return pictures


def squared(image: Image.Image, side: int) -> NDArray[np.uint8]:
    """The whole image as pixels (3, side, side), whatever its shape."""
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextlib.contextmanager
def _named_reasons() -> Iterator[None]:
    """Whatever goes wrong in here is an UnreadableImage that says why."""
    try:
        yield
    except UnreadableImage:
        raise
    except FileNotFoundError as error:
        raise UnreadableImage("there is no such file") from error
    except PermissionError as error:
        raise UnreadableImage("no permission to read the file") from error
    except Image.DecompressionBombError as error:
        raise UnreadableImage(f"more than {MAX_PIXELS // 1_000_000} million pixels") from error
    except MemoryError as error:
        raise UnreadableImage("not enough memory to decode it") from error
    # Pillow raises nearly every built-in exception on some broken file.
    except Exception as error:
        raise UnreadableImage("the image data is truncated or damaged") from error


def _read(stream: BinaryIO, at_least: int | None, decoded: dict[tuple[int, int], Picture]) -> Picture:
    """The picture in a stream, unless it was `decoded` at this size before."""
    _check_bytes(stream)
    # Restricted to Pillow: threads may leave each other's filter behind, and this one harms nobody.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        try:
            opened = Image.open(stream, formats=FORMATS)
        except UnidentifiedImageError as error:
            raise UnreadableImage(_why_unidentified(stream)) from error
        with opened:
            width, height = opened.size
            _check_size(width, height)
            if at_least is not None:
                opened.draft(None, (at_least, at_least))  # its size is now what it will be decoded at
            if width * height <= LARGE_PIXELS:
                if opened.size not in decoded:
                    decoded[opened.size] = _decode(opened, width, height, at_least)
                return decoded[opened.size]
            with _one_large:
                picture = _decode(opened, width, height, at_least)
                opened.close()  # its pixels, too
                give_back_memory()
            return picture


def _check_bytes(stream: BinaryIO) -> None:
    count = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if count == 0:
        raise UnreadableImage("the file is empty")
    if count > MAX_BYTES:
        raise UnreadableImage(f"{count / 1e9:.1f} GB: at most {MAX_BYTES / 1e9:.0f} GB is read")


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        limit = MAX_PIXELS // 1_000_000
        raise UnreadableImage(f"{width} x {height} pixels: more than {limit} million pixels")
    if min(width, height) < MIN_SIDE:
        raise UnreadableImage(f"{width} x {height} pixels: a side below {MIN_SIDE} pixels shows nothing")


def _why_unidentified(stream: BinaryIO) -> str:
    stream.seek(0)
    head = stream.read(16)
    if head.startswith(_SIGNATURES):
        return DAMAGED
    for (offset, signature), name in _OTHER_FORMATS.items():
        if head.startswith(signature, offset):
            if name in HEIC and "HEIF" in FORMATS:
                return DAMAGED
            more = " and, after pip install 'somnet[heic]', HEIC" if name in HEIC else ""
            return f"{name} is not a supported format; {', '.join(FORMATS)}{more} are"
    return "not an image"


def _decode(opened: Image.Image, width: int, height: int, at_least: int | None) -> Picture:
    """The pixels of an opened image, possibly reduced, which is so large as it is stored."""
    opened.load()
    # After loading: a PNG may keep its EXIF at the end, and a TIFF turns itself.
    orientation = _orientation(opened)
    if orientation in _SIDEWAYS:
        width, height = height, width
    image = _to_rgb(opened)
    if orientation in _TURNS:
        image = image.transpose(_TURNS[orientation])
    if at_least is not None and width * height > LARGE_PIXELS:  # what follows would copy it several times
        image = image.reduce(max(1, min(image.size) // at_least))
    return Picture(image, width, height)


def _orientation(image: Image.Image) -> int:
    # Not ImageOps.exif_transpose: it rewrites the EXIF and fails on odd tags of a valid image.
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a broken EXIF block says nothing about the pixels
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _eight_bit(image).convert("RGB")
    if image.mode == "LAB":
        to_rgb = ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
        return to_rgb.apply(image)
    if image.has_transparency_data:
        if image.mode == "La":  # converts to nothing else
            image = image.convert("LA")
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        opaque = Image.new("RGB", image.size, BACKGROUND)
        opaque.paste(rgba, mask=rgba.getchannel("A"))
        return opaque
    return image.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale a deep grey image to 8 bits; Pillow itself would clip it at 255."""
    grey = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0, neginf=0)  # (H, W)
    low, high = float(grey.min()), float(grey.max())
    usual = DEEP_WHITES if image.mode == "F" else DEEP_WHITES[-1:]
    white = next((top for top in usual if high <= top), None)  # the narrowest range that holds all values
    if low < 0 or white is None:
        grey -= low
        white = (high - low) or 1.0
    return Image.fromarray(np.rint(grey * (255 / white)).astype(np.uint8))
