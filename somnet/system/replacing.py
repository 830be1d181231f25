"""Folders that somnet writes whole: a new one takes the old one's place, and what is not somnet's stays in it.

Each has a list of what somnet wrote, and nothing else is ever deleted. While a folder NAME is replaced, there are
`.NAME.somnet-new` beside it, which is being built, `.NAME.somnet-old`, which it replaces, and `.NAME.somnet-lock`.
Whenever that is killed, every file of the user's is in the folder or in the old one, and the next writer puts it right.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from somnet.errors import RunError, SomnetError
from somnet.system.files import flush_to_disk, parse_json, write_text
from somnet.system.folders import refuse_taken
from somnet.system.locks import one_writer

log = logging.getLogger("somnet")

LIST = ".somnet.json"  # of what somnet wrote in a folder


@contextlib.contextmanager
def replaced_folder(target: Path, kind: str, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write into; on success it takes the target's place, with all that somnet had not written there.

    A target that is not a somnet `kind` is refused, and one that is unless `overwrite`; so is a second writer.
    """
    refuse_working_folder(target)
    place = Path(os.path.realpath(target))
    new = _beside(place, "new")
    with one_writer(_beside(place, "lock"), target):
        try:
            _settle(place)
            ours, how = (lambda: is_written(place, kind)), "--overwrite to replace it"
            refuse_taken(target, f"a somnet {kind}", ours=ours, meant=overwrite, how=how, replaced=True)
            new.mkdir()
            yield new
            _write_list(new, kind, list(_entries(new)), whole=True)
            if place.exists():
                _carry(place, new, kind)
            _swap(new, place)
        except OSError as error:
            why = error.strerror or str(error)
            raise SomnetError(f"cannot write {target}: {why}: choose a writable place with free space") from error
        finally:
            shutil.rmtree(new, ignore_errors=True)


def settle_folder(target: Path) -> None:
    """Put right what a killed replacement of a folder has left beside it, if anything."""
    place = Path(os.path.realpath(target))
    if any(_beside(place, name).exists() for name in ("new", "old", "lock")):
        with one_writer(_beside(place, "lock"), target):
            _settle(place)


def clear_folder(target: Path, kind: str) -> None:
    """Delete what somnet wrote in a folder. What is left may be replaced by the next of its kind."""
    place = Path(os.path.realpath(target))
    with one_writer(_beside(place, "lock"), target):
        written = _read_list(place)["files"]
        _write_list(place, kind, written, whole=False)  # from here on nobody takes it for a whole one
        for name in written:
            _remove_written(place, name)
        _remove_empty(place, [name for name in written if name != LIST])
        if any(name != LIST for name in os.listdir(place)):
            _write_list(place, kind, [], whole=False)
        else:
            shutil.rmtree(place)


def is_written(target: Path, kind: str, *, whole: bool = False) -> bool:
    """Whether a folder is of a kind that somnet writes; and whether nothing of it was taken away."""
    told = _read_list(target)
    return told["kind"] == kind and (told["whole"] or not whole)


def refuse_working_folder(target: Path) -> None:
    """Refuse to replace the folder that the user is in: the shell would be left in one that is gone."""
    if Path.cwd().is_relative_to(target.resolve()):
        raise SomnetError(f"{target} is the folder you are in, or contains it: give --out the name of a new folder")


def _beside(place: Path, what: str) -> Path:
    return place.with_name(f".{place.name}.somnet-{what}")


def _read_list(folder: Path) -> dict[str, Any]:
    """Kind and files, as far as a folder has a list that can be read."""
    try:
        told = parse_json((folder / LIST).read_text(encoding="utf-8"))
        return {
            "kind": str(told["kind"]),
            "whole": told["whole"] is True,
            "files": [str(name) for name in told["files"]],
        }
    except (OSError, ValueError, TypeError, KeyError):
        return {"kind": None, "whole": False, "files": []}


def _write_list(folder: Path, kind: str, files: list[str], *, whole: bool) -> None:
    write_text(folder / LIST, json.dumps({"kind": kind, "whole": whole, "files": sorted(files)}, indent=0) + "\n")


def _entries(folder: Path) -> Iterator[str]:
    """All files below a folder, links, and folders that are empty; links are not followed."""

    def refuse(error: OSError) -> None:
        raise error

    for where, folders, files in os.walk(folder, onerror=refuse):
        base = os.path.relpath(where, folder)
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        yield from (os.path.normpath(os.path.join(base, name)) for name in (*files, *links))
        if not folders and not files and base != os.curdir:
            yield base


def _foreign(folder: Path) -> list[str]:
    """What somnet did not write in a folder."""
    written = {*_read_list(folder)["files"], LIST}
    return [name for name in _entries(folder) if name not in written]


def _carry(old: Path, new: Path, kind: str) -> None:
    """Give a new folder what somnet did not write in the old one. The old one keeps it, too."""
    names = _foreign(old)
    for name in names:
        if not _bring(old, new, name):
            raise RunError(
                f"{old / name} was not written by somnet, and the new {kind} has a file there: move it away first"
            )
    shutil.copymode(old, new)
    if names:
        log.info("%s: %d files that somnet did not write stay, as %s", old, len(names), names[0])


def _bring(source: Path, target: Path, name: str) -> bool:
    """The same file, link or empty folder in another folder; False where something has its place."""
    there = target / name
    try:
        for above in reversed([*(Path(name).parents)][:-1]):
            if (target / above).is_symlink():
                return False
            if not (target / above).is_dir():
                (target / above).mkdir()
                shutil.copystat(source / above, target / above)
        if os.path.lexists(there):
            return False
    except (FileExistsError, NotADirectoryError):
        return False
    if (source / name).is_dir() and not (source / name).is_symlink():
        there.mkdir()
        shutil.copystat(source / name, there)
        return True
    try:
        os.link(source / name, there, follow_symlinks=False)
    except OSError:  # a file system without hard links
        shutil.copy2(source / name, there, follow_symlinks=False)
        if not there.is_symlink():
            flush_to_disk(there)
    return True


def _swap(new: Path, place: Path) -> None:
    """A folder takes the place beside it; what stood there is deleted then, or is back if that fails."""
    old = _beside(place, "old")
    try:
        if place.exists():
            os.rename(place, old)
        os.rename(new, place)
        flush_to_disk(place.parent)
    finally:
        if old.exists() and not place.exists():
            os.rename(old, place)
    if old.exists():
        _drop(old, place)


def _settle(place: Path) -> None:
    """Whatever moment a writer was killed at, one folder is left, with all that was not somnet's."""
    old, new = _beside(place, "old"), _beside(place, "new")
    if old.exists() and not place.exists():  # between the two renames
        os.rename(old, place)
        log.warning("%s is back, as it was before it should have been replaced by a process that was killed", place)
    elif old.exists():  # while the old one was deleted
        for name in _foreign(old):
            _bring(old, place, name)
        _drop(old, place)
    shutil.rmtree(new, ignore_errors=True)  # what it has of the user's, the folder has, too


def _drop(old: Path, successor: Path) -> None:
    """Delete a folder that was replaced, but nothing that its successor lacks and somnet did not write."""
    written = _read_list(old)["files"]
    foreign = [name for name in _foreign(old) if _is_same(old / name, successor / name)]
    for name in (*written, *foreign):
        _remove_written(old, name)
    _remove_empty(old, [*written, *foreign])
    if any(name != LIST for name in os.listdir(old)):
        log.warning("%s has files that were not written by somnet: look through it, and delete it by hand", old)
    else:
        shutil.rmtree(old)  # the list last: without it nobody could tell what may go


def _remove_written(folder: Path, name: str) -> None:
    """Delete a file of a folder, or a folder of it that is empty."""
    file = folder / name
    if name == LIST or _leads_out(folder, Path(name)):
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if file.is_dir() and not file.is_symlink():
            with contextlib.suppress(OSError):  # not empty any more
                file.rmdir()
        else:
            file.unlink()


def _remove_empty(folder: Path, names: list[str]) -> None:
    """Delete the folders of deleted files that are empty now."""
    above = {parent for name in names for parent in Path(name).parents} - {Path(".")}
    for parent in sorted(above, key=lambda path: len(path.parts), reverse=True):
        if not _leads_out(folder, parent) and not (folder / parent).is_symlink():
            with contextlib.suppress(OSError):
                (folder / parent).rmdir()


def _leads_out(folder: Path, name: Path) -> bool:
    """Whether a name, or a link on its way, leads out of a folder: a list may come from a stranger."""
    if name.is_absolute() or ".." in name.parts:
        return True
    return any((folder / above).is_symlink() for above in [*name.parents][:-1])


def _is_same(one: Path, other: Path) -> bool:
    """Whether a file has been brought to another place: linked, or copied with its time."""
    if not os.path.lexists(other):
        return False
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and os.readlink(one) == os.readlink(other)
    if one.is_dir():
        return other.is_dir()
    before, after = one.stat(), other.stat()
    same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    return os.path.samestat(before, after) or (same and one.is_file() and other.is_file())
