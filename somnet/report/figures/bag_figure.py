"""Bags of images: which ROIs keep their weight, and where it lies."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from somnet.report.figures.canvas import FINE, HEADING, Canvas, Floats, fit, rgb, stack
from somnet.report.figures.colours import GREY, inferno
from somnet.report.figures.heat import colour_scale, heat_map, overlay


@dataclass(frozen=True)
class BagView:
    """A bag and the weights of its ROIs."""

    label: str
    images: Sequence[Image.Image]
    boxes: Sequence[Floats]  # (P, 4) each, xyxy, pixels of the image
    weights: Sequence[Floats]  # (P,) each; they sum to 1 over the bag, 0 where dropped
    keep: float  # share of the bag's ROIs that keep their weight
    notes: Sequence[str] = ()  # a line below each image


def bag_figure(bags: Sequence[BagView]) -> Image.Image:
    """Bags, their kept ROIs, the heat maps of the ROI weights, and the heat maps' histograms (Figure 4)."""
    return stack([_bag(bag) for bag in bags])


def _bag(bag: BagView) -> Image.Image:
    """One bag: a row for each image."""
    side, gap, titles = 236, 26, 30
    step = side + gap
    sizes = [fit(image, side, side) for image in bag.images]
    heats = [
        _display_heat(image, boxes, weights, size)
        for image, boxes, weights, size in zip(bag.images, bag.boxes, bag.weights, sizes, strict=True)
    ]
    highest = max((float(heat.max(initial=0)) for heat in heats), default=0.0)
    heights = [max(height, 130) + 46 for _, height in sizes]  # a histogram needs room; below are the notes
    canvas = Canvas(4 * step - gap, HEADING + titles + sum(heights) + 26)
    images = f"{len(bag.images)} image" + ("s" if len(bag.images) != 1 else "")
    canvas.heading(bag.label, f"A bag of {images}; the top {bag.keep:.0%} of its ROIs keep their weight", 4 * step, 0)
    for column, title in enumerate(("Image", "Kept ROIs", "Heat map of ROI weights", "Histogram of the heat map")):
        canvas.text(column * step, HEADING, title, 14, width=side)

    y: float = HEADING + titles
    heaviest = max((float(np.max(weights, initial=0)) for weights in bag.weights), default=0.0)
    for number, (image, (width, height), heat) in enumerate(zip(bag.images, sizes, heats, strict=True)):
        weights = np.asarray(bag.weights[number], np.float64)  # (P,)
        shade = heat / (highest or 1.0)  # (H, W)
        pictures = image, _kept_rois(image, bag.boxes[number], weights, width, height, heaviest), overlay(image, shade)
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
    canvas.picture(colour_scale(), 2 * step, y - 8, side, 9, 4)
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
    view = Canvas(width, height)
    if not (weights > 0).any():
        view.picture(rgb(image).convert("L"), 0, 0, width, height, fade=0.65)
        view.text(width / 2, height / 2, "removed", 20, anchor="mm", width=width)
        return view.paper
    view.picture(image, 0, 0, width, height)
    scale = np.array([width / max(1, image.width), height / max(1, image.height)] * 2)  # (4,)
    for number in np.argsort(weights)[-int((weights > 0).sum()) :]:
        box = np.clip(boxes[number] * scale, 2, np.array([width, height] * 2) - 2)  # (4,)
        red, green, blue = inferno(0.4 + 0.6 * weights[number] / heaviest).tolist()
        view.outline(box, (red, green, blue))
    return view.paper


def _histogram(canvas: Canvas, x: float, y: float, width: float, height: float, shade: Floats, highest: float) -> None:
    """Shares of the pixels over 0 to the bag's highest value; the colour scale is the axis."""
    bins = 32
    shares = np.histogram(shade, bins, (0, 1))[0] / max(1, shade.size)  # (bins,)
    tallest = int(shares.argmax())
    room, bar = height - 24, width / bins
    floor = y + height - 8
    canvas.picture(colour_scale(), x, floor + 2, width, 6)
    for number, share in enumerate(shares.tolist()):
        length = room * share / max(1e-9, float(shares[tallest]))
        red, green, blue = inferno(np.array((number + 0.5) / bins)).tolist()
        if length > 0:
            canvas.rectangle(x + number * bar, floor - length, bar - 1, length, (red, green, blue))
    label = min(max(x + (tallest + 0.5) * bar, x + 16), x + width - 16)
    canvas.text(label, floor - room - 3, f"{shares[tallest]:.0%}", 12, GREY, anchor="ms")
    _scale_labels(canvas, x, y + height + 6, width, highest)


def _scale_labels(canvas: Canvas, x: float, y: float, width: float, highest: float) -> None:
    """The ends of a colour scale in numbers."""
    canvas.text(x, y, "0", 12, GREY)
    canvas.text(x + width, y, f"{highest:.2g}", 12, GREY, anchor="ra")
