"""Pictures of where a network saw the evidence for its predictions."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from somnet.data.decode import read_picture
from somnet.errors import RunError, UnreadableImage
from somnet.report.figures.evidence_figure import evidence_figure
from somnet.runs.prediction import Prediction
from somnet.system.files import atomic_path, display_name
from somnet.system.parallel import in_threads

SIDE = 480  # longest side of an image in its picture
AHEAD = 16  # pictures drawn before they are asked for
LONGEST_NAME = 150  # bytes: file systems take 255, and a temporary name is longer


def with_heatmaps(predictions: Iterable[Prediction], folder: Path) -> Iterator[Prediction]:
    """Draw the evidence of each prediction into a new folder; the predictions come back with the name of their file."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} exists and is not empty: give another folder for the heat maps")
    taken: set[str] = set()

    def named() -> Iterator[tuple[Prediction, Path]]:
        for prediction in predictions:
            yield prediction, folder / _free_name(prediction.file_name, taken)

    yield from in_threads(_draw, named(), AHEAD)


def _draw(task: tuple[Prediction, Path]) -> Prediction:
    prediction, file = task
    if prediction.evidence is None:
        return prediction
    try:
        image = read_picture(prediction.file_name, at_least=SIDE).image
    except UnreadableImage:  # it could be read a moment ago
        return prediction
    figure = evidence_figure(image, prediction.evidence, prediction.labels[0], prediction.probabilities[0], side=SIDE)
    with atomic_path(file) as temporary:
        figure.save(temporary, "JPEG", quality=90)
    return replace(prediction, heatmap=str(file))


def _free_name(image: str, taken: set[str]) -> str:
    """The image's own name as .jpg, with a number where it is taken; also on disks that ignore upper and lower case."""
    text = display_name(os.fsencode(Path(image).stem)).replace("\\", "_")
    stem = text.encode()[:LONGEST_NAME].decode(errors="ignore")
    name, number = f"{stem}.jpg", 2
    while name.casefold() in taken:
        name, number = f"{stem}-{number}.jpg", number + 1
    taken.add(name.casefold())
    return name
