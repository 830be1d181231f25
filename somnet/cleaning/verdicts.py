"""What becomes of each training image when a data set is cleaned: pure decisions from the scores, no file touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from somnet.data.decisions import DROP, RELABEL, UNSURE, Decision
from somnet.data.picture_quality import BLANK
from somnet.runs.doubt import BELIEVED, HALF, OUTLIER, SURE, choose_threshold
from somnet.runs.kinds import explain, flags, percent

Policy = Literal["drop", "crop", "reweight", "relabel"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


@dataclass(frozen=True)
class Verdicts:
    """What becomes of the n images of a run, in the order of its scores."""

    reasons: list[str | None]  # why it is removed: one of somnet.runs.kinds, or decision; None: it stays
    details: list[str]  # the reason in numbers or words
    labels: list[str | None]  # given or new
    weights: NDArray[np.float64]  # (n,)
    crops: NDArray[np.bool_]  # (n,) which images are cut to their best region
    doubts: list[str | None]  # why an image that stays is doubtful, in plain sentences; None: it is not
    threshold: float  # an image whose label_score is below it is doubted


def judge(
    scores: pa.Table,
    policy: Policy,
    *,
    threshold: float | None = None,
    max_drop_per_class: float = 0.5,
    drop_poor: bool = False,
    decisions: Mapping[str, Decision] | None = None,
) -> Verdicts:
    """Which images of a run's scores stay, with which label and weight."""
    case = _Case(scores, decisions or {})
    if threshold is None:
        threshold = choose_threshold(case.score[case.readable])
    if policy == "relabel":
        case.relabel(case.score < threshold)
    if policy != "reweight":
        case.remove_labels(case.score < threshold, max_drop_per_class)  # first: as many as the report says
    case.remove_files(drop_poor=drop_poor)
    if policy != "reweight":
        case.remove_copies()
    case.keep_classes()
    crops = case.clear_crops() if policy == "crop" else np.zeros(len(case.names), bool)
    whole = case.stays() & flags(scores, "background") & ~crops if policy == "crop" else crops
    weights = case.weights() if policy == "reweight" else np.ones(len(case.names))
    return Verdicts(case.reasons, case.details, case.labels, weights, crops, case.doubts(threshold, whole), threshold)


class _Case:
    """What is known of the images, and what has been decided about them so far."""

    def __init__(self, scores: pa.Table, decisions: Mapping[str, Decision]) -> None:
        self.scores = scores
        self.names, self.given = scores["file_name"].to_pylist(), scores["given_label"].to_pylist()
        self.suggested = _texts(scores, "suggested_label")
        self.readable = ~flags(scores, "unreadable")
        self.score = _numbers(scores, "label_score", missing=0.0)
        self.labels: list[str | None] = list(self.given)
        self.reasons: list[str | None] = [None if good else "unreadable" for good in self.readable]
        self.details = [reason or "" for reason in _texts(scores, "unreadable_reason")]
        sure = {name: decision for name, decision in decisions.items() if decision.action != UNSURE}
        decided = [sure.get(name) for name in self.names]
        self.free = self.readable & np.array([decision is None for decision in decided], bool)
        for row, decision in enumerate(decided):
            if decision is not None and self.readable[row]:
                if decision.action == DROP:
                    self.reasons[row] = "decision"
                elif decision.action == RELABEL:
                    self.labels[row] = decision.label

    def stays(self) -> NDArray[np.bool_]:
        """Which images (n,) are not removed."""
        return np.array([reason is None for reason in self.reasons], bool)

    def open(self) -> NDArray[np.bool_]:
        """Which of them (n,) nobody has decided about: the scores may."""
        undecided: NDArray[np.bool_] = self.free & self.stays()
        return undecided

    def remove_files(self, *, drop_poor: bool) -> None:
        """Blank pictures, or all poor ones, and training images that are tested on: no label makes them useful."""
        faults, test = _texts(self.scores, "poor_picture_reason"), _texts(self.scores, "test_leak_of")
        for row in np.flatnonzero(self.open() & flags(self.scores, "test-leak")).tolist():
            self.reasons[row], self.details[row] = "test-leak", f"of {test[row]}"
        for row in np.flatnonzero(self.open() & flags(self.scores, "poor")).tolist():
            fault = faults[row] or ""
            if drop_poor or BLANK in fault.split(", "):
                self.reasons[row], self.details[row] = "poor", fault

    def relabel(self, doubted: NDArray[np.bool_]) -> None:
        """Doubted images (n,) get the label that they show for sure, where there is one."""
        for row in np.flatnonzero(self.open() & doubted).tolist():
            self.labels[row] = self.suggested[row] or self.labels[row]

    def remove_labels(self, doubted: NDArray[np.bool_], most: float) -> None:
        """Of the doubted images (n,) that have their label still the worst go, of each class no more than a share."""
        outlier = _numbers(self.scores, "outlier_score", missing=1.0) < OUTLIER
        same = np.array([new == old for new, old in zip(self.labels, self.given, strict=True)], bool)
        going = self.open() & doubted & same
        classes, number = np.unique([str(label) for label in self.given], return_inverse=True)
        for label in range(len(classes)):
            rows = np.flatnonzero(going & (number == label))
            allowed = int(most * int((self.readable & (number == label)).sum()))
            for row in rows[np.argsort(self.score[rows], kind="stable")][:allowed].tolist():
                other = self.suggested[row]
                self.reasons[row] = "outlier" if outlier[row] else "label"
                looks = f"looks like {other}" if other else "doubted"
                self.details[row] = "shows none of the classes" if outlier[row] else looks

    def remove_copies(self) -> None:
        """Of duplicates one stays: what a person decided to keep, else the best-scored one, the first of level ones."""
        if "duplicate_group" not in self.scores.column_names:
            return
        members: dict[int, list[int]] = {}
        for row, group in enumerate(self.scores["duplicate_group"].to_pylist()):
            if group is not None and self.reasons[row] is None:
                members.setdefault(group, []).append(row)
        for rows in members.values():
            best = max(rows, key=lambda row: (not self.free[row], round(float(self.score[row]), 2), -row))
            for row in rows:
                if row != best and self.free[row]:
                    self.reasons[row], self.details[row] = "duplicate", f"of {self.names[best]}"

    def keep_classes(self) -> None:
        """No class is removed as a whole: its best image that was removed for a score comes back."""
        left = {label for label, reason in zip(self.labels, self.reasons, strict=True) if reason is None}
        for label in sorted({str(label) for label in self.labels if label is not None} - {str(name) for name in left}):
            rows = [row for row, own in enumerate(self.labels) if own == label and self.reasons[row] in _BY_SCORE]
            if rows:
                best = max(rows, key=lambda row: (self.reasons[row] != "poor", self.score[row]))
                self.reasons[best], self.details[best] = None, ""

    def clear_crops(self) -> NDArray[np.bool_]:
        """Which images (n,) show their thing in a region for sure: a right label, and a region that is believed."""
        believed = _numbers(self.scores, "belief", missing=0.0) >= BELIEVED
        crops: NDArray[np.bool_] = self.stays() & flags(self.scores, "background") & believed & (self.score >= SURE)
        return crops

    def weights(self) -> NDArray[np.float64]:
        """How far each image (n,) is to be trusted: what a person decided fully, others by their score."""
        return np.where(self.free, self.score, self.readable.astype(np.float64))

    def doubts(self, threshold: float, whole: NDArray[np.bool_]) -> list[str | None]:
        """Why images that stay are doubtful; `whole` (n,) are those left whole as their region is."""
        low = self.score < max(threshold, HALF)
        same = np.array([new == old for new, old in zip(self.labels, self.given, strict=True)], bool)
        poor = flags(self.scores, "poor") | flags(self.scores, "test-leak")
        rows = np.flatnonzero(self.open() & (low & same | poor | whole))
        found: list[str | None] = [None] * len(self.names)
        for row, said in zip(rows.tolist(), explain(self.scores.take(pa.array(rows))), strict=True):
            sentences = [said[kind] for kind in ("test-leak", "outlier", "label", "poor") if kind in said]
            if low[row] and "outlier" not in said and "label" not in said:
                sentences.append(f"The label “{self.given[row]}” has only {percent(self.score[row])}.")
            if whole[row]:
                sentences.append("It may be small among clutter, but not for sure, and was left whole.")
            found[row] = " ".join(sentences)
        return found


_BY_SCORE = ("label", "outlier", "duplicate", "test-leak", "poor")  # reasons that no person gave, of readable files


def _numbers(scores: pa.Table, name: str, *, missing: float) -> NDArray[np.float64]:
    """A column of numbers (n,), `missing` where it is empty or the run is too old to have it."""
    if name not in scores.column_names:
        return np.full(scores.num_rows, missing)
    return np.asarray(scores[name].fill_null(missing).to_numpy(), np.float64)


def _texts(scores: pa.Table, name: str) -> list[str | None]:
    """A column of texts, None where it is empty or the run is too old to have it."""
    return list(scores[name].to_pylist()) if name in scores.column_names else [None] * scores.num_rows
