"""The regions of a run, read as they are needed: of a million images there are 21 million, too many to be held."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from somnet.errors import RunError
from somnet.runs.limits import reading_table
from somnet.runs.run_folder import RunFolder
from somnet.system.folders import REGIONS

AT_ONCE = 2**17  # rows
_DETAILS = {"slot": "winner_slot", "d": "d_score", "r": "r_score", "a": "a_score"}


@dataclass(frozen=True)
class SomeRegions:
    """Boxes of one image or of neighbours, one after the other."""

    box: NDArray[np.int32]  # (R, 4) pixels, xyxy, upright
    weight: NDArray[np.float64]  # (R,)
    details: dict[str, NDArray[np.float64]]  # (R,) slot, d, r, a, where the method has them


@dataclass(frozen=True)
class SlotRegions:
    """The same, as the memory sees them."""

    number: NDArray[np.int64]  # (R,) of each region in the file
    image: NDArray[np.int64]  # (R,) the readable image that it is of
    slot: NDArray[np.int64]  # (R,) that has won it
    similarity: NDArray[np.float64]  # (R,) to the key of that slot


class Regions:
    """The boxes of all readable images; box 0 of each is the image itself."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run.path
        try:
            self._file = pq.ParquetFile(run.path / REGIONS, pre_buffer=False)  # else it keeps all that was read
        except (OSError, pa.ArrowException):
            raise RunError(f"{run.path} has no regions yet: continue with somnet train --resume") from None
        sizes = [self._file.metadata.row_group(group).num_rows for group in range(self._file.num_row_groups)]
        self._starts = np.cumsum([0, *sizes])  # (groups + 1,) their first rows
        self._held: tuple[int, SomeRegions] | None = None  # the group that was read last: neighbours ask for it next
        self.details: set[str] = set()  # of _DETAILS, those that the method has
        self.weighed = False  # whether any weight is on something else than whole images
        self.first = self._look_through()  # (n + 1,) the boxes of readable image i are first[i] to first[i + 1]

    def of_image(self, number: int) -> SomeRegions:
        """The regions of a readable image."""
        start, stop = int(self.first[number]), int(self.first[number + 1])
        group = int(np.searchsorted(self._starts, start, "right")) - 1
        parts = []
        while start < stop:  # an image may begin in one group and end in the next
            offset, end = int(self._starts[group]), min(stop, int(self._starts[group + 1]))
            parts.append(_cut(self._group(group), slice(start - offset, end - offset)))
            start, group = end, group + 1
        return parts[0] if len(parts) == 1 else _joined(parts)

    def by_slot(self) -> Iterator[SlotRegions]:
        """All regions, some after the other. An older run does not tell similarities: there heavy regions are near."""
        near = "similarity" if "similarity" in self._file.schema_arrow.names else "roi_weight"
        start = 0
        for batch in self._batches("winner_slot", near):
            number = np.arange(start, start + len(batch))
            image = np.searchsorted(self.first, number, "right") - 1
            yield SlotRegions(number, image, _values(batch, "winner_slot").astype(np.int64), _values(batch, near))
            start += len(batch)

    def _look_through(self) -> NDArray[np.int64]:
        begins, seen = [np.zeros(0, np.int64)], 0
        for batch in self._batches("region", "roi_weight", *_DETAILS.values()):
            region = batch["region"].to_numpy(zero_copy_only=False)
            begins.append(seen + np.flatnonzero(region == 0))
            self.weighed = self.weighed or bool(_short(_values(batch, "roi_weight")[region != 0]).any())
            self.details |= {name for name, column in _DETAILS.items() if batch[column].null_count < len(batch)}
            seen += len(batch)
        return np.append(np.concatenate(begins), seen)

    def _batches(self, *names: str) -> Iterator[pa.RecordBatch]:
        batches = self._file.iter_batches(AT_ONCE, columns=list(names), use_threads=False)
        while True:
            with self._named_damage():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _group(self, number: int) -> SomeRegions:
        if self._held is None or self._held[0] != number:
            known = {name: column for name, column in _DETAILS.items() if name in self.details}
            with self._named_damage():
                table = self._file.read_row_group(
                    number, columns=["box", "roi_weight", *known.values()], use_threads=False
                )
            boxes = table["box"].combine_chunks().flatten().to_numpy().reshape(table.num_rows, 4)
            details = {name: _short(_values(table, column)) for name, column in known.items()}
            whole = SomeRegions(np.rint(boxes).astype(np.int32), _short(_values(table, "roi_weight")), details)
            self._held = number, whole
        return self._held[1]

    @contextlib.contextmanager
    def _named_damage(self) -> Iterator[None]:
        try:
            with reading_table(self.run / REGIONS):
                yield
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{self.run / REGIONS} is damaged ({error}): train again with --overwrite") from None


def _values(table: pa.Table | pa.RecordBatch, column: str) -> NDArray[np.float64]:
    values = table[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(np.nan_to_num(values), np.float64)


def _short(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Four digits: enough to look at, and small as text."""
    return values.round(4)


def _cut(regions: SomeRegions, mine: slice) -> SomeRegions:
    details = {name: values[mine] for name, values in regions.details.items()}
    return SomeRegions(regions.box[mine], regions.weight[mine], details)


def _joined(parts: list[SomeRegions]) -> SomeRegions:
    details = {name: np.concatenate([part.details[name] for part in parts]) for name in parts[0].details}
    return SomeRegions(
        np.concatenate([part.box for part in parts]), np.concatenate([part.weight for part in parts]), details
    )
