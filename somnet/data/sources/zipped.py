"""Zip files of class folders, read in place: a name in an archive is never a path on disk."""

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from somnet.data.index import Index, make_index
from somnet.data.location import MAX_BYTES
from somnet.data.sources.folder import SPLITS, is_candidate, split_folders
from somnet.errors import DataError
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
    classes = sorted({name for _, name in told if name is not None})
    number = {name: i for i, name in enumerate(classes)}
    index_rows = (
        {
            **row,
            "file_name": row["archive"] + b"/" + _bytes(row["name"]),
            "split": split,
            "label": None if name is None else number[name],
            "problem": row["problem"] or ("lies in no class folder: put it into one" if name is None else None),
        }
        for row, (split, name) in zip(rows, told, strict=True)
    )
    listed = ({key: value for key, value in row.items() if key != "name"} for row in index_rows)
    return make_index(root, (display_name(_bytes(name)) for name in classes), listed)


def splits_and_classes(places: list[Folders]) -> Iterator[tuple[str, str | None]]:
    """The split and the class that the folders of each image tell, below what is above all of them."""
    while places and all(len(place) > 1 and place[0] == places[0][0] for place in places):
        if _bytes(places[0][0].lower()) in SPLITS:
            break
        places = [place[1:] for place in places]
    splits = split_folders({_bytes(place[0]) for place in places if place})
    for place in places:
        top = _bytes(place[0]) if place else b""
        own = place[1:] if top in splits else place
        yield SPLITS[top.lower()] if top in splits else "train", own[0] if own else None


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
    """Neither hidden, nor what a Mac leaves beside every file, nor a sidecar."""
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") and part != ".." for part in parts)
    return bool(parts) and not hidden and parts[0] != "__MACOSX" and is_candidate(_bytes(parts[-1]))


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
    if member.file_size > MAX_BYTES:
        return f"{member.file_size / 1e9:.1f} GB: at most {MAX_BYTES / 1e9:.0f} GB is read"
    return None


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
