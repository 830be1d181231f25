"""Zip files of class folders, read in place, whatever they claim."""

import io
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.data.sources import open_source
from somnet.data.sources.folder import BESIDE, HIDDEN
from somnet.data.sources.zipped import splits_and_classes
from somnet.errors import DataError, UnreadableImage

if TYPE_CHECKING:
    from tests.conftest import Photos


def write_zip(file: Path, members: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def listing(data: Path) -> list[tuple[str, str, str]]:
    """Split, class and file name of each image."""
    index = open_source(data)
    columns = zip(index.column("split"), index.labels().tolist(), index.column("file_name"), strict=True)
    return [(split, index.classes[label], os.fsdecode(name)) for split, label, name in columns]


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_images_are_read_in_place(tmp_path: Path, how: int) -> None:
    contents = {"cat/1.jpg": b"first" * 100, "dog/2.jpg": b"second"}
    file = write_zip(tmp_path / "pets.zip", {**contents, "cat/notes.txt": b"x", "__MACOSX/cat/._1.jpg": b"x"}, how)
    index = open_source(file)
    assert index.classes == ("cat", "dog")
    assert listing(file) == [("train", "cat", "pets.zip/cat/1.jpg"), ("train", "dog", "pets.zip/dog/2.jpg")]
    for location, content in zip(index.locations(), contents.values(), strict=True):
        with location.open() as stream:
            assert stream.read() == content
    assert os.listdir(tmp_path) == ["pets.zip"]


def test_a_folder_that_has_nothing_but_zips(tmp_path: Path) -> None:
    write_zip(tmp_path / "train.zip", {"train/cat/1.jpg": b"1", "train/dog/2.jpg": b"2"})
    write_zip(tmp_path / "test.zip", {"cat/3.jpg": b"3"})
    assert sorted(listing(tmp_path)) == [
        ("test", "cat", "test.zip/cat/3.jpg"),
        ("train", "cat", "train.zip/train/cat/1.jpg"),
        ("train", "dog", "train.zip/train/dog/2.jpg"),
    ]


def test_a_zip_for_each_class(tmp_path: Path) -> None:
    write_zip(tmp_path / "cat.zip", {"1.jpg": b"1"})
    write_zip(tmp_path / "dog.zip", {"2.jpg": b"2"})
    assert [name for _, name, _ in listing(tmp_path)] == ["cat", "dog"]


def test_a_zip_beside_class_folders_is_passed_over(tmp_path: Path) -> None:
    write_zip(tmp_path / "cat" / "old.zip", {"1.jpg": b"1"})
    write_zip(tmp_path / "all.zip", {"cat/1.jpg": b"1"})
    (tmp_path / "cat" / "1.jpg").write_bytes(b"x")
    assert listing(tmp_path) == [("train", "cat", "cat/1.jpg")]


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ([("cat",), ("dog", "deep")], [("train", "cat"), ("train", "dog")]),
        ([("web", "cat"), ("web", "dog")], [("train", "cat"), ("train", "dog")]),
        ([("a", "b", "train", "cat"), ("a", "b", "test", "cat")], [("train", "cat"), ("test", "cat")]),
        ([("test", "cat"), ("test", "dog")], [("test", "cat"), ("test", "dog")]),
        ([("test",), ("exam",)], [("train", "test"), ("train", "exam")]),
        ([("cat",), ()], [("train", "cat"), ("train", None)]),
        ([("Train", "cat"), ("VAL", "cat"), ("Train",)], [("train", "cat"), ("val", "cat"), ("train", None)]),
        ([("train", "cat"), ("extra",)], [("train", "cat"), BESIDE]),
        ([("train", "cat"), ()], [("train", "cat"), ("train", None)]),
        ([("web", "cat"), ("web", "dog"), ("web", ".old")], [("train", "cat"), ("train", "dog"), HIDDEN]),
        ([("web", "cat"), ("web", "dog"), (".git", "x")], [("train", "cat"), ("train", "dog"), HIDDEN]),
        ([("train", "cat"), ("train", ".old")], [("train", "cat"), HIDDEN]),
        ([("cat", ".thumbs"), ("cat",), ("dog",)], [None, ("train", "cat"), ("train", "dog")]),
        ([(".old", "cat"), (".old", "dog")], [HIDDEN, HIDDEN]),
        ([], []),
    ],
)
def test_what_the_folders_tell(places: list[tuple[str, ...]], told: list[tuple[str, str | None] | str | None]) -> None:
    assert list(splits_and_classes(places)) == told


def test_what_cannot_be_used_has_a_reason(tmp_path: Path) -> None:
    file = write_zip(tmp_path / "a.zip", {"cat/1.jpg": b"1", "dog/1.jpg": b"1", "../up.jpg": b"2", "/etc/x.jpg": b"3"})
    with zipfile.ZipFile(file, "a") as archive:
        link = zipfile.ZipInfo("cat/link.jpg")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("cat/odd.jpg", b"4" * 50, zipfile.ZIP_BZIP2)
        archive.writestr("loose.jpg", b"5")
    index = open_source(file)
    problems = dict(zip(map(os.fsdecode, index.column("file_name")), index.column("problem"), strict=True))
    assert problems.pop("a.zip/cat/1.jpg") is None
    assert problems.pop("a.zip/dog/1.jpg") is None
    assert [(name, (why or "").partition(":")[0]) for name, why in problems.items()] == [
        ("a.zip/../up.jpg", "its name leads outside the archive"),
        ("a.zip//etc/x.jpg", "its name leads outside the archive"),
        ("a.zip/cat/link.jpg", "a link, not a file"),
        ("a.zip/cat/odd.jpg", "is compressed in an unusual way"),
        ("a.zip/loose.jpg", "lies in no class folder"),
    ]


def test_folders_that_are_left_out_are_named_as_on_disk(tmp_path: Path, photos: "Photos") -> None:
    content = io.BytesIO()
    photos.picture(0, 0).save(content, "PNG")
    picture = content.getvalue()
    pictures = ["train/cat/1.png", "train/dog/1.png", "train/.fox/deep/1.png", "extra/1.png", "train/cat/.small/1.png"]
    others = {"train/.git/objects/ab": b"no picture", "notes/a.rst": b"x", "__MACOSX/train/.fox/._1.png": b"x"}
    members = {**dict.fromkeys(pictures, picture), **others}
    write_zip(tmp_path / "a.zip", members)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "disk")
    shutil.rmtree(tmp_path / "disk" / "__MACOSX")
    zipped, unpacked = open_source(tmp_path / "a.zip"), open_source(tmp_path / "disk")
    assert zipped.classes == unpacked.classes == ("cat", "dog")
    assert [name.removeprefix(b"a.zip/") for name in zipped.column("file_name")] == unpacked.column("file_name")
    named = {f"'train/.fox' ({HIDDEN})", f"'extra' ({BESIDE})"}
    assert set(unpacked.passed_over) == named
    assert {text.replace("a.zip/", "") for text in zipped.passed_over} == named


def test_a_zip_of_hidden_folders_alone_says_so(tmp_path: Path, photos: "Photos") -> None:
    content = io.BytesIO()
    photos.picture(0, 0).save(content, "PNG")
    write_zip(tmp_path / "a.zip", {".cat/1.png": content.getvalue()})
    with pytest.raises(DataError, match=r"no images \('a.zip/.cat' \(hidden: its name begins with a dot\)\)"):
        open_source(tmp_path / "a.zip")


def test_a_lie_about_the_packed_size_costs_no_memory(tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "a.zip", {"cat/1.jpg": b"1" * 100}).read_bytes())
    place = content.index(b"PK\x01\x02") + 20  # the packed size of the only member in the list
    content[place : place + 4] = struct.pack("<L", 2**32 - 2)
    (tmp_path / "a.zip").write_bytes(content)
    assert "4.3 GB: at most 1 GB is read" in open_source(tmp_path / "a.zip").column("problem")[0]


def test_an_encrypted_member_is_left_out(tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "a.zip", {"cat/1.jpg": b"1"}).read_bytes())
    place = content.index(b"PK\x01\x02") + 8  # the flags of the only member in the list
    content[place] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    assert "is encrypted" in open_source(tmp_path / "a.zip").column("problem")[0]


@pytest.mark.parametrize("damage", ["cut", "moved", "text"])
def test_a_damaged_archive_is_refused(tmp_path: Path, damage: str) -> None:
    content = write_zip(tmp_path / "a.zip", {"cat/1.jpg": b"1" * 100}).read_bytes()
    damaged = {"cut": content[:-30], "moved": content.replace(b"PK\x03\x04", b"XX\x03\x04"), "text": b"hello"}
    (tmp_path / "a.zip").write_bytes(damaged[damage])
    with pytest.raises(DataError, match="is not a valid zip archive"):
        open_source(tmp_path / "a.zip")


def test_damaged_bytes_are_an_unreadable_image(tmp_path: Path) -> None:
    file = write_zip(tmp_path / "a.zip", {"cat/1.jpg": os.urandom(100) * 10})
    location = open_source(file).location(0)
    assert location.size is not None
    content = bytearray(file.read_bytes())
    content[location.offset : location.offset + location.size] = b"\xff" * location.size
    file.write_bytes(content)
    with pytest.raises(UnreadableImage, match="damaged"):
        location.open()


def test_few_bytes_do_not_become_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive may lie about sizes: what it inflates to is bounded."""
    monkeypatch.setattr("somnet.data.location.MAX_BYTES", 1000)
    file = write_zip(tmp_path / "a.zip", {"cat/1.jpg": bytes(1_000_000)})
    content = file.read_bytes().replace(struct.pack("<L", 1_000_000), struct.pack("<L", 10))
    file.write_bytes(content)
    stream = open_source(file).location(0).open()
    assert isinstance(stream, io.BytesIO)
    assert len(stream.getvalue()) == 1001
