"""Images that show the same picture, side by side on the cards: copies in the training images, and leaks."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from somnet.report.originals import Originals
from somnet.report.overview import Copies
from somnet.report.records import Records
from somnet.report.thumbnails import write_held_out

MOST = 8  # twins on a card
MOST_PICTURES = 2000  # of held-out images

Twins = dict[int, list[dict[str, Any]]]  # row -> the other files of its group


def write_twins(records: Records, groups: list[Copies], originals: Originals, folder: Path) -> Twins:
    """What the cards tell of groups of copies, with pictures of those that are not trained on."""
    names = sorted({name for group in groups for name, _, _ in group.files})
    is_twin = pc.is_in(records.table["file_name"], value_set=pa.array(names, pa.string()))
    rows = np.flatnonzero(is_twin.to_numpy())[::-1]  # so that of equal names the first counts
    row_of = dict(zip(records.names(rows), rows.tolist(), strict=True))
    others = [name for name in names if name not in row_of][:MOST_PICTURES]
    pictures = write_held_out(others, originals, folder)
    twins: Twins = {}
    for group in groups:
        told: list[dict[str, Any]] = [
            {
                "row": row_of.get(name) if split == "train" else None,
                "name": name,
                "split": split,
                "label": label,
                "picture": pictures.get(name),
            }
            for name, split, label in group.files
        ]
        for mine in told:
            if mine["row"] is not None:
                others_first = sorted(told, key=lambda one: one["split"] == "train")  # leaks are graver than copies
                twins[mine["row"]] = [other for other in others_first if other is not mine][:MOST]
    return twins
