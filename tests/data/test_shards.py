"""Tar shards: read in place, whatever an archive claims."""

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from somnet.config import ProposalConfig
from somnet.data.decode import read_picture
from somnet.data.proposals import scan
from somnet.data.sources import open_source, shards
from somnet.data.sources.shards import read_members
from somnet.errors import DataError, UnreadableImage
from somnet.runs.run import Run
from somnet.system.files import cache_folder

Members = Mapping[str, bytes | str | int]


def write_tar(file: Path, members: Members, *again: Members) -> Path:
    """An archive of these members; names that come again are written again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, content in [pair for part in (members, *again) for pair in part.items()]:
            data = content if isinstance(content, bytes) else str(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


def special(file: Path, *members: Any) -> Path:
    """An archive of members of odd kinds, each (name, kind, link)."""
    with tarfile.open(file, "w") as archive:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
            label = tarfile.TarInfo(name.replace(".jpg", ".cls"))
            label.size = 1
            archive.addfile(label, io.BytesIO(b"0"))
    return file


def rows(file: Path) -> dict[str, dict[str, Any]]:
    return {os.fsdecode(row["name"]): row for row in read_members(file)}


# --- what is in them


def test_images_are_read_in_place(tmp_path: Path) -> None:
    write_tar(
        tmp_path / "a-000000.tar", {"k1.jpg": b"first", "k1.cls": 1, "dir/k2.png": b"second one", "dir/k2.cls": 0}
    )
    write_tar(tmp_path / "a-000001.tar", {"k1.cls": 1, "k1.jpg": b"third"})
    index = open_source(tmp_path)
    assert index.classes == ("0", "1")
    assert index.labels().tolist() == [1, 0, 1]
    names = [b"a-000000.tar/k1.jpg", b"a-000000.tar/dir/k2.png", b"a-000001.tar/k1.jpg"]
    assert index.column("file_name") == names
    contents = []
    for row in range(3):
        with index.location(row).open() as stream:
            contents.append(stream.read())
    assert contents == [b"first", b"second one", b"third"]
    assert sorted(os.listdir(tmp_path)) == ["a-000000.tar", "a-000001.tar"]


def test_one_archive_alone_is_a_data_set(tmp_path: Path) -> None:
    index = open_source(
        write_tar(tmp_path / "web.tar", {"1.jpg": b"x", "1.txt": "cat\n", "2.jpg": b"x", "2.txt": "dog"})
    )
    assert (index.classes, index.column("split")) == (("cat", "dog"), ["train", "train"])


@pytest.mark.parametrize(
    ("members", "label", "truth"),
    [
        ({"a.txt": " oak, red \n"}, "oak, red", None),
        ({"a.json": json.dumps({"label": "oak", "true_label": "ash", "url": "x"})}, "oak", "ash"),
        ({"a.json": json.dumps({"cls": 7})}, "7", None),
        ({"a.cls": b"7\n", "a.txt": "a caption", "a.json": "{}"}, "7", None),
        ({"a.txt": b"caf\xe9"}, "caf\\xe9", None),
    ],
)
def test_labels_stand_beside_their_image(
    tmp_path: Path, members: dict[str, Any], label: str, truth: str | None
) -> None:
    found = rows(write_tar(tmp_path / "a.tar", {**members, "a.jpg": b"x"}))["a.jpg"]
    assert (found["label"], found["true_label"], found["problem"]) == (label, truth, None)


@pytest.mark.parametrize(
    "members", [{}, {"b.cls": 1}, {"a.json": "{"}, {"a.json": "[3]"}, {"a.json": "{}"}, {"a.txt": "  "}, {"x/a.cls": 1}]
)
def test_an_image_without_a_label_has_a_reason(tmp_path: Path, members: dict[str, Any]) -> None:
    found = rows(write_tar(tmp_path / "a.tar", {**members, "a.jpg": b"x"}))["a.jpg"]
    assert (found["label"], found["problem"]) == (None, "has no label: add KEY.cls or KEY.txt or KEY.json beside it")


def test_a_list_of_names_tells_what_the_numbers_mean(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {f"{i}.jpg": b"x" for i in range(11)} | {f"{i}.cls": i for i in range(11)})
    assert open_source(tmp_path).classes == tuple(map(str, range(11)))  # in the order of numbers
    names = [f"class {chr(122 - i)}" for i in range(12)]
    (tmp_path / "classes.txt").write_text("\n".join(names) + "\n")
    index = open_source(tmp_path)
    assert (index.classes, index.labels().tolist()) == (tuple(names), list(range(11)))
    (tmp_path / "classes.txt").write_text("only one\n")
    with pytest.raises(DataError, match="has 1 names, but there is a label"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train/000.tar", "train"),
        ("validation/000.tar", "val"),
        ("test/train.tar", "train"),
        ("photos-val-000001.tar", "val"),
        ("PHOTOS_TEST_1.tar", "test"),
        ("contest-1.tar", "train"),
    ],
)
def test_names_tell_the_split(tmp_path: Path, name: str, split: str) -> None:
    write_tar(tmp_path / name, {"1.jpg": b"x", "1.cls": 0})
    assert open_source(tmp_path).column("split") == [split]


def test_hidden_files_and_others_are_no_images(tmp_path: Path) -> None:
    members: Members = {
        "a.jpg": b"x",
        "a.cls": 0,
        "._a.jpg": b"x",
        "a.seg.png": b"x",
        "a.npy": b"x",
        "d.jpg/": b"",
        "README": b"x",
    }
    assert list(rows(write_tar(tmp_path / "a.tar", members))) == ["a.jpg"]


def test_odd_names_survive(tmp_path: Path) -> None:
    odd = ["=1+1.jpg", "<b>.jpg", "שלום.jpg", "x" * 200 + ".jpg", os.fsdecode(b"caf\xe9.jpg")]
    members = dict.fromkeys(odd, b"x") | {name.replace(".jpg", ".cls"): b"0" for name in odd}
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w", encoding="utf-8", errors="surrogateescape") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    index = open_source(file)
    assert index.column("problem") == [None] * len(odd)
    assert [name.removeprefix(b"a.tar/") for name in index.column("file_name")] == [os.fsencode(name) for name in odd]


# --- the cache of places


def test_archives_are_listed_once_and_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_tar(tmp_path / "web/a.tar", {"1.jpg": b"x", "1.cls": 0})
    first = open_source(tmp_path / "web")
    with monkeypatch.context() as patch:
        patch.setattr(shards, "read_members", lambda _: pytest.fail("the archive is listed again"))
        assert open_source(tmp_path / "web").table.equals(first.table)
    write_tar(file, {"2.jpg": b"xy", "2.cls": 1})
    assert open_source(tmp_path / "web").column("file_name") == [b"a.tar/2.jpg"]


def test_a_damaged_cache_is_as_good_as_none(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"1.jpg": b"x", "1.cls": 0})
    first = open_source(tmp_path)
    for file in (cache_folder() / "shards").iterdir():
        file.write_bytes(b"PAR1 nonsense")
    assert open_source(tmp_path).table.equals(first.table)


# --- hostile archives


@pytest.mark.parametrize("name", ["../out.jpg", "a/../../out.jpg", "/etc/out.jpg"])
def test_names_that_lead_outside_are_never_used(tmp_path: Path, name: str) -> None:
    file = write_tar(tmp_path / "a.tar", {name: b"x", name.replace(".jpg", ".cls"): 0, "b.jpg": b"x", "b.cls": 1})
    found = rows(file)
    assert found["b.jpg"]["problem"] is None
    assert found[name]["problem"] == "its name leads outside the archive: rename it"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a device or a pipe"),
    ],
)
def test_links_and_devices_are_never_followed(tmp_path: Path, kind: bytes, said: str) -> None:
    (tmp_path / "secret").write_text("secret")
    file = special(tmp_path / "a.tar", ("a.jpg", kind, str(tmp_path / "secret")))
    assert rows(file)["a.jpg"]["problem"].startswith(said)
    found = scan(open_source(file), ProposalConfig(max_boxes=2), workers=1)
    assert found.keys.to_pylist() == [None]
    assert found.reasons[0].as_py() is not None
    assert found.reasons[0].as_py().startswith(said)


def test_a_label_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.cls").write_text("secret")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        image = tarfile.TarInfo("a.jpg")
        label = tarfile.TarInfo("a.cls")
        label.type, label.linkname = tarfile.SYMTYPE, str(tmp_path / "a.cls")
        archive.addfile(image)
        archive.addfile(label)
    assert rows(tmp_path / "a.tar")["a.jpg"]["label"] is None


def test_a_second_file_of_a_name_has_a_reason(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "a.tar", {"a.jpg": b"1", "a.cls": 0}, {"a.jpg": b"2"}, {"a.jpg": b"3"})
    problems = [row["problem"] for row in read_members(file)]
    assert problems[0] is None
    assert all("another file of this name" in problem for problem in problems[1:])


@pytest.mark.parametrize("size", [10**6, 2**40, 2**62, -1, -(2**40)])
def test_a_lie_about_a_size_is_found_out(tmp_path: Path, size: int) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.size = size
    header = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(header + b"x" * 512 + b"\0" * 1024)
    with pytest.raises(DataError, match=r"a\.tar is not a valid tar archive .*: fetch it again"):
        open_source(tmp_path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_name_of_gigabytes_is_not_read(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.size, info.type = 8 << 30, kind
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(9 << 30)  # a hole, which takes no room on the disk
    with pytest.raises(DataError, match="a header of 8589934592 bytes"):
        open_source(tmp_path)


@pytest.mark.parametrize("keep", [0, 100, 700, 1300, 2100])
def test_a_cut_archive_is_refused(tmp_path: Path, keep: int) -> None:
    file = write_tar(tmp_path / "a.tar", {"a.jpg": b"x" * 600, "a.cls": 0, "b.jpg": b"x" * 600, "b.cls": 0})
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a\.tar is not a valid tar archive"):
        open_source(tmp_path)


def test_damage_in_the_middle_is_not_taken_for_the_end(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "a.tar", {"a.jpg": b"x", "a.cls": 0, "b.jpg": b"x", "b.cls": 0})
    content = bytearray(file.read_bytes())
    content[1024 + 150] ^= 0xFF  # the checksum of the second header
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged at byte 1024"):
        open_source(tmp_path)


@given(st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_mutated_archives_are_listed_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], fix_checksum: bool
) -> None:
    file = write_tar(
        tmp_path_factory.getbasetemp() / "mutated.tar",
        {"a.jpg": b"x" * 600, "a.cls": 0, "d/b.png": b"y", "d/b.txt": "cat"},
    )
    content = bytearray(file.read_bytes())
    for place, value in changes:
        content[place] = value
    if fix_checksum:  # the first header's checksum, so that the reader accepts it
        content[148:156] = b" " * 8
        content[148:156] = b"%06o\0 " % sum(content[:512])
    file.write_bytes(content)
    with contextlib.suppress(DataError):  # any other error fails the test
        for row in read_members(file):
            if row["problem"] is None:
                assert 0 <= row["offset"] <= row["offset"] + row["size"] <= len(content)


def test_an_archive_that_shrinks_gives_a_reason(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "a.tar", {"a.jpg": b"x" * 600, "a.cls": 0})
    location = open_source(file).location(0)
    file.write_bytes(b"short")
    with pytest.raises(UnreadableImage, match="the archive ends within it"):
        read_picture(location)


# --- all the way


@pytest.fixture(scope="module")
def packed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos of the plain folder as shards, in the same order."""
    root = tmp_path_factory.mktemp("packed")
    for split in ("train", "test"):
        files = [file for folder in sorted((data / split).iterdir()) for file in sorted(folder.iterdir())]
        for number in range(0, len(files), 5):
            members: dict[str, bytes | str | int] = {}
            for place, file in enumerate(files[number : number + 5]):
                members |= {f"{place:06d}.png": file.read_bytes(), f"{place:06d}.txt": file.parent.name}
            write_tar(root / f"{split}-{number // 5:06d}.tar", members)
    return root


def test_a_run_on_shards_is_a_run_on_files(
    data: Path, packed: Path, tmp_path: Path, tiny: Any, cli: Callable[..., Any], photos: Any
) -> None:
    before = photos.fingerprint(packed)
    flags = ["--method", "plain", "--freeze", "none", "--epochs", 2, *tiny.flags()]
    for source, out, workers in ((data, "files", 0), (packed, "shards", 2)):
        done = cli("train", source, "--out", tmp_path / out, "--workers", workers, *flags)
        assert done.code == 0, done.err
    of_files, of_shards = (Run(tmp_path / out) for out in ("files", "shards"))
    assert of_shards.summary["test"] == of_files.summary["test"]
    assert np.array_equal(of_shards.scores()["label_score"].to_numpy(), of_files.scores()["label_score"].to_numpy())
    assert of_shards.scores()["file_name"][0].as_py() == "train-000000.tar/000000.png"
    evaluated = cli("eval", tmp_path / "shards", packed, "--workers", 2)
    assert f"top-1 {100 * of_files.summary['test']['top1']:.2f} %" in evaluated.out
    proposed = cli("propose", packed, *tiny.flags())
    assert proposed.out.startswith("24 images with")
    cleaned = cli("clean", tmp_path / "shards", "--out", tmp_path / "cleaned", "--threshold", 0)
    assert cleaned.code == 0, cleaned.err
    content = {file.read_bytes() for file in data.rglob("*.png")}
    written = [file.read_bytes() for file in (tmp_path / "cleaned").rglob("*.png")]
    assert len(written) > 10  # but for look-alikes all
    assert set(written) <= content
    pictures = list((tmp_path / "shards" / "report" / "pictures").glob("[0-9]*/*.jpg"))
    assert len(pictures) == of_shards.data["images"]
    assert photos.fingerprint(packed) == before
