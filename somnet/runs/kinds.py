"""What can be wrong with a training image: a flag each in issues.parquet, and a plain sentence that says why.

An image may have several of them. Whoever counts, lists or explains them asks here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from somnet.data.picture_quality import FAULTS

KINDS = {  # the gravest last; their columns
    "duplicate": "is_near_duplicate_issue",
    "poor": "is_poor_picture_issue",
    "background": "is_background_issue",
    "test-leak": "is_test_leak_issue",
    "outlier": "is_outlier_issue",
    "label": "is_label_issue",
    "unreadable": "is_unreadable_issue",
}
AT_ONCE = 10_000  # images whose reasons are written at a time
_NAMES = {  # of one, of several
    "duplicate": ("duplicate", "duplicates"),
    "poor": ("poor picture", "poor pictures"),
    "background": ("small among clutter", "small among clutter"),
    "test-leak": ("leak into test", "leaks into test"),
    "outlier": ("outlier", "outliers"),
    "label": ("wrong label", "wrong labels"),
    "unreadable": ("unreadable", "unreadable"),
}


def flags(images: pa.Table, kind: str) -> NDArray[np.bool_]:
    """Which of the images (n,) have it; none where the run is too old to tell."""
    if KINDS[kind] not in images.column_names:
        return np.zeros(images.num_rows, bool)
    return np.asarray(images[KINDS[kind]].fill_null(False).to_numpy(zero_copy_only=False), bool)


def count_kinds(images: pa.Table) -> dict[str, int]:
    """How many images have each kind."""
    return {kind: int(flags(images, kind).sum()) for kind in KINDS}


def counted_kinds(images: pa.Table) -> str:
    """How many images have each kind, the gravest first, as words."""
    counts = count_kinds(images)
    found = [f"{counts[kind]:,} {_NAMES[kind][counts[kind] > 1]}" for kind in reversed(KINDS) if counts[kind]]
    return ", ".join(found) or "no issues"


def explain(images: pa.Table) -> list[dict[str, str]]:
    """For each image, why it has each of its kinds, the gravest first; nothing for one that has none."""
    found: list[dict[str, str]] = [{} for _ in range(images.num_rows)]
    if images.num_rows == 0:
        return found
    rows = images.to_pylist()
    for kind in reversed(KINDS):
        for number in np.flatnonzero(flags(images, kind)).tolist():
            found[number][kind] = _SENTENCES[kind](rows[number])
    return found


def with_reasons(images: pa.Table) -> pa.Table:
    """The table with these sentences in a last column, `reasons`; empty for images that have none."""
    said = np.full(images.num_rows, None, object)
    rows = np.flatnonzero(np.any([flags(images, kind) for kind in KINDS], axis=0))
    needed = images.select([name for name in images.column_names if name != "clean_box"])
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        said[some] = [" ".join(found.values()) for found in explain(needed.take(pa.array(some)))]
    return images.append_column("reasons", pa.array(said, pa.string()))


def percent(share: float | None) -> str:
    """A share as text: 4 %."""
    shown = 100 * (share or 0.0)
    return f"{shown:.0f} %" if shown >= 1 else "less than 1 %"


def _duplicate(row: dict[str, Any]) -> str:
    return "An earlier training image shows the same; one copy is enough."


def _poor(row: dict[str, Any]) -> str:
    named = [fault.words for name, fault in FAULTS.items() if name in row["poor_picture_reason"].split(", ")]
    return f"Poor picture: {', and '.join(named)}."


def _background(row: dict[str, Any]) -> str:
    given, predicted = row["given_label"], row["predicted_label"]
    doubt = "" if given == predicted else f", or maybe “{predicted}”"
    return (
        f"“{given}” seems to be there{doubt}, but small among clutter: in the whole image it is only "
        f"{percent(row['background_score'])} as probable as in its best region."
    )


def _test_leak(row: dict[str, Any]) -> str:
    same = "is" if row["test_leak_score"] == 0 else "is nearly"
    return f"It {same} the test image {row['test_leak_of']}: training on it makes the accuracy look too good."


def _outlier(row: dict[str, Any]) -> str:
    return "Probably none of the classes: it is less like any of them than their own images are."


def _label(row: dict[str, Any]) -> str:
    other = row.get("suggested_label")
    instead = f" and are sure of “{other}”" if other else ""
    score = percent(row["label_score"])
    return f"Probably not “{row['given_label']}”: the other images give this label {score}{instead}."


def _unreadable(row: dict[str, Any]) -> str:
    return f"It cannot be read: {row['unreadable_reason']}."


_SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "duplicate": _duplicate,
    "poor": _poor,
    "background": _background,
    "test-leak": _test_leak,
    "outlier": _outlier,
    "label": _label,
    "unreadable": _unreadable,
}
