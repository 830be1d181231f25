"""Where the bytes of an image are: a file, or a stretch of one, as in a tar archive."""

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from somnet.errors import UnreadableImage
from somnet.system.files import link_or_copy


@dataclass(frozen=True)
class Location:
    """A file, or `size` bytes of it from `offset` on."""

    path: str
    offset: int = 0
    size: int | None = None  # None: all of the file

    def open(self) -> io.BufferedReader | io.BytesIO:
        """The bytes as a stream. Only regular files are opened: a pipe or a device could be read for ever."""
        mode = os.stat(self.path).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableImage("a folder, not a regular file")
        if not stat.S_ISREG(mode):
            raise UnreadableImage("not a regular file")
        file = open(self.path, "rb")  # noqa: SIM115
        if self.size is None:
            return file
        with file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise UnreadableImage("the archive ends within it")
        return io.BytesIO(content)


def bring(source: Location, target: Path) -> None:
    """A hard link to a file, or a copy; out of an archive the bytes of the image."""
    if source.size is None:
        link_or_copy(source.path, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open() as stream:
        target.write_bytes(stream.read())
