"""Tar shards as webdataset writes them: key.jpg beside key.cls, key.txt or key.json, in name-000000.tar and so on.

Nothing is extracted. The archives' headers are read once, and the places of their members kept in the cache; images
are then read straight from the archives. So a name in an archive is never a path on disk.
"""

import hashlib
import io
import json
import logging
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from somnet.data.index import Index, index_from_columns, join_indexes
from somnet.data.location import MAX_BYTES
from somnet.data.sources.folder import SPLITS
from somnet.data.sources.lists import class_names, repeated
from somnet.data.sources.manifest import label_text
from somnet.errors import DataError
from somnet.system.files import atomic_path, cache_folder, display_name
from somnet.system.parallel import on_all_cores
from somnet.system.progress import track

log = logging.getLogger("somnet")

IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif", "heic", "heif")
LABELS = ("cls", "txt", "json")  # the first of them that is there counts
CLASSES = "classes.txt"  # beside the shards, where numbers stand for classes: one name per line
SPLIT_WORDS = {**SPLITS, b"dev": "val", b"eval": "test", b"evaluation": "test", b"testing": "test"}
LARGEST_HEADER = 1 << 20  # bytes: a name, or a label; more is an attack

FORMAT = 1  # raise it when the table of members changes
MEMBERS = pa.schema(
    [
        ("name", pa.binary()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("label", pa.string()),
        ("true_label", pa.string()),
        ("problem", pa.string()),
    ]
)


def find_shards(root: Path) -> list[Path]:
    """The archives of a folder, and of its train, val and test folders."""
    folders = [root, *(folder for folder in sorted(root.iterdir()) if os.fsencode(folder.name.lower()) in SPLITS)]
    return [file for folder in folders for file in sorted(folder.glob("*.tar")) if file.is_file()]


def read_shards(data: Path) -> Index:
    """The images of one archive or of all archives of a folder."""
    files = [data] if data.is_file() else find_shards(data)
    root = data.parent if data.is_file() else data
    if not files:
        raise DataError(
            f"{data} has no .tar file: give the folder of the shards; compressed ones must be expanded first"
        )
    tables = _members_of(files)
    labels = pa.chunked_array([table["label"].combine_chunks() for table in tables], pa.string())
    classes, numbers = _classes(root, labels.unique().drop_null().to_pylist())
    indexes = []
    for file, table in zip(files, tables, strict=True):
        archive = os.fsencode(file.relative_to(root))
        columns = {
            "file_name": pc.binary_join_element_wise(pa.scalar(archive), table["name"], pa.scalar(b"/")),
            "label": pc.index_in(table["label"], value_set=pa.array(list(numbers), pa.string())),
            "split": repeated(split_of(file.relative_to(root)), len(table)),
            "true_label": table["true_label"],
            "problem": table["problem"],
            "archive": pa.repeat(pa.scalar(archive, pa.binary()), len(table)),
            "offset": table["offset"],
            "size": table["size"],
        }
        indexes.append(index_from_columns(root, classes, columns))
    return join_indexes(root, classes, indexes)


def _classes(root: Path, labels: list[str]) -> tuple[list[str], list[str]]:
    """Names of the classes, and how the labels spell them in the same order: numbers, if there is a list of names."""
    if all(re.fullmatch("0|[1-9][0-9]{0,8}", label) for label in labels):
        if not (root / CLASSES).is_file():
            spelled = sorted(labels, key=int)
            return spelled, spelled
        names = class_names(root / CLASSES)
        if high := [label for label in labels if int(label) >= len(names)]:
            raise DataError(f"{root / CLASSES} has {len(names)} names, but there is a label {high[0]}: complete it")
        return names, [str(number) for number in range(len(names))]
    return sorted(labels), sorted(labels)


def split_of(name: Path) -> str:
    """The split that the words of a name tell, as in photos-val-000012.tar or train/000012.tar; train if none does."""
    words = re.split(rb"[^a-z]+", os.fsencode(name).lower())
    return next((SPLIT_WORDS[word] for word in reversed(words) if word in SPLIT_WORDS), "train")


# --- the members of an archive


def _members_of(files: list[Path]) -> list[pa.Table]:
    """The tables of members, from the cache or from the archives' headers."""
    tables = {file: _cached(file) for file in files}
    unknown = [file for file, table in tables.items() if table is None]
    if unknown:
        with track("listing shards", len(unknown)) as advance:
            for done in on_all_cores(_list_members, unknown):
                advance(len(done))
        tables |= {file: _cached(file) for file in unknown}
    return [_checked(file, table) for file, table in tables.items()]


def _checked(file: Path, table: pa.Table | None) -> pa.Table:
    if table is None:
        raise DataError(f"{file} changes while it is read: wait until it is written, and try again")
    return table


def _cache_file(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.abspath(file))).hexdigest()[:16]
    return cache_folder() / "shards" / f"{name}.parquet"


def _stamp(file: Path) -> dict[bytes, bytes]:
    """What tells a changed archive."""
    status = os.stat(file)
    return {b"somnet": b"%d %d %d %d" % (FORMAT, status.st_size, status.st_mtime_ns, status.st_ctime_ns)}


def _cached(file: Path) -> pa.Table | None:
    try:
        table = pq.read_table(_cache_file(file), page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        return None  # not there, or damaged and as good as not there
    return table if (table.schema.metadata or {}).items() >= _stamp(file).items() else None


def _list_members(file: Path) -> None:
    """Read an archive's headers and keep the table of its images in the cache."""
    stamp = _stamp(file)
    table = pa.Table.from_pylist(list(read_members(file)), schema=MEMBERS.with_metadata(stamp))
    with atomic_path(_cache_file(file)) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def read_members(file: Path) -> Iterator[dict[str, Any]]:
    """A row per image of an archive: where it is, its label, or why it cannot be used."""
    images: list[tuple[str, tarfile.TarInfo]] = []
    labels: dict[str, dict[str, str]] = {}
    with _Archive(file) as archive:
        for member in archive.members():
            key, kind = _key_and_kind(member.name)
            if kind in IMAGES and not member.isdir():
                images.append((key, member))
            elif kind in LABELS and member.isreg() and not member.issparse() and member.size <= LARGEST_HEADER:
                labels.setdefault(key, {})[kind] = archive.text(member)
    names: set[str] = set()
    for key, member in images:
        label, true_label = _label(labels.get(key, {}))
        problem = "the archive has another file of this name: rename one" if member.name in names else _problem(member)
        if label is None:
            problem = problem or f"has no label: add {' or '.join(f'KEY.{kind}' for kind in LABELS)} beside it"
        names.add(member.name)
        yield {
            "name": member.name.removeprefix("./").encode("utf-8", "surrogateescape"),
            "offset": member.offset_data,
            "size": member.size,
            "label": label,
            "true_label": true_label,
            "problem": problem,
        }


class _Archive(io.FileIO):
    """A tar archive of which little is read at once, so that a lie about a size costs no memory."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, "rb")
        self.end = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0 or size > LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size) or b""

    def members(self) -> Iterator[tarfile.TarInfo]:
        """The members in order; an archive that is cut off, damaged or goes in circles is refused."""
        last = -1
        try:
            with tarfile.open(fileobj=self, mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
                while (member := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined]  # a list of all would grow with the archive
                    if member.size < 0 or member.offset_data <= last:
                        raise tarfile.ReadError(f"{member.name!r} has an impossible size or place")
                    if member.isreg() and not member.issparse() and member.offset_data + member.size > self.end:
                        raise tarfile.ReadError(f"it ends within {member.name!r}")
                    last = member.offset_data
                    yield member
                if any(os.pread(self.fileno(), tarfile.BLOCKSIZE, archive.offset)):  # tarfile takes it for the end
                    raise tarfile.ReadError(f"damaged at byte {archive.offset}")
        except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(f"{self.name} is not a valid tar archive ({error}): fetch it again, uncompressed") from None

    def text(self, member: tarfile.TarInfo) -> str:
        """What a small member says."""
        return display_name(os.pread(self.fileno(), member.size, member.offset_data))


def _key_and_kind(name: str) -> tuple[str, str]:
    """The folder and the name up to its first dot, which files of one image share; and the rest."""
    folder, _, base = name.rpartition("/")
    stem, _, kind = base.partition(".")
    return f"{folder}/{stem}", kind.lower() if stem else ""  # a name that begins with a dot is hidden


def _problem(member: tarfile.TarInfo) -> str | None:
    """Why a member cannot be used, judged by its header alone."""
    folders = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in folders or "\0" in member.name:
        return "its name leads outside the archive: rename it"
    if member.issym() or member.islnk():
        return "a link, not a file: put the file itself into the archive"
    if not member.isreg():
        return "a device or a pipe, not a file: leave it out"
    if member.issparse():
        return "stored as a sparse file: write the archive without --sparse"
    if member.size > MAX_BYTES:
        return f"{member.size / 1e9:.1f} GB: at most {MAX_BYTES / 1e9:.0f} GB is read"
    return None


def _label(texts: dict[str, str]) -> tuple[str | None, str | None]:
    """Label and known truth, from the text of a .cls or .txt file or from the fields of a .json file."""
    kind = next((kind for kind in LABELS if kind in texts), None)
    if kind is None:
        return None, None
    if kind != "json":
        return label_text(texts[kind]), None
    try:
        fields = json.loads(texts[kind])
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(fields, dict):
        return None, None
    return label_text(fields.get("label", fields.get("cls"))), label_text(fields.get("true_label"))
