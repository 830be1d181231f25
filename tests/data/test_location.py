"""The bytes of an image."""

import os
from pathlib import Path

import pytest

from somnet.data.location import Location
from somnet.errors import UnreadableImage


def content(location: Location) -> bytes:
    with location.open() as stream:
        return stream.read()


def test_a_file_or_a_stretch_of_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    name = str(tmp_path / "a")
    assert content(Location(name)) == b"0123456789"
    assert content(Location(name, 3, 4)) == b"3456"
    assert content(Location(name, 3, 0)) == b""


@pytest.mark.parametrize(("offset", "size"), [(8, 3), (100, 1), (0, 11)])
def test_a_stretch_beyond_the_end_is_refused(tmp_path: Path, offset: int, size: int) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    with pytest.raises(UnreadableImage, match="the archive ends within it"):
        Location(str(tmp_path / "a"), offset, size).open()


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        for size in (None, 1):
            with pytest.raises(UnreadableImage, match="not a regular file"):
                Location(str(tmp_path / name), 0, size).open()
