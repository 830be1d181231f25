"""What a person decided about training images: decisions.csv, as the report's pages save it.

A decision is truth. A dropped image is not trained on, a relabelled one gets its new label, and this and a kept one are
verified: their label is beyond doubt.
"""

import csv
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from somnet.data.index import Index
from somnet.errors import ConfigError, did_you_mean
from somnet.system.files import atomic_path, csv_cell, csv_text, display_name

log = logging.getLogger("somnet")

KEEP, DROP, RELABEL, UNSURE = "keep", "drop", "relabel", "unsure"
ACTIONS = (KEEP, DROP, RELABEL, UNSURE)  # unsure: looked at, and left to the scores
DROPPED = "dropped"  # the split of images that a person has dropped
COLUMNS = ("file_name", "decision", "label")


@dataclass(frozen=True)
class Decision:
    """What a person decided about an image."""

    action: str  # keep, drop, relabel or unsure
    label: str | None = None


Decisions = Mapping[str, Decision]
"""By the name of the image, as the tables of a run show it."""


def read_decisions(file: Path) -> dict[str, Decision]:
    """decisions.csv as the report writes it: file_name, decision (keep, drop, relabel or unsure), label."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream)
            heading, rows = table.fieldnames or (), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read the decisions {file} ({error}): download them from the report again") from None
    if missing := [column for column in COLUMNS[:2] if column not in heading]:
        raise ConfigError(
            f"{file} has no column {missing[0]} in its first line: let that be {','.join(COLUMNS)}, with commas"
        )
    decisions: dict[str, Decision] = {}
    for line, row in enumerate(rows, start=2):
        name, action, label = (csv_text(row.get(column) or "") for column in COLUMNS)
        if not name or action not in ACTIONS or (action == RELABEL and not label):
            said = f", '{action}'" if name and action not in ACTIONS else ""
            raise ConfigError(
                f"{file} line {line} is not a decision{said}: write file_name, decision ({', '.join(ACTIONS)}) and, to "
                "relabel, the label"
            )
        decision = Decision(action, label if action == RELABEL else None)
        if decisions.setdefault(name, decision) != decision:
            raise ConfigError(f"{file} line {line} contradicts an earlier one about {name}: keep one of them")
    return decisions


def read_rounds(files: Sequence[str]) -> dict[str, Decision]:
    """The decisions of several rounds of review, the latest last: it overrides the earlier ones.

    But for `keep` after `relabel`: who keeps an image in a later report keeps the label that it has there, the new one.
    """
    joined: dict[str, Decision] = {}
    for file in files:
        for name, decision in read_decisions(Path(file)).items():
            before = joined.get(name)
            if before is None or decision.action != KEEP or before.action != RELABEL:
                joined[name] = decision
    return joined


def write_decisions(file: Path, decisions: Decisions) -> None:
    """A file that `read_decisions` reads. No cell starts a formula."""
    with atomic_path(file) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(COLUMNS)
        for name, decision in decisions.items():
            table.writerow((csv_cell(name), decision.action, csv_cell(decision.label or "")))


def check_decisions(decisions: Decisions, names: Collection[str], classes: Sequence[str]) -> None:
    """Refuse decisions about images that are not there, or with labels that are no class.

    Who has dropped an image may have deleted it since.
    """
    missing = set(decisions).difference(names)
    if unknown := sorted(name for name in missing if decisions[name].action != DROP):
        others = f", and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise ConfigError(
            f"the decisions are about training images that are not there, as {unknown[0]}{others}: take the decisions "
            "of a report on these data, or delete these lines"
        )
    if missing and missing == set(decisions):
        raise ConfigError(
            f"none of the {len(missing):,} images that the decisions drop, as {min(missing)}, is there: take the "
            "decisions of a report on these data"
        )
    if missing:
        log.warning("%d images that were to be dropped are not there any more, as %s", len(missing), min(missing))
    if odd := sorted({d.label for d in decisions.values() if d.label is not None} - set(classes)):
        raise ConfigError(
            f"the decisions name a class that the data do not have, '{odd[0]}':{did_you_mean(odd[0], classes)} fix the "
            "label"
        )


def with_decisions(index: Index, decisions: Decisions) -> Index:
    """The images with new labels, `verified` and, of those that were dropped, the split DROPPED."""
    if not decisions:
        return index
    split, label, verified = index.column("split"), index.column("label"), index.column("verified")
    judged: list[int | None] = [None] * len(index)
    train = {row: display_name(name) for row, name in enumerate(index.column("file_name")) if split[row] == "train"}
    check_decisions(decisions, list(train.values()), index.classes)
    for row, name in train.items():
        decision = decisions.get(name)
        if decision is None or decision.action == UNSURE:
            continue
        judged[row], verified[row] = label[row], decision.action != DROP
        if decision.action == DROP:
            split[row] = DROPPED
        elif decision.label is not None:
            label[row] = index.classes.index(decision.label)
    table = index.table
    columns = {"split": split, "label": label, "verified": verified, "judged_label": judged}
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    return replace(index, table=table)


def describe_decisions(decisions: Decisions) -> str:
    """How many there are of each kind, as a line to read."""
    count = {action: sum(one.action == action for one in decisions.values()) for action in (KEEP, RELABEL, DROP)}
    return f"decisions: {count[KEEP]} kept, {count[RELABEL]} relabelled, {count[DROP]} dropped and not trained on"
