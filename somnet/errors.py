"""Every error a user can meet. Each message says what is wrong and ends with what to do.

It names the flags of the command line. Whoever called from Python is told in `str()` what they are there.

SomnetError
├── ConfigError          a setting is unknown or out of range
├── DataError            the data set cannot be used as it is
│   └── UnreadableImage  one file is not a readable image; it is quarantined, the run continues
├── WeightsError         pretrained weights cannot be had
├── RunError             a run folder is missing, taken, or not what was expected
└── ExportError          a model cannot be written in the format that was asked for

TrainingStopped          a signal asked to stop; the state is saved
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

OPENCV_FIX = (
    "pip uninstall -y opencv-python opencv-python-headless opencv-contrib-python && "
    "pip install --force-reinstall opencv-contrib-python-headless"
)

ARGUMENTS = {
    "--out": "out=...",
    "--resume": "resume=True",
    "--overwrite": "overwrite=True",
    "--device": "device=...",
    "--workers": "workers=...",
    "--data": "data=...",
    "--format": "format=...",
    "--port": "port=...",
    "--images": "sizes=...",
    "--classes": "sizes=...",
    "--methods": "entries=...",
    "--baseline": "baseline=...",
    "--rates": "search=...",
    "--rate-seed": "search=...",
}  # of functions
SETTINGS = {
    "--method": "method",
    "--model": "model.name",
    "--weights": "model.weights",
    "--embeddings": "model.embeddings",
    "--freeze": "model.freeze",
    "--imgsz": "model.imgsz",
    "--batch-size": "train.batch_size",
    "--precision": "train.precision",
    "--compile": "train.compile",
    "--tensorboard": "tensorboard",
    "--follow-links": "follow_links",
    "--decisions": "decisions",
}  # of Config
_FLAG = re.compile(r"(?<![\w/.-])--[a-z][a-z-]*(?![\w/]|\.\w)")  # not within a path
_IN_PYTHON = re.compile(r" \(in Python: [^)]*\)")


class _Message(BaseException):
    """What a message says, for both kinds of users."""

    @property
    def typed(self) -> str:
        """For the command line: the message with its flags alone."""
        return _IN_PYTHON.sub("", super().__str__())  # of errors that it quotes

    def __str__(self) -> str:
        return self.typed + _in_python(self.typed)


def _in_python(message: str) -> str:
    """What the flags in a message are in Python, as a remark behind it; nothing if there are none."""
    flags = _FLAG.findall(message)
    told = [", ".join(dict.fromkeys(names[flag] for flag in flags if flag in names)) for names in (ARGUMENTS, SETTINGS)]
    remarks = [text + what for text, what in zip(told, ("", " of Config"), strict=True) if text]
    return f" (in Python: {'; '.join(remarks)})" if remarks else ""


class SomnetError(_Message, Exception):
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


class TrainingStopped(_Message):
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
