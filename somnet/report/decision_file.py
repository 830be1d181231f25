"""The decisions of a review as a file: read when somebody else has changed it, written whole at every step."""

import contextlib
import csv
import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from somnet.data.decisions import DROP, KEEP, RELABEL, UNSURE, Decision, check_decisions, read_decisions
from somnet.errors import ConfigError, RunError
from somnet.system.files import LOCK, atomic_path, csv_cell
from somnet.system.locks import one_writer

CODES = {KEEP: "k", DROP: "d", UNSURE: "s"}  # as the pages write them; r and a number: relabel as that class
ACTIONS = {code: action for action, code in CODES.items()}
STEPS = 200  # that can be undone
PATIENCE = 10.0  # seconds to wait for another server that is writing the same decisions

Change = tuple[int, str | None]  # row of the image and code of the decision; None: there is none


class DecisionFile:
    """decisions.csv of a run whose images have these names, for several threads and several servers at once."""

    def __init__(self, path: Path, names: Sequence[str], classes: Sequence[str]) -> None:
        self.path, self.names, self.classes = path, names, classes
        self.version = 0  # counts what has changed
        self._rows: dict[str, list[int]] = {}  # an image may be listed twice; a decision is about the name
        for row, name in enumerate(names):
            self._rows.setdefault(name, []).append(row)
        self._codes: dict[int, str] = {}
        self._past: list[list[Change]] = []  # what each step has replaced
        self._seen: bytes | None = None  # what the file said when it was read or written last
        self._lock = threading.Lock()
        with self._lock:
            self._refresh()

    def codes(self) -> tuple[int, dict[int, str]]:
        """Version and decision of each row that has one."""
        with self._lock:
            self._refresh()
            return self.version, dict(self._codes)

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to take back."""
        return bool(self._past)

    def change(self, changes: Sequence[Change]) -> int:
        """Make decisions and write them; the new version. Nothing is changed if one of them means nothing."""
        with self._alone():
            self._refresh()
            wanted = dict(self._checked(row, code) for row, code in changes)
            every = {row: code for one, code in wanted.items() for row in self._rows[self.names[one]]}
            before = [(row, self._codes.get(row)) for row in every]
            self._put(list(every.items()))
            self._past = [*self._past, before][-STEPS:]
            return self.version

    def undo(self) -> tuple[int, list[Change]]:
        """Take the last step back: the new version, and what holds again."""
        with self._alone():
            self._refresh()
            before = self._past[-1] if self._past else []
            if before:
                self._put(before)
                self._past.pop()
            return self.version, before

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes between our look at the file and our own version of it."""
        lock = self.path.with_name(f".{self.path.name}{LOCK}")
        with self._lock, one_writer(lock, self.path, patience=PATIENCE):
            yield

    def _checked(self, row: object, code: object) -> Change:
        if type(row) is not int or not 0 <= row < len(self.names):
            raise ConfigError(f"there is no image number {row!r}: load the page again")
        if code is None:
            return row, None
        match = re.fullmatch(r"[kds]|r(\d{1,9})", code, re.ASCII) if isinstance(code, str) else None
        if match is not None and match[1] is None:
            return row, match[0]
        if match is None or int(match[1]) >= len(self.classes):
            raise ConfigError(f"{code!r} is not a decision: load the page again")
        return row, f"r{int(match[1])}"

    def _put(self, changes: Sequence[Change]) -> None:
        """Written first: what a page is told is on the disk."""
        codes = {**self._codes, **{row: code for row, code in changes if code is not None}}
        for row, code in changes:
            if code is None:
                codes.pop(row, None)
        with atomic_path(self.path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["file_name", "decision", "label"])
            told = dict.fromkeys((self.names[row], codes[row]) for row in sorted(codes))  # a name once
            writer.writerows([csv_cell(cell) for cell in (name, *self._words(code))] for name, code in told)
            stream.flush()
            seen = _digest(temporary)  # before anybody else can change it
        self._codes, self._seen = codes, seen
        self.version += 1

    def _words(self, code: str) -> tuple[str, str]:
        return (RELABEL, self.classes[int(code[1:])]) if code.startswith("r") else (ACTIONS[code], "")

    def _refresh(self) -> None:
        """Read the file again if it does not say what this object left: somebody else may have written it."""
        state = self._state()
        if state == self._seen:
            return
        decisions = {} if state is None else read_decisions(self.path)
        check_decisions(decisions, self._rows, self.classes)
        self._codes = {row: self._code(decision) for name, decision in decisions.items() for row in self._rows[name]}
        self._seen, self._past = state, []  # earlier steps were about another state
        self.version += 1

    def _code(self, decision: Decision) -> str:
        return CODES.get(decision.action) or f"r{self.classes.index(str(decision.label))}"

    def _state(self) -> bytes | None:
        """What a file says, as a digest: sizes and times may stay where a word is changed. None: there is none."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
            raise RunError(f"{self.path} is not a plain file: move it away")
        try:
            return _digest(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror}: make it readable") from None


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()
