"""Files are old or new, never half."""

import json
import os
from pathlib import Path

import pytest

from somnet.errors import SomnetError
from somnet.system.files import (
    atomic_path,
    cache_folder,
    clear_leftovers,
    display_name,
    write_json,
    write_text,
)


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a/b/file") as temporary:
        temporary.write_text("new")
        assert not (tmp_path / "a/b/file").exists()
    assert (tmp_path / "a/b/file").read_text() == "new"
    assert os.listdir(tmp_path / "a/b") == ["file"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old and long")
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    write_text(tmp_path / "file", "old")

    def fail() -> None:
        with atomic_path(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_a_somnet_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")

    def fail() -> None:
        with atomic_path(tmp_path / "file"):
            raise OSError(28, "No space left on device")

    with pytest.raises(SomnetError, match="No space left"):
        fail()
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_place_that_cannot_be_written_is_a_somnet_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SomnetError, match="cannot write"):
        write_text(tmp_path / "file/below", "x")


def test_a_folder_in_the_way_is_a_somnet_error(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(SomnetError, match="cannot write"):
        write_text(tmp_path / "target", "x")
    assert os.listdir(tmp_path) == ["target"]


def test_what_a_kill_left_is_cleared_once_it_is_old_enough(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    ages = {"deep/.a.bin.x1.somnet-part": 7200, ".b.bin.x2.somnet-part": 60, ".mine.part": 7200, ".hidden": 7200}
    for name, age in ages.items():
        (tmp_path / name).touch()
        then = (tmp_path / name).stat().st_mtime - age
        os.utime(tmp_path / name, (then, then))
    clear_leftovers(tmp_path, hours=1)
    assert sorted(os.listdir(tmp_path)) == [".b.bin.x2.somnet-part", ".hidden", ".mine.part", "deep"]
    assert os.listdir(tmp_path / "deep") == []
    clear_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", ".mine.part", "deep"]


def test_what_another_process_is_writing_in_a_hidden_folder_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / ".report.somnet-new" / "data").mkdir(parents=True)
    theirs = tmp_path / ".report.somnet-new" / "data" / ".cards.js.x1.somnet-part"
    theirs.touch()
    clear_leftovers(tmp_path)
    assert theirs.exists()


def test_a_written_file_can_be_read_by_others(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"ä": [1, 2.5, None], "b": "猫"}
    write_json(tmp_path / "file.json", value)
    text = (tmp_path / "file.json").read_text(encoding="utf-8")
    assert json.loads(text) == value
    assert "猫" in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"cat.jpg", "cat.jpg"), ("café".encode(), "café"), (b"caf\xe9.jpg", "caf\\xe9.jpg"), (b"", "")],
)
def test_names_are_shown_as_text(name: bytes, shown: str) -> None:
    assert display_name(name) == shown
    display_name(name).encode("utf-8")


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("SOMNET_CACHE")
    assert cache_folder() == tmp_path / "xdg/somnet"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/somnet"
