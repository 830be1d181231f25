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
from somnet.runs.label_scores import OUTLIER, choose_threshold
from somnet.system.files import csv_text

Policy = Literal["drop", "crop", "reweight", "relabel"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
KEEP, DROP, RELABEL = "keep", "drop", "relabel"


@dataclass(frozen=True)
class Decision:
    """What a person decided about an image."""

    action: str  # keep, drop or relabel
    label: str | None = None


@dataclass(frozen=True)
class Verdicts:
    """What becomes of the n images of a run, in the order of its scores."""

    reasons: list[str | None]  # why it is removed: unreadable, label, outlier, duplicate, decision; None: it stays
    details: list[str]  # the reason in numbers or words
    labels: list[str | None]  # given or new
    weights: NDArray[np.float64]  # (n,)
    threshold: float  # an image whose label_score is below it is doubted


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
    suggested = _suggestions(scores)
    readable = ~flags(scores, "is_unreadable_issue")
    score = _numbers(scores, "label_score", missing=0.0)
    decided = [(decisions or {}).get(name) for name in names]
    free = readable & np.array([decision is None for decision in decided], bool)
    if threshold is None:
        threshold = choose_threshold(score[readable])
    doubted = free & (score < threshold)
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
        sure = doubted & np.array([label is not None for label in suggested], bool)
        for row in np.flatnonzero(sure).tolist():
            labels[row] = suggested[row]
        doubted &= ~sure
    outlier = _numbers(scores, "outlier_score", missing=1.0) < OUTLIER
    if policy != "reweight":
        for row in _worst(doubted, score, given, readable, max_drop_per_class):
            foreign, other = outlier[row], suggested[row]
            reasons[row] = "outlier" if foreign else "label"
            details[row] = "shows none of the classes" if foreign else f"looks like {other}" if other else "doubted"
        for row, kept in _copies(scores, score, reasons, free):
            reasons[row], details[row] = "duplicate", f"of {names[kept]}"
    _keep_classes(reasons, details, labels, score)
    weights = np.where(readable, score, 0.0) if policy == "reweight" else np.ones(count)
    return Verdicts(reasons, details, labels, weights, threshold)


def _numbers(scores: pa.Table, name: str, *, missing: float) -> NDArray[np.float64]:
    """A column of numbers (n,), `missing` where it is empty or the run is too old to have it."""
    if name not in scores.column_names:
        return np.full(scores.num_rows, missing)
    return np.asarray(scores[name].fill_null(missing).to_numpy(), np.float64)


def _suggestions(scores: pa.Table) -> list[str | None]:
    """The label that an image should have for sure, if another one; None in runs that are too old to say."""
    if "suggested_label" not in scores.column_names:
        return [None] * scores.num_rows
    return list(scores["suggested_label"].to_pylist())


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
        rows = [
            row for row, own in enumerate(labels) if own == label and reasons[row] in ("label", "outlier", "duplicate")
        ]
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
