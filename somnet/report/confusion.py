"""What a model takes for what: a table, a picture of the matrix, and the files that it gets wrong."""

import csv
from html import escape
from pathlib import Path

from somnet.runs.run import Evaluation
from somnet.system.files import atomic_path, csv_cell, screen_text, write_text
from somnet.system.folders import refuse_taken

WRONG, MATRIX, PICTURE = "wrong.csv", "confusion.csv", "confusion.svg"
CELL, LARGEST = 22, 900  # pixels, of a cell and of the whole matrix
MOST_NAMED = 80  # classes whose names fit beside the matrix
LETTER = 6.2  # pixels, about, of a letter
LONGEST = 24  # letters of a name


def check_place(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that has something else."""

    def ours() -> bool:
        names = {file.name for file in out.iterdir()}
        return bool(names) and names <= {WRONG, MATRIX, PICTURE}

    refuse_taken(out, "an evaluation", ours=ours, meant=overwrite, how="--overwrite to replace it", replaced=True)


def write_evaluation(result: Evaluation, out: Path) -> None:
    """wrong.csv, confusion.csv and confusion.svg. No cell starts a formula."""
    write_wrong(result, out / WRONG)
    with atomic_path(out / MATRIX) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("label", *map(csv_cell, result.classes)))
        for name, row in zip(result.classes, result.matrix.tolist(), strict=True):
            table.writerow((csv_cell(name), *row))
    write_text(out / PICTURE, matrix_picture(result))


def write_wrong(result: Evaluation, out: Path) -> None:
    """A row for each image whose most probable class is not its label."""
    with atomic_path(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("file_name", "label", "predicted_label", "probability"))
        for image in result.wrong:
            cells = map(csv_cell, (image.file_name, image.label, image.predicted_label))
            table.writerow((*cells, f"{image.probability:.6f}"))


def matrix_picture(result: Evaluation) -> str:
    """The confusion matrix as SVG: a row for each label, the darker the larger its share of the row."""
    count = len(result.classes)
    cell = min(CELL, LARGEST / count)
    named = count <= MOST_NAMED
    names = [_short(name) for name in result.classes]
    margin = 30 + (LETTER * max(map(len, names)) if named else 0)
    side = margin + cell * count + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side:.0f} {side:.0f}" width="{side:.0f}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{margin:.0f}" y="14" font-weight="bold">predicted, by columns; label, by rows</text>',
    ]
    for i, row in enumerate(result.matrix.tolist()):
        y = margin + i * cell
        if named:
            parts.append(
                f'<text x="{margin - 6:.1f}" y="{y + cell * 0.7:.1f}" text-anchor="end">{escape(names[i])}</text>'
            )
            place = f"{margin + i * cell + cell * 0.7:.1f} {margin - 6:.1f}"
            parts.append(f'<text transform="translate({place}) rotate(-90)">{escape(names[i])}</text>')
        for j, images in enumerate(row):
            share = images / max(sum(row), 1)
            colour = "#1a7f4b" if i == j else "#c0392b"
            title = f"{result.classes[i]} taken for {result.classes[j]}: {images}"
            parts.append(
                f'<rect x="{margin + j * cell:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="{colour}" '
                f'fill-opacity="{share:.3f}" stroke="#ddd"><title>{escape(screen_text(title))}</title></rect>'
            )
            if images and cell >= CELL:
                x, ink = margin + (j + 0.5) * cell, "white" if share > 0.5 else "black"
                middle = f'text-anchor="middle" fill="{ink}"'
                parts.append(f'<text x="{x:.1f}" y="{y + cell * 0.7:.1f}" {middle}>{images}</text>')
    return "\n".join(parts) + "</svg>\n"


def _short(name: str) -> str:
    name = screen_text(name)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
