"""Zip files of class folders, read in place: a name in an archive is never a path on disk."""

import os
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from somnet.data.decode import read_picture
from somnet.data.index import Index, make_index
from somnet.data.location import MAX_BYTES, Location
from somnet.data.sources.folder import BESIDE, HIDDEN, MOST_TRIED, SPLITS, is_candidate, split_folders
from somnet.errors import DataError, UnreadableImage
from somnet.system.files import display_name

LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, then the lengths of the name and of the extra field
Folders = tuple[str, ...]


def find_zips(root: Path) -> list[Path]:
    """The archives of a folder."""
    return sorted(file for file in root.iterdir() if file.suffix.lower() == ".zip" and file.is_file())


def read_zips(data: Path) -> Index:
    """The images of one archive, or of all archives of a folder; these may be a split or a class each."""
    files = [data] if data.is_file() else find_zips(data)
    root = data.parent if data.is_file() else data
    if not files:
        raise DataError(f"{data} has no .zip file: give a zip file of class folders, or their folder")
    rows, places = [], []
    for file in files:
        for member in read_members(file):
            folders = PurePosixPath(member["name"]).parts[:-1]
            above = (file.stem,) if len(files) > 1 and folders[:1] != (file.stem,) else ()
            places.append(above + folders)
            rows.append({**member, "archive": os.fsencode(file.relative_to(root))})
    told = list(splits_and_classes(places))
    passed_over = _passed_over(root, [(row, why) for row, why in zip(rows, told, strict=True) if isinstance(why, str)])
    seen = [(row, place) for row, place in zip(rows, told, strict=True) if isinstance(place, Place)]
    classes = sorted({place.label for _, place in seen if place.label is not None})
    number = {name: i for i, name in enumerate(classes)}
    listed = (
        {
            **{key: value for key, value in row.items() if key != "name"},
            "file_name": _file_name(row),
            "split": place.split,
            "label": None if place.label is None else number[place.label],
            "problem": row["problem"] or ("lies in no class folder: put it into one" if place.label is None else None),
        }
        for row, place in seen
    )
    index = make_index(root, (display_name(_bytes(name)) for name in classes), listed)
    return replace(index, passed_over=tuple(passed_over))


class Place(NamedTuple):
    """What the folders of an image tell; no label: it lies in no class folder."""

    split: str
    label: str | None


def splits_and_classes(places: Sequence[Folders]) -> Iterator[Place | str | None]:
    """The split and the class that the folders of each image tell, below what is above all of them.

    As on disk: a reason where a whole folder is left out, None for what is hidden within a class.
    """
    visible = [place for place in places if not any(map(_is_hidden, place))] or places
    above = 0
    while all(len(place) > above + 1 and place[: above + 1] == visible[0][: above + 1] for place in visible):
        if not visible or _bytes(visible[0][above].lower()) in SPLITS:
            break
        above += 1
    splits = split_folders({_bytes(place[above]) for place in visible if len(place) > above})
    for place in places:
        own = place[above:]
        top = _bytes(own[0]) if own else b""
        split, below = (SPLITS[top.lower()], own[1:]) if top in splits else ("train", own)
        if any(map(_is_hidden, place[:above] + below[:1])):
            yield HIDDEN
        elif any(map(_is_hidden, below)):
            yield None
        elif splits and own and top not in splits:
            yield BESIDE
        else:
            yield Place(split, below[0] if below else None)


def _passed_over(root: Path, rows: list[tuple[dict[str, Any], str]]) -> Iterator[str]:
    """The topmost folders of these members that have images, each with the reason why it is left out."""
    folders: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row, why in rows:
        parts = PurePosixPath(row["name"]).parts[:-1]
        depth = next((i for i, part in enumerate(parts, 1) if _is_hidden(part)), 1) if why == HIDDEN else 1
        folder = os.fsdecode(row["archive"]) + "/" + "/".join(parts[:depth])
        folders.setdefault((folder, why), []).append(row)
    for (folder, why), members in folders.items():
        if any(_is_image(root, row) for row in members[:MOST_TRIED]):
            yield f"'{display_name(_bytes(folder))}' ({why})"


def _is_image(root: Path, row: dict[str, Any]) -> bool:
    if row["problem"] is not None:
        return False
    place = Location(str(root / os.fsdecode(row["archive"])), row["offset"], row["size"], row["deflated"])
    try:
        read_picture(place, at_least=1)
    except UnreadableImage:
        return False
    return True


def _file_name(row: dict[str, Any]) -> bytes:
    return bytes(row["archive"] + b"/" + _bytes(row["name"]))


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part != ".."


def read_members(file: Path) -> Iterator[dict[str, Any]]:
    """A row per image of an archive: where it is, or why it cannot be used."""
    try:
        with zipfile.ZipFile(file) as archive, file.open("rb") as stream:
            for member in archive.infolist():
                if not member.is_dir() and _is_seen(member.filename):
                    yield {
                        "name": member.filename,
                        "offset": _start(stream, member),
                        "size": member.compress_size,
                        "deflated": member.compress_type == zipfile.ZIP_DEFLATED,
                        "problem": _problem(member),
                    }
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(f"{file} is not a valid zip archive ({error}): fetch or pack it again") from None


def _is_seen(name: str) -> bool:
    """Neither a hidden file, nor what a Mac leaves beside every file, nor a sidecar."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "__MACOSX" and is_candidate(_bytes(parts[-1]))


def _start(stream: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: behind its own header, whose length the list of members does not tell."""
    stream.seek(member.header_offset)
    header = stream.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise zipfile.BadZipFile(f"{member.filename!r} is not where the list says")
    _, name, extra = LOCAL_HEADER.unpack(header)
    return int(member.header_offset + LOCAL_HEADER.size + name + extra)


def _problem(member: zipfile.ZipInfo) -> str | None:
    """Why a member cannot be used, judged by its header alone."""
    if member.filename.startswith("/") or ".." in PurePosixPath(member.filename).parts:
        return "its name leads outside the archive: rename it"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "a link, not a file: put the file itself into the archive"
    if member.flag_bits & 1:
        return "is encrypted: unpack the archive, or pack it again without a password"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in an unusual way: unpack the archive, or pack it again with deflate"
    if (size := max(member.file_size, member.compress_size)) > MAX_BYTES:
        return f"{size / 1e9:.1f} GB: at most {MAX_BYTES / 1e9:.0f} GB is read"
    return None


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
