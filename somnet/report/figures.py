"""Pictures of a data set, of a memory and of its bags. Pure: images and arrays in, an image out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

Colour = tuple[int, int, int]
Floats = NDArray[np.floating]
Box = tuple[float, float, float, float]

FINE = 2  # everything is drawn at this multiple and scaled down, which smooths the edges
MARGIN = 36
MOST_PIXELS = 2400  # about the longest side of a memory grid
PIES_ONLY_ABOVE = 12  # slots a side
HEADING = 68  # title and subtitle
CORNER = 8
CARD_GAP, CARD_TEXT = 16, 52  # between slots, and below a slot's picture with its text
SMALLEST_SHARE = 0.02  # smaller slices of a pie are one grey slice

WHITE: Colour = (255, 255, 255)
INK: Colour = (33, 37, 41)
GREY: Colour = (112, 118, 124)
LINE: Colour = (206, 210, 214)
PAPER: Colour = (240, 242, 244)
RED: Colour = (208, 35, 46)

OKABE_ITO: tuple[Colour, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (86, 180, 233),
    (204, 121, 167),
    (240, 228, 66),
    (0, 0, 0),
)
INFERNO = np.array(
    [
        (0, 0, 4),
        (31, 12, 72),
        (85, 15, 109),
        (136, 34, 106),
        (186, 54, 85),
        (227, 89, 51),
        (249, 140, 10),
        (249, 201, 50),
        (252, 255, 164),
    ],
    np.float64,
)  # (9, 3)


@dataclass(frozen=True)
class Tile:
    """A thumbnail of a contact sheet."""

    image: Image.Image
    caption: str = ""
    box: Box | None = None  # xyxy, pixels of the image
    flag: bool = False  # marked as noise


@dataclass(frozen=True)
class Prototype:
    """A slot of the memory, seen from one class."""

    slot: int
    d_score: float
    r_score: float
    shares: Floats  # (C,) class distribution of the slot
    crops: Sequence[Image.Image]  # its nearest ROIs, nearest first


@dataclass(frozen=True)
class BagView:
    """A bag and the weights of its ROIs."""

    label: str
    images: Sequence[Image.Image]
    boxes: Sequence[Floats]  # (P, 4) each, xyxy, pixels of the image
    weights: Sequence[Floats]  # (P,) each; they sum to 1 over the bag, 0 where dropped
    keep: float  # share of the bag's ROIs that keep their weight
    notes: Sequence[str] = ()  # a line below each image


# --- the figures


def contact_sheet(groups: Sequence[tuple[str, Sequence[Tile]]], *, tile: int = 112, columns: int = 10) -> Image.Image:
    """Rows of thumbnails, a title above each group."""
    most = max((len(tiles) for _, tiles in groups), default=0)
    columns = max(1, min(columns, max(most, 4)))  # few thumbnails still leave room for a title
    return _stack([_group(title, tiles, tile, columns) for title, tiles in groups])


def memory_grid(
    side: int,
    counts: NDArray[np.integer] | Floats,
    d: Floats,
    r: Floats,
    exemplars: Mapping[int, Sequence[Image.Image]],
    classes: Sequence[str],
) -> Image.Image:
    """All slots of a memory (Figure 3 for every slot): counts and d are (L, C), r is (C, L)."""
    hits = np.asarray(counts, np.float64).sum(axis=1)  # (L,)
    top = np.asarray(d).argmax(axis=1)  # (L,)
    strength = np.log1p(hits) / max(1e-9, float(np.log1p(hits.max(initial=0))))  # (L,) a few slots win very often
    slots = [
        _Slot(
            hits=int(hits[slot]),
            strength=float(strength[slot]),
            shares=d[slot],
            best=int(best),
            name=classes[best],
            r_score=float(r[best][slot]),
            crop=next(iter(exemplars.get(slot, ())), None),
        )
        for slot, best in enumerate(top)
    ]
    room = MOST_PIXELS - 360  # for the grid itself, beside title, legend and margins
    if side <= PIES_ONLY_ABOVE:
        cell = min(160, room // side - CARD_TEXT)
        step_x, step_y, draw = cell + CARD_GAP, cell + CARD_TEXT, _card
        note = "Border: top class, paler where little was won. Number: times won."
    else:
        cell = step_x = step_y = min(64, room // side)
        draw = _bubble
        note = "The larger, the more the slot has won; dots have won nothing."
    width = max(side * step_x, 640)
    colours = class_colours(len(classes))
    legend = _Legend(classes, colours, np.bincount(top[hits > 0], minlength=len(classes)), width)

    foot = MARGIN + HEADING + side * step_y + 8
    canvas = _Canvas(width + 2 * MARGIN, foot + 34 + legend.height + MARGIN)
    won = f"{np.count_nonzero(hits)} of {len(hits)} slots have won at least once"
    canvas.heading(f"Memory of {side} x {side} slots", won, width)
    for number, slot in enumerate(slots):
        draw(canvas, MARGIN + number % side * step_x, MARGIN + HEADING + number // side * step_y, cell, slot, colours)
    canvas.text(MARGIN, foot, f"Pie: class shares (d). {note}", 13, GREY, width=width)
    legend.draw(canvas, MARGIN, foot + 34)
    return canvas.finish()


def prototypes(class_name: str, rows: Sequence[Prototype], classes: Sequence[str] = ()) -> Image.Image:
    """Slots, seen from one class (Figure 3); with the names of all classes it has a legend."""
    pie, crop, gap, step = 108, 124, 12, 148
    scores_x = MARGIN + pie + 28
    crops_x = scores_x + 136
    most = max([5, *(len(row.crops) for row in rows)])
    width = crops_x - MARGIN + most * (crop + gap) - gap
    shares = [_slices(row.shares) for row in rows]  # (C,) each
    colours = class_colours(max([len(classes), *(len(share) for share in shares)]))
    total = np.zeros(len(colours))  # (C,)
    for share in shares:
        total[: len(share)] += share
    seen = [i for i in np.argsort(-total, kind="stable").tolist() if i < len(classes) and total[i] > 0]
    legend = _Legend([classes[i] for i in seen], [colours[i] for i in seen], np.ones(len(seen)), width)

    canvas = _Canvas(width + 2 * MARGIN, HEADING + len(rows) * step + legend.height + 2 * MARGIN)
    canvas.heading(class_name, "Slots of the memory: class shares, scores for this class, and the nearest ROIs", width)
    for number, row in enumerate(rows):
        y = MARGIN + HEADING + number * step
        middle = y + crop / 2
        canvas.pie(MARGIN + pie / 2, middle, pie / 2, row.shares, colours)
        canvas.text(scores_x, middle - 30, f"Slot {row.slot}", 17, anchor="lm")
        for line, (name, score) in enumerate((("d-score", row.d_score), ("r-score", row.r_score))):
            canvas.text(scores_x, middle + 2 + 24 * line, name, 14, GREY, anchor="lm")
            canvas.text(scores_x + 98, middle + 2 + 24 * line, f"{score:.2f}", 14, anchor="rm")
        for place, image in enumerate(row.crops):
            canvas.picture(_thumbnail(Tile(image), crop), crops_x + place * (crop + gap), y, crop, crop, CORNER)
    legend.draw(canvas, MARGIN, MARGIN + HEADING + len(rows) * step + 4)
    return canvas.finish()


def bag_figure(bags: Sequence[BagView]) -> Image.Image:
    """Bags, their kept ROIs, the heat maps of the ROI weights, and the heat maps' histograms (Figure 4)."""
    return _stack([_bag(bag) for bag in bags])


def heat_map(boxes: Floats, weights: Floats, width: int, height: int) -> NDArray[np.float64]:
    """For each pixel the sum of the weights of the ROIs that its centre lies in."""
    box = np.asarray(boxes, np.float64).reshape(-1, 4, 1)  # (P, 4, 1)
    x, y = np.arange(width) + 0.5, np.arange(height) + 0.5  # (W,) and (H,)
    columns = (box[:, 0] <= x) & (x < box[:, 2])  # (P, W)
    rows = (box[:, 1] <= y) & (y < box[:, 3])  # (P, H)
    weighted = rows * np.asarray(weights, np.float64)[:, None]  # (P, H)
    return np.asarray(weighted.T @ columns, np.float64)  # (H, W)


def evidence_figure(image: Image.Image, evidence: Floats, label: str, probability: float, *, side: int) -> Image.Image:
    """An image beside the evidence (H, W) for its predicted class, of which only what is above 0 is shown."""
    width, height = _fit(image, side, side)
    step, margin, foot = max(width, 200) + 20, 20, 46
    canvas = _Canvas(2 * step - 20 + 2 * margin, height + HEADING + foot + 2 * margin)
    canvas.heading(label, f"predicted with a probability of {probability:.1%}", 2 * step - 20, margin)
    top, right = margin + HEADING, margin + step
    highest = float(np.max(evidence, initial=0))
    cells = Image.fromarray(np.asarray(evidence, np.float32))
    smooth = cells.resize((round(width * FINE), round(height * FINE)), Image.Resampling.BICUBIC)
    shade = np.clip(np.asarray(smooth) / (highest or 1.0), 0, 1)  # (H, W)
    canvas.picture(image, margin, top, width, height, 6)
    canvas.picture(_overlay(image, shade), right, top, width, height, 6)
    ramp = Image.fromarray(_inferno(np.linspace(0, 1, 256)[None]))
    canvas.picture(ramp, right, top + height + 10, step - 20, 9, 4)
    canvas.text(right, top + height + 26, "no evidence for it", 12, GREY)
    canvas.text(right + step - 20, top + height + 26, f"strong (+{highest:.1f})", 12, GREY, anchor="ra")
    return canvas.finish()


# --- their parts


def _group(title: str, tiles: Sequence[Tile], side: int, columns: int) -> Image.Image:
    """One group of a contact sheet."""
    gap, heading = 14, 36
    step = side + gap + (16 if any(tile.caption for tile in tiles) else 0)
    width = columns * (side + gap) - gap
    canvas = _Canvas(width, heading + max(1, math.ceil(len(tiles) / columns)) * step)
    canvas.text(0, 2, title, 18, width=width - 60)
    canvas.text(width, 6, str(len(tiles)), 14, GREY, anchor="ra")
    for number, tile in enumerate(tiles):
        x, y = number % columns * (side + gap), heading + number // columns * step
        canvas.picture(_thumbnail(tile, side), x, y, side, side, CORNER)
        canvas.text(x + side / 2, y + side + 5, tile.caption, 12, GREY, anchor="ma", width=side)
    return canvas.finish()


def _thumbnail(tile: Tile, side: int) -> Image.Image:
    """The whole image in a square, at FINE size: what cropping removes may be what the box or the flag is about."""
    square = _Canvas(side, side)
    square.rectangle(0, 0, side, side, PAPER)
    width, height = _fit(tile.image, side, side)
    x, y = (side - width) / 2, (side - height) / 2
    square.picture(tile.image, x, y, width, height)
    if tile.box is not None:
        scale = width / max(1, tile.image.width), height / max(1, tile.image.height)
        box = np.array(tile.box) * [*scale, *scale] + [x, y, x, y]  # (4,)
        square.outline(np.clip(box, 2, side - 2), WHITE)
    if tile.flag:
        square.rounded(0, 0, side, side, CORNER, None, RED, 2.5)
        square.polygon([(side - 22, 0), (side, 0), (side, 22)], RED)
    return square.paper


@dataclass(frozen=True)
class _Slot:
    """What a cell of the memory grid shows."""

    hits: int
    strength: float  # of its hits, 0 to 1
    shares: Floats  # (C,)
    best: int  # the class with the largest share
    name: str  # of that class
    r_score: float  # of that class
    crop: Image.Image | None


def _card(canvas: "_Canvas", x: float, y: float, side: float, slot: _Slot, colours: Sequence[Colour]) -> None:
    """A slot in a small grid: picture, pie, and text."""
    canvas.rounded(x, y, side, side, 12, _faded(colours[slot.best], 0.75 * (1 - slot.strength)) if slot.hits else PAPER)
    canvas.rounded(x + 4, y + 4, side - 8, side - 8, CORNER, PAPER)
    if slot.crop is not None:
        square = ImageOps.fit(_rgb(slot.crop), (320, 320))
        canvas.picture(square, x + 4, y + 4, side - 8, side - 8, CORNER, fade=0.0 if slot.hits else 0.75)
    if not slot.hits:
        canvas.text(x + 2, y + side + 6, "never won", 12, LINE, width=side)
        return
    radius = max(14.0, 0.17 * side)
    canvas.disc(x + side - radius - 3, y + side - radius - 3, radius + 3, WHITE)
    canvas.pie(x + side - radius - 3, y + side - radius - 3, radius, slot.shares, colours)
    canvas.text(x + 2, y + side + 6, slot.name, 12, width=side - 12 - 8 * len(str(slot.hits)))
    canvas.text(x + side - 2, y + side + 6, str(slot.hits), 12, GREY, anchor="ra")
    scores = f"d {slot.shares[slot.best]:.2f} · r {slot.r_score:.2f}"
    canvas.text(x + 2, y + side + 21, scores, 12, GREY, width=side)


def _bubble(canvas: "_Canvas", x: float, y: float, side: float, slot: _Slot, colours: Sequence[Colour]) -> None:
    """A slot in a large grid: a pie whose size tells the hits, as a faded one would not match the legend."""
    if slot.hits:
        canvas.pie(x + side / 2, y + side / 2, side * (0.18 + 0.28 * slot.strength), slot.shares, colours)
    else:
        canvas.disc(x + side / 2, y + side / 2, side * 0.06, LINE)


class _Legend:
    """Classes and their colours in columns; where there are too many, the most frequent ones."""

    COLUMN, ROW, MOST_ROWS = 150, 22, 7

    def __init__(
        self, classes: Sequence[str], colours: Sequence[Colour], frequency: NDArray[np.generic], width: float
    ) -> None:
        self.columns = max(1, int(width // self.COLUMN))
        room = self.columns * self.MOST_ROWS
        often = np.argsort(-np.asarray(frequency, np.float64), kind="stable")  # (C,)
        shown = sorted(often[: room if len(classes) <= room else room - 1].tolist())
        self.entries: list[tuple[str, Colour | None]] = [(classes[i], colours[i]) for i in shown]
        if len(shown) < len(classes):
            self.entries.append((f"and {len(classes) - len(shown)} more", None))
        self.height = math.ceil(len(self.entries) / self.columns) * self.ROW

    def draw(self, canvas: "_Canvas", x: float, y: float) -> None:
        for number, (name, colour) in enumerate(self.entries):
            left, middle = x + number % self.columns * self.COLUMN, y + (number // self.columns + 0.5) * self.ROW
            if colour is None:
                canvas.text(left, middle, name, 13, GREY, anchor="lm", width=self.COLUMN - 12)
            else:
                canvas.rounded(left, middle - 7, 14, 14, 3, colour)
                canvas.text(left + 21, middle, name, 13, anchor="lm", width=self.COLUMN - 33)


def _bag(bag: BagView) -> Image.Image:
    """One bag: a row for each image."""
    side, gap, titles = 236, 26, 30
    step = side + gap
    sizes = [_fit(image, side, side) for image in bag.images]
    heats = [
        _display_heat(image, boxes, weights, size)
        for image, boxes, weights, size in zip(bag.images, bag.boxes, bag.weights, sizes, strict=True)
    ]
    highest = max((float(heat.max(initial=0)) for heat in heats), default=0.0)
    heights = [max(height, 130) + 46 for _, height in sizes]  # a histogram needs room; below are the notes
    canvas = _Canvas(4 * step - gap, HEADING + titles + sum(heights) + 26)
    images = f"{len(bag.images)} image" + ("s" if len(bag.images) != 1 else "")
    canvas.heading(bag.label, f"A bag of {images}; the top {bag.keep:.0%} of its ROIs keep their weight", 4 * step, 0)
    for column, title in enumerate(("Image", "Kept ROIs", "Heat map of ROI weights", "Histogram of the heat map")):
        canvas.text(column * step, HEADING, title, 14, width=side)

    y: float = HEADING + titles
    heaviest = max((float(np.max(weights, initial=0)) for weights in bag.weights), default=0.0)
    for number, (image, (width, height), heat) in enumerate(zip(bag.images, sizes, heats, strict=True)):
        weights = np.asarray(bag.weights[number], np.float64)  # (P,)
        shade = heat / (highest or 1.0)  # (H, W)
        pictures = image, _kept_rois(image, bag.boxes[number], weights, width, height, heaviest), _overlay(image, shade)
        note = bag.notes[number] if number < len(bag.notes) else ""
        kept = int((weights > 0).sum())
        notes = note, f"{kept} ROI{'s' if kept != 1 else ''} kept", f"{weights.sum():.0%} of the bag's weight"
        below = y + heights[number] - 46
        for column, (picture, line) in enumerate(zip(pictures, notes, strict=True)):
            x = column * step + (side - width) / 2
            canvas.picture(picture, x, y + (below - y - height) / 2, width, height, 6)
            canvas.text(column * step, below + 6, line, 12, GREY, width=side)
        _histogram(canvas, 3 * step, y, side, below - y, shade, highest)
        y += heights[number]
    ramp = Image.fromarray(_inferno(np.linspace(0, 1, 256)[None]))
    canvas.picture(ramp, 2 * step, y - 8, side, 9, 4)
    _scale_labels(canvas, 2 * step, y + 6, side, highest)
    return canvas.finish()


def _display_heat(image: Image.Image, boxes: Floats, weights: Floats, size: tuple[float, float]) -> Floats:
    """The heat map of an image at the size at which it is drawn."""
    width, height = (max(1, round(length * FINE)) for length in size)
    scale = np.array([width / max(1, image.width), height / max(1, image.height)] * 2)  # (4,)
    return heat_map(np.reshape(boxes, (-1, 4)) * scale, weights, width, height)  # (H, W)


def _kept_rois(
    image: Image.Image, boxes: Floats, weights: Floats, width: float, height: float, heaviest: float
) -> Image.Image:
    """The ROIs that have weight, lightest first, so that the heaviest stay visible."""
    view = _Canvas(width, height)
    if not (weights > 0).any():
        view.picture(_rgb(image).convert("L"), 0, 0, width, height, fade=0.65)
        view.text(width / 2, height / 2, "removed", 20, anchor="mm", width=width)
        return view.paper
    view.picture(image, 0, 0, width, height)
    scale = np.array([width / max(1, image.width), height / max(1, image.height)] * 2)  # (4,)
    for number in np.argsort(weights)[-int((weights > 0).sum()) :]:
        box = np.clip(boxes[number] * scale, 2, np.array([width, height] * 2) - 2)  # (4,)
        red, green, blue = _inferno(0.4 + 0.6 * weights[number] / heaviest).tolist()
        view.outline(box, (red, green, blue))
    return view.paper


def _overlay(image: Image.Image, shade: Floats) -> Image.Image:
    """A heat map from 0 to 1 in colours; the image shows through as light and dark."""
    height, width = shade.shape
    grey = _rgb(image).convert("L").resize((width, height), Image.Resampling.LANCZOS, reducing_gap=3)
    light = np.asarray(ImageOps.autocontrast(grey, cutoff=1), np.float64)[..., None] / 255  # (H, W, 1)
    lit = _inferno(shade) * (0.5 + 0.5 * light) + 80 * light * (1 - shade[..., None])  # (H, W, 3)
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))


def _histogram(
    canvas: "_Canvas", x: float, y: float, width: float, height: float, shade: Floats, highest: float
) -> None:
    """Shares of the pixels over 0 to the bag's highest value; the colour scale is the axis."""
    bins = 32
    shares = np.histogram(shade, bins, (0, 1))[0] / max(1, shade.size)  # (bins,)
    tallest = int(shares.argmax())
    room, bar = height - 24, width / bins
    floor = y + height - 8
    canvas.picture(Image.fromarray(_inferno(np.linspace(0, 1, 256)[None])), x, floor + 2, width, 6)
    for number, share in enumerate(shares.tolist()):
        length = room * share / max(1e-9, float(shares[tallest]))
        red, green, blue = _inferno(np.array((number + 0.5) / bins)).tolist()
        if length > 0:
            canvas.rectangle(x + number * bar, floor - length, bar - 1, length, (red, green, blue))
    label = min(max(x + (tallest + 0.5) * bar, x + 16), x + width - 16)
    canvas.text(label, floor - room - 3, f"{shares[tallest]:.0%}", 12, GREY, anchor="ms")
    _scale_labels(canvas, x, y + height + 6, width, highest)


def _scale_labels(canvas: "_Canvas", x: float, y: float, width: float, highest: float) -> None:
    canvas.text(x, y, "0", 12, GREY)
    canvas.text(x + width, y, f"{highest:.2g}", 12, GREY, anchor="ra")


def _stack(parts: Sequence[Image.Image]) -> Image.Image:
    """Parts below each other. They are finished already: a long sheet at FINE size would take much memory."""
    gap = 28
    width = max((part.width for part in parts), default=0)
    height = sum(part.height + gap for part in parts) - (gap if parts else 0)
    sheet = Image.new("RGB", (width + 2 * MARGIN, height + 2 * MARGIN), WHITE)
    y = MARGIN
    for part in parts:
        sheet.paste(part, (MARGIN, y))
        y += part.height + gap
    return sheet


# --- colours


@lru_cache
def class_colours(count: int) -> tuple[Colour, ...]:
    """Distinct colours: Okabe and Ito's eight, then always the one farthest from all before, in OKLab.

    A class keeps its colour when others are added. Beyond about ten thousand classes, colours repeat.
    """
    if count <= len(OKABE_ITO):
        return OKABE_ITO[:count]
    levels = np.arange(4, 256, 8)
    lattice = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)  # (n, 3)
    lab = _oklab(lattice)  # (n, 3)
    chroma = np.hypot(lab[:, 1], lab[:, 2])  # (n,)
    calm = (lab[:, 0] > 0.4) & (lab[:, 0] < 0.86) & (chroma > 0.05) & (chroma < 0.17)  # (n,)
    lattice, lab = lattice[calm], lab[calm]
    first = _oklab(np.array((*OKABE_ITO, GREY, WHITE)))  # grey and white mean something else
    distance = np.min([np.linalg.norm(lab - colour, axis=1) for colour in first], axis=0)  # (n,)
    chosen = list(OKABE_ITO)
    while len(chosen) < min(count, len(lattice)):
        farthest = int(distance.argmax())
        red, green, blue = lattice[farthest].tolist()
        chosen.append((red, green, blue))
        distance = np.minimum(distance, np.linalg.norm(lab - lab[farthest], axis=1))  # (n,)
    return tuple(chosen[i % len(chosen)] for i in range(count))


def _oklab(rgb: NDArray[np.integer]) -> NDArray[np.float64]:
    """Björn Ottosson's OKLab of sRGB colours (n, 3)."""
    share = rgb / 255  # (n, 3)
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)  # (n, 3)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(np.cbrt(linear @ cones.T) @ opponents.T)  # (n, 3)


def _inferno(values: Floats) -> NDArray[np.uint8]:
    """Colours (..., 3) of values from 0 to 1."""
    stops = np.linspace(0, 1, len(INFERNO))
    channels = [np.interp(values, stops, INFERNO[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)  # (..., 3)


def _faded(colour: Colour, fade: float) -> Colour:
    """Nearer to white."""
    red, green, blue = (round(value + (255 - value) * fade) for value in colour)
    return red, green, blue


# --- text


@lru_cache
def _fonts(size: int) -> tuple[ImageFont.FreeTypeFont, ...]:
    """Pillow's own font, then widespread ones that know more letters, as far as they are installed."""
    own = ImageFont.load_default(size)
    assert isinstance(own, ImageFont.FreeTypeFont)
    fonts = [own]
    for name in ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "arial.ttf", "msyh.ttc"):
        try:
            fonts.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(fonts)


@lru_cache(4096)
def _lacks(font: ImageFont.FreeTypeFont, letter: str) -> bool:
    unknown = font.getmask("\uffff")
    mask = font.getmask(letter)
    return mask.size == unknown.size and bytes(mask) == bytes(unknown)


def _font_for(text: str, size: int) -> ImageFont.FreeTypeFont:
    """The first font that lacks the fewest letters."""
    return min(_fonts(size), key=lambda font: sum(_lacks(font, letter) for letter in set(text) - {" "}))


def one_line(text: str) -> str:
    """One line without control characters, which would move, turn or break it."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[:400]).split())


def _shortened(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """As much of the text as fits, with an ellipsis where something is missing."""
    if font.getlength(text) <= width:
        return text
    kept = len(text)
    while kept > 0 and font.getlength(text[:kept].rstrip() + "…") > width:
        kept -= 1
    return text[:kept].rstrip() + "…"


# --- drawing


class _Canvas:
    """White paper. All lengths are pixels of the finished picture; the paper itself is FINE times as large."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = max(1, math.ceil(width)), max(1, math.ceil(height))
        self.paper = Image.new("RGB", (self.width * FINE, self.height * FINE), WHITE)
        self.pen = ImageDraw.Draw(self.paper)

    def finish(self) -> Image.Image:
        return self.paper.resize((self.width, self.height), Image.Resampling.LANCZOS)

    def text(
        self, x: float, y: float, text: str, size: int, colour: Colour = INK, *, anchor: str = "la", width: float = 1e9
    ) -> None:
        """A line of text, shortened to a width."""
        line = one_line(text)
        font = _font_for(line, size * FINE)
        self.pen.text((x * FINE, y * FINE), _shortened(line, font, width * FINE), colour, font, anchor)

    def heading(self, title: str, subtitle: str, width: float, margin: float = MARGIN) -> None:
        self.text(margin, margin, title, 22, width=width)
        self.text(margin, margin + 31, subtitle, 14, GREY, width=width)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        self.pen.rectangle(_corners(x, y, x + width, y + height), colour)

    def rounded(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        radius: float,
        colour: Colour | None,
        edge: Colour | None = None,
        line: float = 0,
    ) -> None:
        corners = _corners(x, y, x + width, y + height)
        self.pen.rounded_rectangle(corners, radius * FINE, colour, edge, round(line * FINE))

    def polygon(self, points: Iterable[tuple[float, float]], colour: Colour) -> None:
        self.pen.polygon([(x * FINE, y * FINE) for x, y in points], colour)

    def outline(self, box: Floats, colour: Colour, line: float = 1.5) -> None:
        """The outline of a box (4,), with a dark seam on both sides that keeps it visible on any picture."""
        x1, y1, x2, y2 = np.asarray(box, np.float64).tolist()
        if x2 <= x1 or y2 <= y1:
            return
        for half, shade in ((line / 2 + 0.5, INK), (line / 2, colour)):
            corners = _corners(x1 - half, y1 - half, x2 + half, y2 + half)
            self.pen.rectangle(corners, outline=shade, width=round(2 * half * FINE))

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        self.pen.ellipse(_corners(x - radius, y - radius, x + radius, y + radius), colour)

    def pie(self, x: float, y: float, radius: float, shares: Floats, colours: Sequence[Colour]) -> None:
        """Slices clockwise from the top, largest first; those too small to see are one grey slice."""
        self.disc(x, y, radius, LINE)
        slices = _slices(shares)  # (C,)
        corners = _corners(x - radius, y - radius, x + radius, y + radius)
        order = np.argsort(-slices, kind="stable")[: int((slices > 0).sum())]  # (S,)
        ends = np.cumsum(slices[order])  # (S,)
        for number, end in zip(order.tolist(), ends.tolist(), strict=True):
            start = end - float(slices[number])
            self.pen.pieslice(corners, 360 * start - 90, 360 * end - 90, colours[number])
        if radius < 12 or slices.max(initial=0) > 0.995:
            return
        for turn in (0.0, *ends.tolist()):
            tip = x + radius * math.sin(2 * math.pi * turn), y - radius * math.cos(2 * math.pi * turn)
            self.pen.line((x * FINE, y * FINE, tip[0] * FINE, tip[1] * FINE), WHITE, FINE)

    def picture(
        self, image: Image.Image, x: float, y: float, width: float, height: float, radius: float = 0, fade: float = 0.0
    ) -> None:
        """A picture, stretched to a size."""
        size = max(1, round(width * FINE)), max(1, round(height * FINE))
        fitted = _rgb(image).resize(size, Image.Resampling.LANCZOS, reducing_gap=3)
        if fade:
            fitted = Image.blend(fitted, Image.new("RGB", size, WHITE), fade)
        self.paper.paste(fitted, (round(x * FINE), round(y * FINE)), _rounded_mask(size, round(radius * FINE)))


def _corners(x1: float, y1: float, x2: float, y2: float) -> Box:
    """On the paper, at least a pixel; Pillow's right and bottom edges are part of the shape."""
    left, top = round(x1 * FINE), round(y1 * FINE)
    return left, top, max(left, round(x2 * FINE) - 1), max(top, round(y2 * FINE) - 1)


@lru_cache(16)
def _rounded_mask(size: tuple[int, int], radius: int) -> Image.Image:
    mask = Image.new("L", size, 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, size[0] - 1, size[1] - 1), radius, 255)
    return mask


def _rgb(image: Image.Image) -> Image.Image:
    """RGB, at least a pixel: a crop of a thin box may be empty."""
    return image.convert("RGB") if min(image.size) > 0 else Image.new("RGB", (1, 1), PAPER)


def _fit(image: Image.Image, width: float, height: float) -> tuple[float, float]:
    """Size of an image that fits into a frame, its shape kept."""
    scale = min(width / max(1, image.width), height / max(1, image.height))
    return max(1.0, image.width * scale), max(1.0, image.height * scale)


def _slices(shares: Floats) -> NDArray[np.float64]:
    """Shares (C,) that sum to at most 1, without the ones too small to see."""
    positive = np.clip(np.nan_to_num(np.asarray(shares, np.float64), posinf=0, neginf=0), 0, None)  # (C,)
    parts = positive / max(1e-12, float(positive.sum()))  # (C,)
    return np.where(parts >= SMALLEST_SHARE, parts, 0.0)  # (C,)
