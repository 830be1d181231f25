"""What the files of a cleaned data set are called."""

import os

from somnet.system.files import display_name

LONGEST_NAME = 200  # bytes, of the 255 that file systems allow


class Names:
    """Names in the cleaned folder: split/class/name, readable, valid everywhere, and each but once."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.taken: set[str] = set()

    def new(self, split: str, label: str, name: str) -> str:
        """A free path below the cleaned folder, close to the name that a file has."""
        if label not in self.folders:
            self.folders[label] = self._free("", _short(_plain(label), LONGEST_NAME))
        stem, suffix = os.path.splitext(_plain(display_name(os.fsencode(name))))
        suffix = _short(suffix, LONGEST_NAME // 2)
        folder = f"{_plain(split)}/{self.folders[label]}/"
        return folder + self._free(folder, _short(stem, LONGEST_NAME - len(suffix.encode()))) + suffix

    def _free(self, folder: str, stem: str) -> str:
        """A stem that nothing in the folder has: some formats know images without their suffix."""
        number, tried = 1, stem
        while (folder + tried).casefold() in self.taken:
            number += 1
            tried = f"{stem}-{number}"
        self.taken.add((folder + tried).casefold())
        return tried


def _plain(text: str) -> str:
    """Text as a file name: no separators, not hidden, not empty. FiftyOne takes a backslash for a separator, too."""
    text = text.replace("/", "_").replace("\\", "_").replace("\0", "_")
    return f"_{text}" if text.startswith(".") or not text else text


def _short(text: str, most: int) -> str:
    """Text cut to a number of bytes, between characters."""
    return text.encode()[:most].decode(errors="ignore")
