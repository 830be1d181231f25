"""Cleaned training images in the formats of other tools, with converters for their boxes."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from somnet.system.files import csv_cell, link_or_copy, write_json, write_text

Box = tuple[float, float, float, float]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not even escaped


@dataclass(frozen=True)
class Labelled:
    """A kept training image: where it lies in the cleaned folder, and what is known of it."""

    file_name: str
    label: str
    width: int
    height: int
    box: Box  # x1 y1 x2 y2, pixels, upright
    score: float


def to_fiftyone(box: Box, width: int, height: int) -> Box:
    """x, y, width, height as shares of the image."""
    x1, y1, x2, y2 = box
    return x1 / width, y1 / height, (x2 - x1) / width, (y2 - y1) / height


def to_coco(box: Box) -> Box:
    """x, y, width, height in pixels."""
    x1, y1, x2, y2 = box
    return x1, y1, x2 - x1, y2 - y1


def to_label_studio(box: Box, width: int, height: int) -> Box:
    """x, y, width, height in percent of the image."""
    x, y, wide, high = to_fiftyone(box, width, height)
    return 100 * x, 100 * y, 100 * wide, 100 * high


def write_fiftyone(folder: Path, images: Sequence[Labelled], classes: Sequence[str]) -> None:
    """fiftyone/ with data/ and labels.json: a FiftyOneImageDetectionDataset."""
    number = {name: i for i, name in enumerate(classes)}
    labels = {}
    for image in images:
        stem, suffix = os.path.splitext(image.file_name)
        # FiftyOne tells images from other media by their suffixes, and refuses a mixture; what shows them looks inside.
        suffix = suffix if suffix.lower() in IMAGE_SUFFIXES else ".jpg"
        link_or_copy(folder / image.file_name, folder / "fiftyone" / "data" / (stem + suffix))
        detection = {
            "label": number[image.label],
            "bounding_box": to_fiftyone(image.box, image.width, image.height),
            "confidence": image.score,
            "attributes": {},
        }
        labels[stem] = [detection]
    write_json(folder / "fiftyone" / "labels.json", {"classes": list(classes), "labels": labels})


def write_coco(folder: Path, images: Sequence[Labelled], classes: Sequence[str]) -> None:
    """coco.json: an image and one object each; file names are relative to the cleaned folder."""
    number = {name: i for i, name in enumerate(classes, start=1)}
    annotations = []
    for place, image in enumerate(images, start=1):
        x, y, width, height = to_coco(image.box)
        annotations.append(
            {
                "id": place,
                "image_id": place,
                "category_id": number[image.label],
                "bbox": [x, y, width, height],
                "area": width * height,
                "iscrowd": 0,
                "score": image.score,
            }
        )
    listed = [
        {"id": place, "file_name": image.file_name, "width": image.width, "height": image.height}
        for place, image in enumerate(images, start=1)
    ]
    categories = [{"id": place, "name": name} for name, place in number.items()]
    write_json(folder / "coco.json", {"images": listed, "annotations": annotations, "categories": categories})


def write_label_studio(folder: Path, images: Sequence[Labelled], classes: Sequence[str]) -> None:
    """tasks.json with predictions, and labels.xml, the labelling interface they fit."""
    tasks = [
        {
            "data": {"image": "/data/local-files/?d=" + quote(image.file_name)},
            "predictions": [{"model_version": "somnet", "score": image.score, "result": _label_studio_result(image)}],
        }
        for image in images
    ]
    write_text(folder / "label-studio" / "tasks.json", json.dumps(tasks, indent=1) + "\n")
    # Label Studio looks for name="..." in the text, whatever surrounds it: quotes are escaped always.
    values = [quoteattr(_label_studio_name(name), {'"': "&quot;"}) for name in classes]
    choices = "".join(f"<Choice value={value}/>" for value in values)
    labels = "".join(f"<Label value={value}/>" for value in values)
    interface = (
        f'<View><Image name="image" value="$image"/><Choices name="class" toName="image">{choices}</Choices>'
        f'<RectangleLabels name="region" toName="image">{labels}</RectangleLabels></View>\n'
    )
    write_text(folder / "label-studio" / "labels.xml", interface)


def _label_studio_result(image: Labelled) -> list[dict[str, Any]]:
    x, y, width, height = to_label_studio(image.box, image.width, image.height)
    frame = {"original_width": image.width, "original_height": image.height, "image_rotation": 0}
    place = {"x": x, "y": y, "width": width, "height": height, "rotation": 0}
    region = {"id": "r", "from_name": "region", "to_name": "image", "type": "rectanglelabels", **frame}
    choice = {"id": "c", "from_name": "class", "to_name": "image", "type": "choices"}
    name = _label_studio_name(image.label)
    # The region first: Label Studio's export to VOC takes the size of the image from the first result, or skips it.
    return [
        {**region, "value": {**place, "rectanglelabels": [name]}},
        {**choice, "value": {"choices": [name]}},
    ]


def _label_studio_name(label: str) -> str:
    """The name of a class in the interface, which is XML: characters that it cannot hold are shown as \\xNN."""
    return NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), label)


ANNOTATIONS: Mapping[str, Callable[[Path, Sequence[Labelled], Sequence[str]], None]] = {
    "fiftyone": write_fiftyone,
    "coco": write_coco,
    "label-studio": write_label_studio,
}


def write_cleanlab(folder: Path, scores: pa.Table) -> None:
    """The issues of every image of the run, removed ones too, with the columns of cleanlab's Datalab."""
    columns = ["is_label_issue", "label_score", "given_label", "predicted_label", "is_near_duplicate_issue"]
    newer = ("is_outlier_issue", "outlier_score", "near_duplicate_score")  # not in runs of older versions
    columns += [name for name in newer if name in scores.column_names]
    table = scores.select([*columns, "file_name"])
    target = folder / "cleanlab"
    target.mkdir()
    pq.write_table(table, target / "issues.parquet")
    for name in ("given_label", "predicted_label", "file_name"):
        safe = pa.array([text and csv_cell(text) for text in table[name].to_pylist()], pa.string())
        table = table.set_column(table.schema.get_field_index(name), name, safe)
    pa.csv.write_csv(table, target / "issues.csv")
