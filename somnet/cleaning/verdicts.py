"""What becomes of each training image when a data set is cleaned: pure decisions from the scores, no file touched."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from somnet.errors import ConfigError
from somnet.system.files import csv_text

Policy = Literal["drop", "crop", "reweight", "relabel"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
SURE = 0.7  # predicted_score from which on a label is replaced
NEARLY_CLEAN = 0.08  # share of images predicted otherwise below which the data count as clean
UNIFORM_SEPARABILITY = 0.75  # Otsu's separability of a uniform distribution: two groups have more
MOST_PER_DISAGREEMENT = 3  # images removed for each one predicted otherwise: a model memorises some wrong labels
KEEP, DROP, RELABEL = "keep", "drop", "relabel"


@dataclass(frozen=True)
class Decision:
    """What a person decided about an image."""

    action: str  # keep, drop or relabel
    label: str | None = None


@dataclass(frozen=True)
class Verdicts:
    """What becomes of the n images of a run, in the order of its scores."""

    reasons: list[str | None]  # why an image is removed: unreadable, label, duplicate, decision; None: it stays
    details: list[str]  # the reason in numbers or words
    labels: list[str | None]  # given or new
    weights: NDArray[np.float64]  # (n,)
    threshold: float | None  # label_score below it is a wrong label; None: only what is_label_issue says


def choose_threshold(score: NDArray[np.float64], disagrees: NDArray[np.bool_]) -> float | None:
    """Where to cut the label scores (n,) of readable images; None where they do not form two groups.

    The cut is the one between the two groups of the scores' log-odds, but no more than three images are removed for
    each one that the model would label otherwise. Clutter and hard images make one broad group: cutting it would cost
    right images.
    """
    if disagrees.mean() < NEARLY_CLEAN:
        return None
    bounded = np.clip(score, 1e-4, 1 - 1e-4)
    cut, separability = _otsu(np.log(bounded / (1 - bounded)))
    if separability <= UNIFORM_SEPARABILITY:
        return None
    most = min(MOST_PER_DISAGREEMENT * int(disagrees.sum()), len(score) - 1)
    return float(min(1 / (1 + np.exp(-cut)), np.sort(score)[most]))


def _otsu(values: NDArray[np.float64]) -> tuple[float, float]:
    """Otsu's threshold, the cut with the largest variance between the two sides, and its share of all variance."""
    counts, edges = np.histogram(values, bins=256)
    middle, share = (edges[:-1] + edges[1:]) / 2, counts / counts.sum()
    below, mean = np.cumsum(share), np.cumsum(share * middle)
    between = (mean[-1] * below - mean) ** 2 / np.maximum(below * (1 - below), 1e-9)
    best = int(np.argmax(between))
    variance = float(share @ (middle - mean[-1]) ** 2)
    return float(edges[1 + best]), float(between[best]) / max(variance, 1e-9)


def judge(
    scores: pa.Table,
    policy: Policy,
    *,
    threshold: float | None = None,
    max_drop_per_class: float = 0.5,
    decisions: Mapping[str, Decision] | None = None,
) -> Verdicts:
    """Which images of a run's scores stay, with which label and weight."""
    count = scores.num_rows
    names, given = scores["file_name"].to_pylist(), scores["given_label"].to_pylist()
    predicted = scores["predicted_label"].to_pylist()
    readable = ~flags(scores, "is_unreadable_issue")
    score = _numbers(scores, "label_score")
    decided = [(decisions or {}).get(name) for name in names]
    free = readable & np.array([decision is None for decision in decided], bool)
    disagrees = np.array([mine != theirs for mine, theirs in zip(given, predicted, strict=True)], bool) & readable
    if threshold is None and readable.any():
        threshold = choose_threshold(score[readable], disagrees[readable])
    doubted = free & (flags(scores, "is_label_issue") if threshold is None else score < threshold)
    labels: list[str | None] = list(given)
    reasons: list[str | None] = [None if good else "unreadable" for good in readable]
    details = [reason or "" for reason in scores["unreadable_reason"].to_pylist()]

    for row, decision in enumerate(decided):
        if decision is not None and readable[row]:
            if decision.action == DROP:
                reasons[row] = "decision"
            elif decision.action == RELABEL:
                labels[row] = decision.label
    if policy == "relabel":
        sure = doubted & disagrees & (_numbers(scores, "predicted_score") >= SURE)
        for row in np.flatnonzero(sure).tolist():
            labels[row] = predicted[row]
        doubted &= ~sure
    if policy != "reweight":
        for row in _worst(doubted, score, given, readable, max_drop_per_class):
            reasons[row] = "label"
            details[row] = f"looks like {predicted[row]}" if disagrees[row] else "its score is below the threshold"
        for row, kept in _copies(scores, score, reasons, free):
            reasons[row], details[row] = "duplicate", f"of {names[kept]}"
    _keep_classes(reasons, details, labels, score)
    weights = np.where(readable, score, 0.0) if policy == "reweight" else np.ones(count)
    return Verdicts(reasons, details, labels, weights, threshold)


def _numbers(scores: pa.Table, name: str) -> NDArray[np.float64]:
    """A column of numbers (n,), 0 where it is empty or the run is too old to have it."""
    if name not in scores.column_names:
        return np.zeros(scores.num_rows)
    return np.asarray(scores[name].fill_null(0.0).to_numpy(), np.float64)


def flags(scores: pa.Table, name: str) -> NDArray[np.bool_]:
    """A column of flags (n,), False where it is empty."""
    return np.asarray(scores[name].fill_null(False).to_numpy(zero_copy_only=False), bool)


def _worst(
    doubted: NDArray[np.bool_],
    score: NDArray[np.float64],
    given: list[str | None],
    readable: NDArray[np.bool_],
    max_drop_per_class: float,
) -> list[int]:
    """Doubted rows, of each class no more than its share: the worst of them."""
    classes, number = np.unique([str(label) for label in given], return_inverse=True)
    going: list[int] = []
    for label in range(len(classes)):
        rows = np.flatnonzero(doubted & (number == label))
        allowed = int(max_drop_per_class * int((readable & (number == label)).sum()))
        going += rows[np.argsort(score[rows], kind="stable")][:allowed].tolist()
    return going


def _copies(
    scores: pa.Table, score: NDArray[np.float64], reasons: list[str | None], free: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """(row, row that stays) of duplicates; what a person decided to keep stays, else the best-scored one."""
    if "duplicate_group" not in scores.column_names:
        return []
    members: dict[int, list[int]] = {}
    for row, group in enumerate(scores["duplicate_group"].to_pylist()):
        if group is not None and reasons[row] is None:
            members.setdefault(group, []).append(row)
    going = []
    for rows in members.values():
        best = max(rows, key=lambda row: (not free[row], score[row], -row))
        going += [(row, best) for row in rows if row != best and free[row]]
    return going


def _keep_classes(
    reasons: list[str | None], details: list[str], labels: list[str | None], score: NDArray[np.float64]
) -> None:
    """No class is removed as a whole: its best image that was removed for a score comes back."""
    left = {label for label, reason in zip(labels, reasons, strict=True) if reason is None}
    for label in sorted({str(label) for label in labels if label is not None} - {str(name) for name in left}):
        rows = [row for row, own in enumerate(labels) if own == label and reasons[row] in ("label", "duplicate")]
        if rows:
            best = max(rows, key=lambda row: score[row])
            reasons[best], details[best] = None, ""


def read_decisions(file: Path) -> dict[str, Decision]:
    """decisions.csv as the report writes it: file_name, decision (keep, drop or relabel), label."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream)
            heading, rows = table.fieldnames or (), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read the decisions {file} ({error}): download them from the report again") from None
    if missing := [column for column in ("file_name", "decision") if column not in heading]:
        raise ConfigError(
            f"{file} has no column {missing[0]} in its first line: let that be file_name,decision,label, with commas"
        )
    decisions: dict[str, Decision] = {}
    for line, row in enumerate(rows, start=2):
        name, action, label = (csv_text(row.get(column) or "") for column in ("file_name", "decision", "label"))
        if not name or action not in (KEEP, DROP, RELABEL) or (action == RELABEL and not label):
            raise ConfigError(
                f"{file} line {line} is not a decision: write file_name, decision ({KEEP}, {DROP} or {RELABEL}) and, "
                "to relabel, the label"
            )
        decision = Decision(action, label or None)
        if decisions.setdefault(name, decision) != decision:
            raise ConfigError(f"{file} line {line} contradicts an earlier one about {name}: keep one of them")
    return decisions
