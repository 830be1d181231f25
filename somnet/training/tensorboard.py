"""The figures of each epoch as event files for TensorBoard, beside metrics.jsonl, which always has them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from somnet.errors import ConfigError
from somnet.system.folders import EVENTS

EXTRA = 'pip install "somnet[tensorboard]"'


class EventFiles:
    """Writes the epochs of a run, counted over all its phases; those of an earlier session are there already."""

    def __init__(self, run: Path, epochs_before: int) -> None:
        self.written = epochs_before if _files(run) else 0
        self._writer = _writer_class()(str(run / EVENTS), purge_step=self.written + 1)

    def write(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Those of the epochs that are new; the file is complete then."""
        for number, row in enumerate(history[self.written :], start=self.written + 1):
            for name, value in row.items():
                if isinstance(value, int | float) and "/" in name:  # not the place in the plan
                    self._writer.add_scalar(name, value, number)
        self.written = len(history)
        self._writer.flush()


def need_tensorboard() -> None:
    """Refuse where the library is missing, before anything is begun."""
    _writer_class()


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(f"--tensorboard needs the library that writes its files: {EXTRA}, or leave it out") from None
    return SummaryWriter


def clear_events(run: Path) -> None:
    """Delete those of a run that is started over."""
    for file in _files(run):
        file.unlink()


def _files(run: Path) -> list[Path]:
    return sorted((run / EVENTS).glob("events.out.tfevents.*"))
