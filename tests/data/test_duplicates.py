"""Duplicates: what counts as the same picture, and groups of any size."""

import io
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter

from somnet.data.duplicates import HASH_BYTES, MOST_DIFFERENT, group_duplicates, later_members, picture_hash
from somnet.data.toy_web.pictures import draw_test

COUNT = 25


def photo(number: int) -> Image.Image:
    """Smooth blobs of all sizes, as photos have them."""
    rng = np.random.default_rng(number)
    total = np.zeros((180, 240, 3))
    for cells in (3, 6, 12, 24, 48):
        small = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), np.uint8))
        total += np.asarray(small.resize((240, 180), Image.Resampling.BICUBIC), float) / cells**0.7
    return Image.fromarray((255 * total / total.max()).astype(np.uint8))


def saved(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream)


def cropped(image: Image.Image, share: float) -> Image.Image:
    x, y = image.width * share, image.height * share
    return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "saved again": lambda image: saved(image, 40),
    "half the size": lambda image: image.resize((120, 90)),
    "another shape": lambda image: image.resize((200, 200)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
    "cropped": lambda image: cropped(image, 0.01),
}


def hashes_of(images: list[Image.Image]) -> list[bytes | None]:
    return [picture_hash(image) for image in images]


def groups_of(keys: Sequence[bytes | None], hashes: Sequence[bytes | None]) -> NDArray[np.int64]:
    return group_duplicates(*(pa.array(values, pa.binary()) for values in (keys, hashes)))


def bits(value: bytes | None) -> np.ndarray:
    assert value is not None
    return np.unpackbits(np.frombuffer(value, np.uint8))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found(change: str) -> None:
    originals = [photo(number) for number in range(COUNT)]
    hashes = hashes_of([*originals, *map(CHANGES[change], originals)])
    groups = groups_of([None] * len(hashes), hashes)
    together = (groups[:COUNT] == groups[COUNT:]) & (groups[:COUNT] >= 0)
    assert together.mean() >= 0.95
    assert groups.max() == together.sum() - 1  # and nobody else is in a group


def test_different_pictures_are_alone() -> None:
    assert (groups_of([None] * 120, hashes_of([photo(number) for number in range(120)])) == -1).all()


def test_look_alikes_of_the_toy_web_are_alone() -> None:
    drawn = [draw_test("strawberry", np.random.default_rng(number))[0] for number in range(16)]
    assert (groups_of([None] * len(drawn), hashes_of(drawn)) == -1).all()


@pytest.mark.parametrize("colour", ["black", "white", "red"])
def test_a_flat_picture_has_no_hash(colour: str) -> None:
    flat = Image.new("RGB", (200, 150), colour)
    noise = np.random.default_rng(0).normal(0, 1, (150, 200, 3))
    grainy = Image.fromarray(np.clip(np.asarray(flat) + noise, 0, 255).astype(np.uint8))
    assert hashes_of([flat, saved(flat, 50), grainy, saved(grainy, 80)]) == [None] * 4


def test_a_gradient_has_no_hash() -> None:
    ramp = np.tile(np.linspace(0, 255, 200).astype(np.uint8), (150, 1))
    assert picture_hash(Image.fromarray(ramp)) is None


def test_equal_files_are_a_group_whatever_they_show() -> None:
    groups = groups_of([b"a", None, b"b", b"a", None, b"b", b"a"], [None] * 7)
    assert groups.tolist() == [0, -1, 1, 0, -1, 1, 0]
    assert later_members(groups).tolist() == [False, False, False, True, False, True, True]


def test_files_and_pictures_are_linked() -> None:
    one, other = photo(1), photo(2)
    near = saved(one, 50)
    groups = groups_of([b"x", b"y", b"z", b"y"], hashes_of([one, near, other, near]))
    assert groups.tolist() == [0, 0, -1, 0]


def test_no_images_no_groups() -> None:
    assert groups_of([], []).tolist() == []
    assert groups_of([None], [None]).tolist() == [-1]


@given(st.lists(st.one_of(st.none(), st.binary(min_size=1, max_size=1)), max_size=30))
def test_groups_are_those_of_equal_keys(keys: list[bytes | None]) -> None:
    groups = groups_of(keys, [None] * len(keys))
    for row, key in enumerate(keys):
        alone = key is None or keys.count(key) == 1
        assert (groups[row] == -1) == alone
        for other in range(row):
            assert (groups[row] == groups[other] != -1) == (key is not None and key == keys[other])
    firsts = [groups.tolist().index(number) for number in range(groups.max(initial=-1) + 1)]
    assert all(a < b for a, b in pairwise(firsts))


def test_many_images_are_grouped_in_little_time() -> None:
    count, pairs = 100_000, 500
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (count, HASH_BYTES), np.uint8)
    packed[:, 0] &= 127  # the mean has no bit
    flips = np.zeros((pairs, HASH_BYTES * 8), np.uint8)
    for row in flips:
        row[rng.choice(np.arange(1, row.size), MOST_DIFFERENT // 2, replace=False)] = 1
    packed[-pairs:] = packed[:pairs] ^ np.packbits(flips, axis=1)
    began = time.process_time()
    groups = groups_of([None] * count, [row.tobytes() for row in packed])
    assert time.process_time() - began < 30
    assert (groups[:pairs] == groups[-pairs:]).mean() > 0.99
    assert (groups[pairs:-pairs] == -1).all()


def test_a_crowd_of_look_alikes_is_one_group() -> None:
    base = bits(picture_hash(photo(0)))
    rng = np.random.default_rng(0)
    crowd = []
    for _ in range(2000):
        near = base.copy()
        near[rng.choice(np.arange(1, len(base)), 3, replace=False)] ^= 1
        crowd.append(np.packbits(near).tobytes())
    assert (groups_of([None] * len(crowd), crowd) == 0).all()
