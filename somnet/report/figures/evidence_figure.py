"""Predictions: where in an image the evidence for its class lies."""

import numpy as np
from PIL import Image

from somnet.report.figures.canvas import FINE, HEADING, Canvas, Floats, fit
from somnet.report.figures.colours import GREY
from somnet.report.figures.heat import colour_scale, overlay


def evidence_figure(image: Image.Image, evidence: Floats, label: str, probability: float, *, side: int) -> Image.Image:
    """An image beside the evidence (H, W) for its predicted class, of which only what is above 0 is shown."""
    width, height = fit(image, side, side)
    step, margin, foot = max(width, 200) + 20, 20, 46
    canvas = Canvas(2 * step - 20 + 2 * margin, height + HEADING + foot + 2 * margin)
    canvas.heading(label, f"predicted with a probability of {probability:.1%}", 2 * step - 20, margin)
    top, right = margin + HEADING, margin + step
    highest = float(np.max(evidence, initial=0))
    lit = evidence_overlay(image, evidence, round(width * FINE), round(height * FINE))
    canvas.picture(image, margin, top, width, height, 6)
    canvas.picture(lit, right, top, width, height, 6)
    canvas.picture(colour_scale(), right, top + height + 10, step - 20, 9, 4)
    canvas.text(right, top + height + 26, "no evidence for it", 12, GREY)
    canvas.text(right + step - 20, top + height + 26, f"strong (+{highest:.1f})", 12, GREY, anchor="ra")
    return canvas.finish()


def evidence_overlay(image: Image.Image, evidence: Floats, width: int, height: int) -> Image.Image:
    """An image of that size in the colours of the evidence (H, W), the strongest of which is the brightest."""
    cells = Image.fromarray(np.asarray(evidence, np.float32))
    smooth = cells.resize((width, height), Image.Resampling.BICUBIC)
    return overlay(image, np.clip(np.asarray(smooth) / (float(np.max(evidence, initial=0)) or 1.0), 0, 1))
