"""Where the bytes of an image are: a file, or a stretch of one, as in an archive."""

import hashlib
import io
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from somnet.errors import UnreadableImage
from somnet.system.files import link_or_copy

MAX_BYTES = 1_000_000_000  # of an image: 100 million pixels of four 16-bit channels fit

KEY_BYTES = 16  # of a content key
COPIED_BYTES = 64_000_000  # files up to this size are read into memory


@dataclass(frozen=True)
class Location:
    """A file, or `size` bytes of it from `offset` on."""

    path: str
    offset: int = 0
    size: int | None = None  # None: all of the file
    deflated: bool = False  # whether the bytes are compressed, as most archives of type zip do it

    def open(self) -> io.BufferedReader | io.BytesIO:
        """The bytes as a stream. Only regular files are opened: a pipe or a device could be read for ever."""
        mode = os.stat(self.path).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableImage("a folder, not a regular file")
        if not stat.S_ISREG(mode):
            raise UnreadableImage("not a regular file")
        file = open(self.path, "rb", opener=_without_waiting)  # noqa: SIM115
        if self.size is None:
            return file
        with file:
            file.seek(self.offset)
            content = file.read(self.size)
        if len(content) < self.size:
            raise UnreadableImage("the archive ends within it")
        return io.BytesIO(_inflated(content) if self.deflated else content)

    def open_known(self, key: bytes) -> io.BufferedReader | io.BytesIO:
        """The same, if the bytes are still those that the key is of.

        What is returned is what was checked: a file may be replaced at any moment, so it is read once. Only a very
        large one is read twice, through the same descriptor.
        """
        stream = self.open()
        if isinstance(stream, io.BufferedReader) and os.fstat(stream.fileno()).st_size <= COPIED_BYTES:
            with stream:
                stream = io.BytesIO(stream.read())
        if content_key(stream) != key:
            stream.close()
            raise UnreadableImage("its content has changed since the files were listed")
        stream.seek(0)
        return stream


def _without_waiting(path: str, flags: int) -> int:
    """A descriptor at once, though a pipe may have taken the file's place since it was looked at."""
    return os.open(path, flags | os.O_NONBLOCK)


def content_key(stream: io.BufferedReader | io.BytesIO) -> bytes:
    """What an image is known by, whatever it is called: a hash of its bytes."""
    return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=KEY_BYTES)).digest()


def _inflated(content: bytes) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)  # without a header, as in an archive
    try:
        whole = inflate.decompress(content, MAX_BYTES + 1)  # few bytes may claim to be terabytes
    except zlib.error:
        raise UnreadableImage("the archive is damaged where it is") from None
    if len(whole) <= MAX_BYTES and not inflate.eof:
        raise UnreadableImage("the archive is damaged where it is")
    return whole


def bring(source: Location, target: Path) -> None:
    """A hard link to a file, or a copy; out of an archive the bytes of the image."""
    if source.size is None:
        link_or_copy(source.path, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open() as stream:
        target.write_bytes(stream.read())
