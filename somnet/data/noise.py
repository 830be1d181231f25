"""Noise recipes: a clean data set made noisy on purpose, with the truth kept in the manifest.

`flip=0.4`         that share of the training labels becomes another class, evenly drawn (symmetric)
`asymmetric=0.4`   that share becomes the next class in the order of names, as when two classes are mixed up
`open=0.1`         that share of the training images is replaced by foreign ones that show no class at all (open set)
`paste=DIR`        training images are pasted at 35-60 % of the side into pictures of DIR (background noise), with soft
                   outlines between an ellipse and a rectangle: hard edges would tell every crop where the photo is
`paste_test=1`     test images are pasted as well
`foreign=DIR`      where open-set images come from; pictures of `paste` if not given
`seed=0`           of all of it; without it, each run of a benchmark has the noise of its own seed
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from somnet.data.decode import read_picture
from somnet.data.index import Index
from somnet.data.location import Location
from somnet.data.sources import open_source
from somnet.data.sources.folder import SPLITS, files_below
from somnet.data.sources.manifest import write_manifest
from somnet.errors import ConfigError, DataError, SomnetError, UnreadableImage
from somnet.system.files import display_name
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

log = logging.getLogger("somnet")

SIDE = 320  # of a scene that something is pasted into
PASTED = (0.35, 0.60)  # share of the scene's side
OUTLINE = (2.0, 12.0)  # of what is pasted: |x|^n + |y|^n = 1 with n from an ellipse to nearly a rectangle
FADE = (0.05, 0.25)  # share of the way from the outline to the middle over which the scene shines through
NOTHING = "none"  # the true label of an image that shows no class
LONGEST_SIDE = 65_500  # of a JPEG file
MOST_NAMED = 5  # photos left out that are named on screen

Row = tuple[str, str, str, str, str]
"""File name, given label, split, true label, true box: a row of the manifest."""


@dataclass(frozen=True)
class NoiseRecipe:
    """Which noise, how much of it. Shares are of the training images; the rest of the images stay clean."""

    flip: float = 0.0
    asymmetric: float = 0.0
    open: float = 0.0
    paste: Path | None = None
    paste_test: bool = False
    foreign: Path | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"noise {name}={getattr(self, name)} is out of range: give a number from 0 to 1")
        if self.flip + self.asymmetric + self.open > 1 + 1e-9:  # 0.33 + 0.56 + 0.11 is a little more than 1
            raise ConfigError("flip, asymmetric and open noise together exceed all images: give shares of at most 1")
        if self.open and self.scenes() is None:
            raise ConfigError("open-set noise needs foreign pictures: add foreign=DIR or paste=DIR")
        if self.paste_test and self.paste is None:
            raise ConfigError("there is nothing to paste test images into: add paste=DIR, or leave out paste_test")
        if self.foreign and not self.open:
            raise ConfigError("foreign pictures are for open-set noise alone: add open=0.1, or leave out foreign")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"noise seed={self.seed} is not a seed: give a whole number from 0 on")

    def scenes(self) -> Path | None:
        """Where open-set images come from."""
        return self.foreign or self.paste


_SHARES = ("flip", "asymmetric", "open")
_PLACES = ("paste", "foreign")
_FLAGS = {"paste_test": {"0": False, "1": True}}
_USED_SPLITS = frozenset(SPLITS.values())


def parse_noise(text: str) -> NoiseRecipe:
    """A recipe from `flip=0.4,open=0.1,paste=DIR,seed=0`."""
    recipe: dict[str, Any] = {}
    for item in text.split(","):
        name, _, value = (word.strip() for word in item.partition("="))
        if not value or name not in NoiseRecipe.__dataclass_fields__ or name in recipe:
            raise ConfigError(
                f"cannot read the noise '{item}': write each of {', '.join(NoiseRecipe.__dataclass_fields__)} at most "
                "once, as in flip=0.4,paste=DIR,seed=0"
            )
        try:
            recipe[name] = _value(name, value)
        except ValueError:
            number = "a number from 0 to 1" if name in _SHARES else "0 or 1" if name in _FLAGS else "a whole number"
            raise ConfigError(f"cannot read the noise '{item}': give {number}") from None
    return NoiseRecipe(**recipe)


def _value(name: str, text: str) -> Path | float | int:
    if name in _PLACES:
        return Path(text).expanduser()  # a shell leaves the ~ of paste=~/photos alone
    if name in _FLAGS:
        if text not in _FLAGS[name]:
            raise ValueError(text)
        return _FLAGS[name][text]
    return float(text) if name in _SHARES else int(text)


def write_noisy(
    source: Path,
    out: Path,
    recipe: NoiseRecipe,
    *,
    seed: int = 0,
    workers: int | None = None,
    follow_links: bool = False,
) -> None:
    """Write a noisy copy of a clean data set; its images are read, never changed.

    The manifest is written last: where it is present, the copy is complete. The same seed gives the same bytes.
    """
    recipe = recipe if recipe.seed is not None else replace(recipe, seed=seed)
    index = open_source(source, follow_links=follow_links)
    for folder in filter(None, (index.root, recipe.paste, recipe.foreign)):
        if out.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{out} lies inside {folder}, whose pictures are read: give a folder outside of it")
    items = list(_plan(index, recipe))
    rows: list[Row] = []
    listed = zip(index.column("file_name"), index.column("problem"), strict=True)
    left_out = [f"{display_name(name)}: {problem}" for name, problem in listed if problem is not None]
    with track("making noise", len(items)) as advance:
        for chunk in on_all_cores(partial(_write, out), items, workers):
            rows.extend(row for row in chunk if not isinstance(row, str))
            left_out.extend(reason for reason in chunk if isinstance(reason, str))
            advance(len(chunk))
    if left_out:
        log.warning("%d photos are left out: %s", len(left_out), "; ".join(left_out[:MOST_NAMED]))
    write_manifest(out, rows)


@dataclass(frozen=True)
class _Item:
    """One image to be written: a photo, in a scene or as it is; or a scene alone."""

    file_name: str
    label: str
    split: str
    true_label: str
    true_box: Sequence[float] | None  # of the photo
    photo: Location | None
    scene: str | None
    seed: tuple[int, int]


def _plan(index: Index, recipe: NoiseRecipe) -> Iterator[_Item]:
    """The images that can be used: listed without a problem, with a label, and in a split that is used."""
    assert recipe.seed is not None
    splits, labels, problems = index.column("split"), index.labels(), index.column("problem")
    true_labels, true_boxes = index.column("true_label"), index.column("true_box")
    trusted = [split in _USED_SPLITS and problem is None for split, problem in zip(splits, problems, strict=True)]
    usable = np.array(trusted, bool) & (labels >= 0)
    train = np.array([split == "train" for split in splits], bool) & usable
    # a stream of its own: folds and shares drawn elsewhere with the same seed must not follow the noise
    rng = np.random.default_rng((recipe.seed, *b"noise"))
    noisy, foreign = draw_labels(labels, train, len(index.classes), recipe, rng)
    pasted = _pictures(recipe.paste) if recipe.paste else []
    foreign_pictures = _pictures(scenes) if recipe.open and (scenes := recipe.scenes()) else []
    nothing = NOTHING
    while nothing in index.classes:
        nothing += " of them"
    for row in np.flatnonzero(usable).tolist():
        pool = foreign_pictures if foreign[row] else pasted if train[row] or recipe.paste_test else []
        yield _Item(
            file_name=f"{splits[row]}/{row:06d}.jpg",
            label=index.classes[noisy[row]],
            split=splits[row],
            true_label=nothing if foreign[row] else true_labels[row] or index.classes[labels[row]],
            true_box=true_boxes[row],
            photo=None if foreign[row] else index.location(row),
            scene=pool[int(rng.integers(len(pool)))] if pool else None,
            seed=(recipe.seed, row),
        )


def draw_labels(
    labels: NDArray[np.int64], train: NDArray[np.bool_], classes: int, recipe: NoiseRecipe, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Given labels after the noise, and which images are to be replaced by foreign ones."""
    noisy, foreign = labels.copy(), np.zeros(len(labels), bool)
    rows = rng.permutation(np.flatnonzero(train))
    shares = (recipe.flip, recipe.asymmetric, recipe.open)
    flipped, moved, opened, _ = np.split(rows, np.round(np.cumsum(shares) * len(rows)).astype(int))
    if classes > 1:
        noisy[flipped] = (labels[flipped] + rng.integers(1, classes, len(flipped))) % classes
        noisy[moved] = (labels[moved] + 1) % classes
    foreign[opened] = True
    return noisy, foreign


def _pictures(folder: Path) -> list[str]:
    root = os.fsencode(folder)
    files = [os.fsdecode(os.path.join(root, name)) for name in files_below(root, b"")] if folder.is_dir() else []
    if not files:
        raise DataError(f"{folder} has no pictures to paste into or to add: give a folder of photos")
    return files


def _write(out: Path, item: _Item) -> Row | str:
    """Write an image and give its row; or why its photo is left out, so that nothing false is claimed of it."""
    try:
        photo = _read(item.photo) if item.photo else None
    except UnreadableImage as error:
        return f"{display_name(os.fsencode(item.photo.path if item.photo else ''))}: {error}"
    image, box = _compose(photo, _scene(item.scene) if item.scene else None, item)
    target = out / item.file_name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        image.save(target, quality=92)
    except OSError as error:
        reason = error.strerror or error
        raise SomnetError(f"cannot write {target}: {reason}: choose a writable place with free space") from None
    corners = "" if box is None else " ".join(f"{corner:g}" for corner in box)
    return item.file_name, item.label, item.split, item.true_label, corners


def _compose(
    photo: Image.Image | None, scene: Image.Image | None, item: _Item
) -> tuple[Image.Image, Sequence[float] | None]:
    """The image that is written, and the true box in it."""
    if photo is None:
        assert scene is not None
        return scene, None
    if scene is None:
        return photo, item.true_box
    image, frame = paste(photo, scene, np.random.default_rng(item.seed))
    return image, frame if item.true_box is None else moved_box(item.true_box, photo.size, frame)


def _read(source: Location | str) -> Image.Image:
    """A picture that can be written as JPEG, too."""
    image = read_picture(source).image
    if max(image.size) > LONGEST_SIDE:
        raise UnreadableImage(f"{image.width} x {image.height} pixels: no JPEG can be that long")
    return image


def _scene(path: str) -> Image.Image:
    try:
        return _read(path)
    except UnreadableImage as error:
        raise DataError(f"{display_name(os.fsencode(path))} cannot be pasted into: {error}: remove it") from None


def paste(
    photo: Image.Image, scene: Image.Image, rng: np.random.Generator
) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """The photo at 35-60 % of the side, at a random place of the scene, with a soft outline; and its box."""
    scene = scene.resize((SIDE, SIDE))
    scale = rng.uniform(*PASTED) * SIDE / max(photo.size)
    small = photo.resize((max(1, round(photo.width * scale)), max(1, round(photo.height * scale))))
    x, y = (int(rng.integers(0, SIDE - length + 1)) for length in small.size)
    opaque = outline(small.size, float(np.exp(rng.uniform(*np.log(OUTLINE)))), rng.uniform(*FADE))
    scene.paste(small, (x, y), Image.fromarray(np.round(255 * opaque).astype(np.uint8)))
    return scene, (x, y, x + small.width, y + small.height)


def outline(size: tuple[int, int], power: float, fade: float) -> NDArray[np.float64]:
    """How much of a pasted photo is seen at each pixel (height, width): 1 inside, falling to 0 at its outline."""
    x, y = (np.abs((np.arange(length) + 0.5) / length * 2 - 1) ** power for length in size)
    distance = (y[:, None] + x[None, :]) ** (1 / power)  # 0 in the middle, 1 at the outline
    return np.clip((1 - distance) / fade, 0, 1)


def moved_box(
    box: Sequence[float], size: tuple[int, int], frame: tuple[int, int, int, int]
) -> tuple[float, float, float, float]:
    """A box of a picture of some size, after the picture was put into a frame; all xyxy."""
    left, top, right, bottom = frame
    x, y = (right - left) / size[0], (bottom - top) / size[1]
    return left + box[0] * x, top + box[1] * y, left + box[2] * x, top + box[3] * y
