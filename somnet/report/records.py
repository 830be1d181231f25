"""The tables of a run as columns in little memory: what the pages of a report are written from."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from somnet.errors import RunError
from somnet.report.regions import Regions
from somnet.runs.doubt import choose_threshold
from somnet.runs.kinds import KINDS, flags
from somnet.runs.run_folder import RunFolder

STATES = ("clean", "unclear", *KINDS)  # the gravest last
CERTAIN = 0.98  # label_score from which on an image is called clean: of crawls 85 % are, and one in 50 wrongly


@dataclass(frozen=True)
class Records:
    """Every image of a run, in the order of issues.parquet."""

    classes: tuple[str, ...]
    table: pa.Table
    regions: Regions

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def label(self) -> NDArray[np.int64]:
        """Number of the given class (n,), -1 where there is none."""
        return self._class_number("given_label")

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Number of the predicted class (n,), -1 for unreadable files."""
        return self._class_number("predicted_label")

    @cached_property
    def label_score(self) -> NDArray[np.float64]:
        """(n,), 1 for unreadable files."""
        return self._number("label_score")

    @cached_property
    def background_score(self) -> NDArray[np.float64]:
        """(n,), 1 for unreadable files."""
        return self._number("background_score")

    @cached_property
    def unreadable(self) -> NDArray[np.bool_]:
        """(n,) files that are not images."""
        return flags(self.table, "unreadable")

    @cached_property
    def doubted(self) -> NDArray[np.bool_]:
        """(n,) images in which the model sees another class."""
        differs: NDArray[np.bool_] = self.predicted != self.label
        return differs & ~self.unreadable

    @cached_property
    def threshold(self) -> float:
        """Where somnet clean would cut the label scores by itself."""
        return choose_threshold(self.label_score[~self.unreadable])

    @cached_property
    def suggested(self) -> NDArray[np.int64]:
        """Number of the class (n,) that an image with a label issue shows for sure; -1: none, or an older version."""
        if "suggested_label" not in self.table.column_names:
            return np.full(len(self), -1)
        return np.where(self.flags["label"], self._class_number("suggested_label"), -1)

    @cached_property
    def flags(self) -> dict[str, NDArray[np.bool_]]:
        """The states of every image, each (n,); a faulty image can have several, a clean or unclear one has no other.

        Clean is what nothing speaks against; where no verdict is reached an image is unclear.
        """
        faults = {kind: flags(self.table, kind) for kind in KINDS}
        sound = ~np.any(list(faults.values()), axis=0)
        certain = ~self.doubted & (self.label_score >= CERTAIN)
        return {"clean": sound & certain, "unclear": sound & ~certain, **faults}

    @cached_property
    def state(self) -> NDArray[np.int64]:
        """The gravest state of every image (n,), as a place in STATES."""
        state = np.zeros(len(self), np.int64)
        for number, name in enumerate(STATES):
            state[self.flags[name]] = number
        return state

    @cached_property
    def review_order(self) -> NDArray[np.int64]:
        """(n,) from 1 on for the images whose judgement would tell most; 0: not one of them, or an older version."""
        if "review_order" not in self.table.column_names:
            return np.zeros(len(self), np.int64)
        return np.asarray(self.table["review_order"].fill_null(0).to_numpy(), np.int64)

    @cached_property
    def readable_number(self) -> NDArray[np.int64]:
        """(n,) which readable image a row is, to find its regions."""
        return np.cumsum(~self.unreadable) - 1

    def names(self, rows: NDArray[np.int64]) -> list[str]:
        """File names of some rows."""
        return list(self.table["file_name"].take(pa.array(rows)).to_pylist())

    def by_class(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Number and rows of each class, its readable images with the lowest label_score first."""
        rows = np.flatnonzero(~self.unreadable & (self.label >= 0))
        rows = rows[np.lexsort((rows, self.label_score[rows], self.label[rows]))]
        bounds = np.searchsorted(self.label[rows], np.arange(len(self.classes) + 1))
        for number in range(len(self.classes)):
            yield number, rows[bounds[number] : bounds[number + 1]]

    def _class_number(self, column: str) -> NDArray[np.int64]:
        numbers = pc.index_in(self.table[column], value_set=pa.array(self.classes, pa.string()))
        return np.asarray(numbers.fill_null(-1).to_numpy(), np.int64)

    def _number(self, column: str) -> NDArray[np.float64]:
        return np.asarray(np.nan_to_num(self.table[column].cast(pa.float64()).fill_null(1.0).to_numpy()))


def read_records(run: RunFolder) -> Records:
    """The tables of a finished run."""
    records = Records(run.classes, run.scores().combine_chunks(), Regions(run))
    if len(records.regions.first) - 1 != int((~records.unreadable).sum()):
        raise RunError(f"regions.parquet and issues.parquet of {run.path} do not match: train again with --overwrite")
    if (~records.unreadable & (records.label < 0)).any():
        raise RunError(f"issues.parquet of {run.path} has labels that are not classes: train again with --overwrite")
    return records
