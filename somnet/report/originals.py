"""The images of a run where they lie now, for its report: what was trained on, or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from somnet.data.decode import Picture, read_picture
from somnet.data.index import Index
from somnet.data.location import Location
from somnet.data.sources import open_source
from somnet.errors import DataError
from somnet.runs.data_changes import trained_keys
from somnet.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Original:
    """An image of the data."""

    place: Location
    key: bytes | None  # of the content that was trained on, if the run tells

    def read(self, at_least: int | None = None) -> Picture:
        """Its pixels; one that was replaced since the training is unreadable: it is not what was judged."""
        return read_picture(self.place, at_least=at_least, key=self.key)


class Originals:
    """The images of a run, which are listed once, when the first of them is asked for."""

    def __init__(self, run: RunFolder) -> None:
        self.data, self._follow_links = Path(run.data["path"]), run.config.follow_links
        self._run = run.path

    def find(self, names: Sequence[str]) -> list[Original | None]:
        """The images of these names, or None; a name in a table need not be how the file system spells it."""
        if self._index is None:
            return [None] * len(names)
        wanted, keys = set(names), trained_keys(self._run, names) or {}
        row = {name: number for number, name in enumerate(self._index.names()) if name in wanted}
        return [Original(self._index.location(row[name]), keys.get(name)) if name in row else None for name in names]

    @cached_property
    def _index(self) -> Index | None:
        try:
            return open_source(self.data, follow_links=self._follow_links)
        except (DataError, OSError):
            return None
