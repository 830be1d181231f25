"""What a data set has, in lines to read."""

import numpy as np

from somnet.data.dataset import DataSet, copies_held_out, first_reasons, unreadable_count
from somnet.data.duplicates import later_members
from somnet.system.files import display_name, some


def describe(data: DataSet, images_per_bag: int) -> list[str]:
    """What was found, as lines to read: classes, counts, bad files, classes too small for a bag."""
    counts = np.bincount(data.train.labels, minlength=len(data.classes))
    present = counts[counts > 0]
    lines = [
        f"{data.path}: {len(data.classes)} classes",
        f"train: {len(data.train)} images, {present.min()} to {present.max()} per class",
        f"test: {len(data.test)} images" if data.test else "test: none, so no accuracy will be measured",
    ]
    if data.train.weights is not None:
        lowest, highest = data.train.weights.min(), data.train.weights.max()
        lines.append(f"weights: {lowest:.2f} to {highest:.2f}, by which training images count")
    boxes = data.train.scan.counts
    if data.train.vectors is not None:
        lines.append(f"vectors of {data.train.vectors.shape[1]} numbers, given for each image")
    else:
        lines.append(f"boxes: {boxes.mean():.1f} per image, {int((boxes == 0).sum())} images without any")
    if passed_over := list(data.train.index.passed_over):
        lines.append(f"warning: folders with images are left out: {some(passed_over)}")
    if nothing := list(data.train.index.empty):
        lines.append(f"warning: no image at all in {some(nothing)}: left out")
    if beside := list(data.train.index.beside):
        lines.append(
            f"warning: not read, as beside the class folders: {some(beside)}; unpack archives into such folders"
        )
    if empty := [data.classes[i] for i in np.flatnonzero(counts == 0)]:
        lines.append(f"warning: no training image of {some(empty)}: the model will never predict it")
    if small := [
        f"'{data.classes[i]}' ({counts[i]})" for i in np.flatnonzero((counts > 0) & (counts < images_per_bag))
    ]:
        lines.append(f"warning: fewer images than the {images_per_bag} of a bag: {some(small)}; they are used anyway")
    if (data.train.groups >= 0).any():
        if copies := int(later_members(data.train.groups).sum()):
            lines.append(f"duplicates: {copies:,} among the training images")
        copied = copies_held_out(data).file_names
        names = data.train.index.table["file_name"].filter(copied.is_valid()).to_pylist()
        pairs = zip(map(display_name, names), copied.drop_null().to_pylist(), strict=True)
        if leaks := [f"{train} = {test}" for train, test in pairs]:
            lines.append(f"warning: {len(leaks)} leaks, images that are both trained and tested on: {some(leaks)}")
    if data.unreadable:
        files = unreadable_count(len(data.unreadable))
        lines.append(f"warning: left out: {files}{first_reasons(data.unreadable)}")
    return lines
