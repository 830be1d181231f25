"""What the folder of a run tells without loading torch: enough to clean, and to begin a report."""

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from somnet.config import load_config, mistakes
from somnet.errors import RunError
from somnet.runs.limits import MOST_CLASSES, MOST_IMAGES, check_tables, read_run_table
from somnet.system.files import parse_json
from somnet.system.folders import CONFIG, DATA, ISSUES, SUMMARY, USED_DECISIONS, refuse_strange_files

log = logging.getLogger("somnet")

PICTURES = 20_000  # of a report at most, of all classes together


class _Data(BaseModel):
    """The content of data.json."""

    model_config = ConfigDict(strict=True, extra="allow")

    path: str
    classes: Annotated[list[str], Field(min_length=1, max_length=MOST_CLASSES)]
    images: Annotated[int, Field(ge=1, le=MOST_IMAGES)]
    fingerprint: str


class RunFolder:
    """A finished or interrupted run on disk: all but its network, which takes torch and seconds to load."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        refuse_strange_files(self.path)
        self._began = self._files_of_its_begin()
        if not (self.path / CONFIG).is_file():
            raise RunError(f"{self.path} is not a run (it has no {CONFIG}): give the --out folder of somnet train")
        config = load_config(self.path / CONFIG)
        used = self.path / USED_DECISIONS  # wherever the run was moved
        decisions = (str(used),) if used.is_file() else ()
        self.config = config.model_copy(update={"decisions": decisions})
        try:
            content = parse_json((self.path / DATA).read_text(encoding="utf-8"))
            self.data = _Data.model_validate(content).model_dump()
        except ValidationError as error:
            raise RunError(f"{self.path / DATA} is damaged ({mistakes(error)}): train again with --overwrite") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / DATA} cannot be read ({error}): train again, with another --out") from None
        self.classes: tuple[str, ...] = tuple(self.data["classes"])
        check_tables(self.path, self.data["images"], self.config.proposals.max_boxes)

    def refuse_rewritten(self) -> None:
        """Refuse what was read of a run if another training has begun in its folder since: it may be of two runs.

        A training writes these files before any other; one that is resumed leaves them as they are.
        """
        if self._files_of_its_begin() != self._began:
            raise RunError(f"{self.path} was trained anew while it was read: wait until that ends, and try again")

    def _files_of_its_begin(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for name in (DATA, CONFIG):
            try:
                status = os.stat(self.path / name)
            except OSError:  # whoever reads it will tell
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def warn_of_half(self) -> None:
        """Say that a network was not trained to its end."""
        if not (self.path / SUMMARY).is_file():
            log.warning(
                "%s is not finished, so its network is half trained: continue with somnet train --resume", self.path
            )

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        try:
            summary = dict(parse_json((self.path / SUMMARY).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise RunError(f"{self.path} is not finished: continue with somnet train --resume") from None
        return summary

    def scores(self) -> pa.Table:
        """A row per training image: the content of issues.parquet."""
        try:
            return read_run_table(self.path / ISSUES)
        except (OSError, pa.ArrowException):
            raise RunError(f"{self.path} has no scores yet: continue with somnet train --resume") from None

    def to_pandas(self) -> Any:
        """The scores as a DataFrame, which notebooks show as a table, the worst label first."""
        if find_spec("pandas") is None:
            raise RunError("a DataFrame needs pandas: pip install pandas, or take scores(), which is a table of Arrow")
        return self.scores().sort_by("label_score").to_pandas()
