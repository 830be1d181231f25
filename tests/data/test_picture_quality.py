"""What makes a picture poor, by hand and on pictures that are near the limits."""

import io
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from somnet.data.picture_quality import (
    FAULTS,
    SHAPE,
    SHORTER,
    blur_width,
    faults_of,
    measure_picture,
    picture_scores,
    shades_beside_ground,
    with_sizes,
)
from somnet.data.toy_web.pictures import draw_test


def saved(image: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=75)
    return Image.open(stream).convert("RGB")


def photo(number: int = 0) -> Image.Image:
    """Blobs of all sizes, the smallest of which are sharp."""
    rng = np.random.default_rng(number)
    total = np.zeros((240, 320, 3))
    for cells in (3, 6, 12, 24, 48, 96):
        small = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
        total += np.asarray(small.resize((320, 240), Image.Resampling.BICUBIC), float) / cells**0.5
    return saved(Image.fromarray((255 * total / total.max()).astype(np.uint8)))


def thing_on(ground: str, thing: Image.Image, size: int = 60) -> Image.Image:
    shot = Image.new("RGB", (400, 400), ground)
    shot.paste(thing.resize((size, size)), (170, 170))
    return saved(shot)


def lit(image: Image.Image, factor: float, plus: float = 0.0) -> Image.Image:
    return saved(image.point(lambda shade: round(factor * shade + plus)))


def night() -> Image.Image:
    """Black, but for some lamps."""
    dark = lit(photo(1), 0.1)
    draw = ImageDraw.Draw(dark)
    for x in (40, 160, 250):
        draw.ellipse((x, 60, x + 12, 72), fill=(255, 220, 150))
    return dark


def logo() -> Image.Image:
    drawn = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(drawn).rectangle((60, 40, 240, 160), fill=(200, 30, 30))
    return saved(drawn)


def measures(*images: Image.Image) -> NDArray[np.float32]:
    stored = np.array([measure_picture(image) for image in images], np.float32)
    return with_sizes(stored, np.array([image.size for image in images], np.int32))


SOUND = {
    "photo": photo(),
    "thing on white": thing_on("white", photo(2)),
    "thing on black": thing_on("black", photo(3)),
    "pale thing on white": thing_on("white", lit(photo(4), 0.2, 200), 150),
    "black thing on white": thing_on("white", lit(photo(5), 0.2), 150),
    "night": night(),
    "soft": photo(6).filter(ImageFilter.GaussianBlur(1.5)),
    "drawn": draw_test("strawberry", np.random.default_rng(0))[0],
    "small": photo(8).resize((32, 32)),
    "portrait": photo(9).resize((100, 300)),
}
POOR = {
    "blank": Image.new("RGB", (100, 80), (240, 240, 235)),
    "dark": lit(photo(), 0.1),
    "too bright": lit(photo(), 0.07, 238),
    "blurred": saved(photo().filter(ImageFilter.GaussianBlur(8))),
    "few shades": logo(),
    "tiny": photo().resize((24, 24)),
    "odd shape": photo().resize((400, 90)),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_can_be_seen_is_not_poor(name: str) -> None:
    assert faults_of(measures(SOUND[name])) == [None]


@pytest.mark.parametrize("name", POOR)
def test_each_fault_is_told_by_its_name(name: str) -> None:
    found = measures(POOR[name])
    assert faults_of(found) == [name]
    assert picture_scores(found)[0] < 0.5


def test_of_blank_pictures_nothing_more_is_said() -> None:
    assert set(FAULTS) == set(POOR)
    black = measures(Image.new("RGB", (20, 100)))
    assert faults_of(black) == ["blank, tiny, odd shape"]


def test_a_strip_of_any_length_is_measured_in_little_memory() -> None:
    strip = Image.fromarray(np.random.default_rng(0).integers(0, 256, (100, 40_000, 3), np.uint8))
    tracemalloc.start()
    try:
        measure_picture(strip)
        assert tracemalloc.get_traced_memory()[1] < 40e6  # a few copies of its 12 MB, as bytes
    finally:
        tracemalloc.stop()


def test_the_blur_of_a_step_is_measured() -> None:
    step = np.zeros((200, 200), np.uint8)
    step[:, 100:] = 200
    for sigma in (2.0, 3.0, 4.0):
        soft = Image.fromarray(step).filter(ImageFilter.GaussianBlur(sigma))
        assert blur_width(np.asarray(soft)) == pytest.approx(sigma, rel=0.15)
    assert blur_width(step) < 0.5


def test_shades_are_counted_beside_the_ground() -> None:
    grey = np.full((10, 10), 255, np.uint8)
    grey[0, :8] = [10, 10, 50, 50, 90, 90, 130, 130]  # four shades, equally often: 2 bits
    grey[1, 0] = 254  # of the ground
    assert shades_beside_ground(grey) == pytest.approx(2.0)
    assert shades_beside_ground(np.zeros((4, 4), np.uint8)) == 0


def test_scores_are_one_half_at_the_limit() -> None:
    usual = with_sizes(np.array([[0.9, 0.1, 0.9, 0.2, 6.0]], np.float32), np.array([[300, 200]], np.int32))
    for name, fault in FAULTS.items():
        at = usual.copy()
        at[0, fault.measure] = fault.limit
        assert picture_scores(at)[0] == pytest.approx(0.5)
        at[0, fault.measure] *= 1.01 if fault.most else 0.99
        assert faults_of(at) == [name]
    assert usual[0, SHORTER] == 200
    assert usual[0, SHAPE] == pytest.approx(2 / 3)
