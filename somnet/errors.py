"""Every error a user can meet. Each message says what is wrong and ends with what to do.

SomnetError
├── ConfigError          a setting is unknown or out of range
├── DataError            the data set cannot be used as it is
│   └── UnreadableImage  one file is not a readable image; it is quarantined, the run continues
├── WeightsError         pretrained weights cannot be had
├── RunError             a run folder is missing, taken, or not what was expected
└── ExportError          a model cannot be written in the format that was asked for

TrainingStopped          a signal asked to stop; the state is saved
"""

from collections.abc import Iterable
from difflib import get_close_matches

OPENCV_FIX = (
    "pip uninstall -y opencv-python opencv-python-headless opencv-contrib-python && "
    "pip install --force-reinstall opencv-contrib-python-headless"
)


class SomnetError(Exception):
    """Base of all errors that are shown to the user without a traceback."""


class ConfigError(SomnetError):
    """A setting is unknown or out of range."""


class DataError(SomnetError):
    """The data set cannot be used as it is."""


class UnreadableImage(DataError):
    """One file is not a readable image. The message is the reason alone; the caller knows the file."""


class WeightsError(SomnetError):
    """Pretrained weights cannot be had."""


class RunError(SomnetError):
    """A run folder is missing, already taken, or not what was expected."""


class ExportError(SomnetError):
    """A model cannot be written in the format that was asked for."""


class TrainingStopped(BaseException):
    """A signal asked to stop; everything needed to resume is on disk.

    Not an Exception, like KeyboardInterrupt: it can come anywhere, and what handles errors there must not catch it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number  # the shell's convention: 130 for Ctrl-C, 143 for SIGTERM


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for a message, with the name that is nearest to one that does not exist; nothing if none is near."""
    near = get_close_matches(name.lower(), list(known), 1)
    return f" did you mean '{near[0]}'?" if near else ""
