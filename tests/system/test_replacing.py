"""Folders that are replaced: nothing that somnet did not write is lost, whenever it is killed."""

import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest

from somnet.errors import RunError, SomnetError
from somnet.system.replacing import LIST, clear_folder, is_written, replaced_folder, settle_folder
from tests.children import exit_code, forked


def write(target: Path, text: str, *, overwrite: bool = True, names: tuple[str, ...] = ("a", "deep/b")) -> None:
    with replaced_folder(target, "report", overwrite=overwrite) as folder:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)


def add_own_files(target: Path) -> dict[str, str]:
    """What a user may put into a folder: hidden files, files beside ours, links, empty folders."""
    (target / ".git" / "objects").mkdir(parents=True)
    (target / ".git" / "HEAD").write_text("ref: main")
    (target / "deep" / "mine").write_text("mine")
    (target / "decisions.csv").write_text("an evening's work")
    (target / "link").symlink_to("/nowhere")
    (target / "folder-link").symlink_to(target.parent)
    (target / "empty").mkdir()
    return own_files(target)


def own_files(target: Path) -> dict[str, str]:
    found = {}
    for file in target.rglob("*"):
        name = str(file.relative_to(target))
        if name in ("a", "c", "deep/b", LIST):
            continue
        if file.is_symlink():
            found[name] = os.readlink(file)
        else:
            found[name] = "folder" if file.is_dir() else file.read_text()
    return found


def test_a_folder_takes_its_place_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new" / "target"
    with replaced_folder(target, "report", overwrite=False) as folder:
        (folder / "a").write_text("first")
        assert not target.exists()
    with pytest.raises(SomnetError, match="cannot write"), replaced_folder(target, "report", overwrite=True) as folder:
        (folder / "missing" / "a").write_text("second")
    assert (target / "a").read_text() == "first"
    write(target, "third", names=("c",))
    assert sorted(os.listdir(target)) == [LIST, "c"]
    assert os.listdir(target.parent) == ["target"]


def test_all_that_somnet_did_not_write_stays(tmp_path: Path) -> None:
    write(tmp_path / "target", "first")
    mine = add_own_files(tmp_path / "target")
    inode = (tmp_path / "target" / "decisions.csv").stat().st_ino
    write(tmp_path / "target", "second", names=("c",))
    assert own_files(tmp_path / "target") == mine
    assert (tmp_path / "target" / "decisions.csv").stat().st_ino == inode
    assert (tmp_path / "target" / "c").read_text() == "second"
    assert not (tmp_path / "target" / "a").exists()
    assert not (tmp_path / "target" / "deep" / "b").exists()
    assert os.listdir(tmp_path) == ["target"]


def test_a_file_in_the_place_of_a_new_one_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "target", "first", names=("a",))
    (tmp_path / "target" / "c").write_text("mine")
    with pytest.raises(RunError, match=r"target/c was not written by somnet.*move it away"):
        write(tmp_path / "target", "second", names=("a", "c"))
    assert (tmp_path / "target" / "c").read_text() == "mine"
    assert (tmp_path / "target" / "a").read_text() == "first"
    (tmp_path / "target" / "c").unlink()
    (tmp_path / "target" / "deep").write_text("a file where a folder should be")
    with pytest.raises(RunError, match=r"target/deep was not written"):
        write(tmp_path / "target", "second")
    assert os.listdir(tmp_path) == ["target"]


def test_only_folders_of_the_kind_are_replaced_and_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a").write_text("mine")
    with pytest.raises(RunError, match="is not a somnet report"):
        write(tmp_path / "thesis", "x")
    with replaced_folder(tmp_path / "model", "export", overwrite=False) as folder:
        (folder / "a").touch()
    with pytest.raises(RunError, match="is not a somnet report"):
        write(tmp_path / "model", "x")
    write(tmp_path / "target", "first")
    with pytest.raises(RunError, match="add --overwrite"):
        write(tmp_path / "target", "second", overwrite=False)
    assert (tmp_path / "thesis" / "a").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["model", "target", "thesis"]


def test_a_link_given_as_target_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "target").symlink_to(tmp_path / "disk" / "target")
    write(tmp_path / "target", "first")
    write(tmp_path / "target", "second")
    assert (tmp_path / "target").is_symlink()
    assert (tmp_path / "disk" / "target" / "a").read_text() == "second"
    assert os.listdir(tmp_path / "disk") == ["target"]


def killed_at(call: int, target: Path, changes: tuple[str, ...]) -> bool:
    """Replace a folder in a child that is killed before its nth change of the file system; whether it came so far."""

    def replace() -> None:
        count = itertools.count()
        for name in changes:

            def counted(*words: object, real: object = getattr(os, name), **more: object) -> object:
                if next(count) == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*words, **more)  # type: ignore[operator]

            setattr(os, name, counted)
        write(target, "second", names=("a", "c"))

    code = exit_code(forked(replace))
    assert code in (0, -signal.SIGKILL)
    return code != 0


ALL_CHANGES = ("rename", "replace", "link", "unlink", "mkdir", "rmdir")


@pytest.mark.parametrize("changes", [("rename", "unlink"), pytest.param(ALL_CHANGES, marks=pytest.mark.long)])
def test_killed_anywhere_nothing_is_lost_and_the_next_writer_puts_it_right(
    tmp_path: Path, changes: tuple[str, ...]
) -> None:
    seen = set()
    for call in itertools.count():
        target = tmp_path / str(call) / "target"
        write(target, "first")
        mine = add_own_files(target)
        if not killed_at(call, target, changes):
            break
        seen.add(tuple(sorted(os.listdir(target.parent))))
        if call % 2:
            settle_folder(target)
            assert own_files(target) == mine
            assert (target / "a").read_text() in ("first", "second")
            assert is_written(target, "report", whole=True)
        else:
            write(target, "third")
            assert own_files(target) == mine
            assert (target / "a").read_text() == "third"
        assert os.listdir(target.parent) == ["target"]
    assert call > 4 * len(changes)
    assert (".target.somnet-lock", ".target.somnet-new", ".target.somnet-old") in seen  # between the two renames
    assert (".target.somnet-lock", ".target.somnet-old", "target") in seen  # while the old one was deleted


def test_what_a_kill_left_is_not_mixed_up_with_a_folder_made_since(tmp_path: Path) -> None:
    write(tmp_path / "target", "first")
    (tmp_path / "target" / "mine").write_text("mine")
    (tmp_path / "target").rename(tmp_path / ".target.somnet-old")
    write(tmp_path / ".target.somnet-new", "second")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "mine").write_text("another")
    with pytest.raises(RunError, match="is not a somnet report"):
        write(tmp_path / "target", "third")
    assert (tmp_path / "target" / "mine").read_text() == "another"
    assert (tmp_path / ".target.somnet-old" / "mine").read_text() == "mine"


def test_clearing_leaves_what_is_not_ours_in_a_folder_that_may_be_replaced(tmp_path: Path) -> None:
    write(tmp_path / "target", "first")
    clear_folder(tmp_path / "target", "report")
    assert os.listdir(tmp_path) == []
    write(tmp_path / "target", "first")
    mine = add_own_files(tmp_path / "target")
    clear_folder(tmp_path / "target", "report")
    assert own_files(tmp_path / "target") == mine
    assert not (tmp_path / "target" / "a").exists()
    assert not is_written(tmp_path / "target", "report", whole=True)
    write(tmp_path / "target", "second")
    assert own_files(tmp_path / "target") == mine


def test_a_list_of_a_strangers_deletes_nothing_outside(tmp_path: Path) -> None:
    write(tmp_path / "target", "first")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a").write_text("mine")
    (tmp_path / "target" / "out").symlink_to(tmp_path / "thesis")
    names = ["../thesis/a", str(tmp_path / "thesis" / "a"), "out/a", "a/b", "", ".", "..", LIST, "out"]
    (tmp_path / "target" / LIST).write_text(
        f'{{"kind": "report", "whole": true, "files": {names!r}}}'.replace("'", '"')
    )
    write(tmp_path / "target", "second", names=("c",))
    clear_folder(tmp_path / "target", "report")
    assert (tmp_path / "thesis" / "a").read_text() == "mine"


def test_a_folder_that_cannot_be_put_in_its_place_leaves_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "target", "first")
    mine = add_own_files(tmp_path / "target")
    rename = os.rename

    def fail_on_the_new_one(source: Path, place: Path) -> None:
        if source.name.endswith("-new"):
            raise OSError("no")
        rename(source, place)

    monkeypatch.setattr(os, "rename", fail_on_the_new_one)
    with pytest.raises(SomnetError, match="no: choose a writable place"):
        write(tmp_path / "target", "second")
    assert (tmp_path / "target" / "a").read_text() == "first"
    assert own_files(tmp_path / "target") == mine
    assert os.listdir(tmp_path) == ["target"]


def test_without_hard_links_files_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no links here")

    write(tmp_path / "target", "first")
    mine = add_own_files(tmp_path / "target")
    monkeypatch.setattr(os, "link", refuse)
    write(tmp_path / "target", "second")
    assert own_files(tmp_path / "target") == mine
    assert os.listdir(tmp_path) == ["target"]


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot write"):
        write(tmp_path / "file" / "target", "x")
    shutil.rmtree(tmp_path)
