"""Noise recipes: a clean data set made noisy on purpose, with the truth kept in the manifest.

`flip=0.4`         that share of the training labels becomes another class, evenly drawn (symmetric)
`asymmetric=0.4`   that share becomes the next class in the order of names, as when two classes are mixed up
`open=0.1`         that share of the training images is replaced by foreign ones that show no class at all (open set)
`paste=DIR`        training images are pasted at 35-60 % of the side into pictures of DIR (background noise)
`foreign=DIR`      where open-set images come from; pictures of `paste` if not given
`seed=0`           of all of it; without it, each run of a benchmark has the noise of its own seed
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from somnet.data.decode import read_picture
from somnet.data.sources import open_source
from somnet.data.sources.folder import files_below
from somnet.data.sources.manifest import write_manifest
from somnet.errors import ConfigError, DataError, UnreadableImage
from somnet.files import display_name
from somnet.parallel import on_all_cores
from somnet.progress import track

SIDE = 320  # of a scene that something is pasted into
PASTED = (0.35, 0.60)  # share of the scene's side
NOTHING = "none"  # the true label of an image that shows no class


@dataclass(frozen=True)
class NoiseRecipe:
    """Which noise, how much of it. Shares are of the training images; the rest of the images stay clean."""

    flip: float = 0.0
    asymmetric: float = 0.0
    open: float = 0.0
    paste: Path | None = None
    foreign: Path | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"noise {name}={getattr(self, name)} is no share: give a number from 0 to 1")
        if self.flip + self.asymmetric + self.open > 1:
            raise ConfigError("flip, asymmetric and open noise together exceed all images: give shares that sum to 1")
        if self.open and self.scenes() is None:
            raise ConfigError("open-set noise needs foreign pictures: add foreign=DIR or paste=DIR")

    def scenes(self) -> Path | None:
        """Where open-set images come from."""
        return self.foreign or self.paste


_SHARES = ("flip", "asymmetric", "open")
_PLACES = ("paste", "foreign")


def parse_noise(text: str) -> NoiseRecipe:
    """A recipe from `flip=0.4,open=0.1,paste=DIR,seed=0`."""
    recipe = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in NoiseRecipe.__dataclass_fields__ or name in recipe:
            raise ConfigError(
                f"cannot read the noise '{part}': write each of {', '.join(NoiseRecipe.__dataclass_fields__)} once, "
                "as in flip=0.4,paste=DIR,seed=0"
            )
        try:
            recipe[name] = Path(value) if name in _PLACES else float(value) if name in _SHARES else int(value)
        except ValueError:
            raise ConfigError(f"cannot read the noise '{part}': give a number") from None
    return NoiseRecipe(**recipe)  # type: ignore[arg-type]


def write_noisy(source: Path, out: Path, recipe: NoiseRecipe, *, seed: int = 0, workers: int | None = None) -> None:
    """Write a noisy copy of a clean data set; its images are read, never changed.

    The manifest is written last: where it is present, the copy is complete. The same seed gives the same bytes.
    """
    recipe = recipe if recipe.seed is not None else replace(recipe, seed=seed)
    items = list(_plan(source, recipe))
    for folder in {(out / item.file_name).parent for item in items}:
        folder.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, str, str, str, str]] = []
    with track("making noise", len(items)) as advance:
        for chunk in on_all_cores(partial(_write, out), items, workers):
            rows.extend(row for row in chunk if row is not None)
            advance(len(chunk))
    write_manifest(out, rows)


@dataclass(frozen=True)
class _Item:
    """One image to be written: a photo, in a scene or as it is; or a scene alone."""

    file_name: str
    label: str
    split: str
    true_label: str
    photo: str | None
    scene: str | None
    seed: tuple[int, int]


def _plan(source: Path, recipe: NoiseRecipe) -> Iterator[_Item]:
    assert recipe.seed is not None
    index = open_source(source)
    splits, labels = index.column("split"), index.labels()
    train = np.array([split == "train" for split in splits]) & (labels >= 0)
    rng = np.random.default_rng(recipe.seed)
    noisy, foreign = draw_labels(labels, train, len(index.classes), recipe, rng)
    pasted = _pictures(recipe.paste) if recipe.paste else []
    strangers = _pictures(scenes) if recipe.open and (scenes := recipe.scenes()) else []
    for row in np.flatnonzero(labels >= 0):
        pool = [] if not train[row] else strangers if foreign[row] else pasted
        scene = pool[int(rng.integers(len(pool)))] if pool else None
        given, true = index.classes[noisy[row]], NOTHING if foreign[row] else index.classes[labels[row]]
        photo = None if foreign[row] else index.path(int(row))
        yield _Item(f"{splits[row]}/{row:06d}.jpg", given, splits[row], true, photo, scene, (recipe.seed, int(row)))


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
    found = [os.fsdecode(os.path.join(root, name)) for name in files_below(root, b"")] if folder.is_dir() else []
    if not found:
        raise DataError(f"{folder} has no pictures to paste into or to add: give a folder of photos")
    return found


def _write(out: Path, item: _Item) -> tuple[str, str, str, str, str] | None:
    """Write an image and give its row; None where the photo cannot be read, so that nothing false is claimed of it."""
    rng = np.random.default_rng(item.seed)
    try:
        photo = read_picture(item.photo).image if item.photo else None
    except UnreadableImage:
        return None
    scene = _scene(item.scene) if item.scene else None
    box = ""
    if photo is not None and scene is not None:
        photo, corners = paste(photo, scene, rng)
        box = " ".join(map(str, corners))
    image = photo or scene
    assert image is not None
    image.save(out / item.file_name, quality=92)
    return item.file_name, item.label, item.split, item.true_label, box


def _scene(path: str) -> Image.Image:
    try:
        return read_picture(path).image
    except UnreadableImage as error:
        raise DataError(f"{display_name(os.fsencode(path))} cannot be pasted into: {error}: remove it") from None


def paste(
    photo: Image.Image, scene: Image.Image, rng: np.random.Generator
) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """The photo at 35-60 % of the side, at a random place of the scene; and its box."""
    scene = scene.resize((SIDE, SIDE))
    scale = rng.uniform(*PASTED) * SIDE / max(photo.size)
    small = photo.resize((max(1, round(photo.width * scale)), max(1, round(photo.height * scale))))
    x, y = (int(rng.integers(0, SIDE - length + 1)) for length in small.size)
    scene.paste(small, (x, y))
    return scene, (x, y, x + small.width, y + small.height)
