"""Folders as data sets."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from somnet.data.sources import open_source
from somnet.errors import DataError


def put(root: Path, *names: str) -> Path:
    """Files of some names; listing does not open them."""
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return root


def listing(root: Path) -> list[tuple[str, str, str]]:
    """Split, class and file name of each image."""
    index = open_source(root)
    return [
        (split, index.classes[label], os.fsdecode(name))
        for split, label, name in zip(
            index.column("split"), index.labels().tolist(), index.column("file_name"), strict=True
        )
    ]


def test_folders_are_classes(tmp_path: Path) -> None:
    put(tmp_path, "dog/2.jpg", "cat/1.png", "dog/1.jpg")
    assert open_source(tmp_path).classes == ("cat", "dog")
    assert listing(tmp_path) == [
        ("train", "cat", "cat/1.png"),
        ("train", "dog", "dog/1.jpg"),
        ("train", "dog", "dog/2.jpg"),
    ]


def test_paths_lead_to_the_files(tmp_path: Path) -> None:
    index = open_source(put(tmp_path, "cat/1.png"))
    assert Path(index.path(0)) == tmp_path / "cat/1.png"


@pytest.mark.parametrize("name", ["val", "validation", "valid", "VAL"])
def test_splits_are_told_by_their_folders(tmp_path: Path, name: str) -> None:
    put(tmp_path, "train/cat/1.jpg", f"{name}/cat/2.jpg", "test/cat/3.jpg", "test/dog/4.jpg")
    assert sorted(listing(tmp_path)) == [
        ("test", "cat", "test/cat/3.jpg"),
        ("test", "dog", "test/dog/4.jpg"),
        ("train", "cat", "train/cat/1.jpg"),
        ("val", "cat", f"{name}/cat/2.jpg"),
    ]
    assert open_source(tmp_path).splits() == {"train", "val", "test"}


def test_a_class_called_test_is_a_class_where_there_is_no_train(tmp_path: Path) -> None:
    put(tmp_path, "test/1.jpg", "exam/1.jpg")
    assert listing(tmp_path) == [("train", "exam", "exam/1.jpg"), ("train", "test", "test/1.jpg")]


def test_nested_folders_belong_to_the_class(tmp_path: Path) -> None:
    put(tmp_path, "cat/a/b/1.jpg", "cat/0.jpg")
    assert sorted(listing(tmp_path)) == [("train", "cat", "cat/0.jpg"), ("train", "cat", "cat/a/b/1.jpg")]


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "cat/.2.jpg", "cat/.hidden/3.jpg", ".git/4.jpg", "cat/.DS_Store")
    assert [name for *_, name in listing(tmp_path)] == ["cat/1.jpg"]


def test_sidecars_are_skipped_and_odd_names_tried(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "cat/1.txt", "cat/1.JSON", "cat/1.xml", "cat/Thumbs.db", "cat/photo", "cat/2.jpg_large")
    assert [name for *_, name in listing(tmp_path)] == ["cat/1.jpg", "cat/2.jpg_large", "cat/photo"]


def test_files_beside_the_class_folders_are_no_images(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "README", "picture.jpg")
    assert [name for *_, name in listing(tmp_path)] == ["cat/1.jpg"]


@pytest.mark.parametrize(("link", "target"), [("cat/a/up", ".."), ("cat/self", ".")])  # one: two would grow like 2^40
def test_links_in_circles_end(tmp_path: Path, link: str, target: str) -> None:
    put(tmp_path, "cat/a/1.jpg")
    (tmp_path / link).symlink_to(target, target_is_directory=True)
    assert [name for *_, name in listing(tmp_path)] == ["cat/a/1.jpg"]


def test_links_within_the_data_are_followed(tmp_path: Path) -> None:
    put(tmp_path, "dog/1.jpg", "dog/more/2.jpg")
    (tmp_path / "cat").symlink_to("dog/more", target_is_directory=True)
    (tmp_path / "dog/3.jpg").symlink_to(tmp_path / "dog/1.jpg")
    index = open_source(tmp_path)
    names = [os.fsdecode(name) for name in index.column("file_name")]
    assert names == ["cat/2.jpg", "dog/1.jpg", "dog/3.jpg", "dog/more/2.jpg"]
    assert index.column("problem") == [None] * 4


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Data with a file, a folder within a class, and a class that are links to elsewhere."""
    elsewhere = put(tmp_path / "elsewhere", "1.jpg", "2.jpg")
    root = put(tmp_path / "data", "dog/1.jpg", "eel/1.jpg")
    (root / "cat").symlink_to(elsewhere, target_is_directory=True)
    (root / "dog/more").symlink_to(elsewhere, target_is_directory=True)
    (root / "dog/9.jpg").symlink_to(elsewhere / "1.jpg")
    return root


def test_links_that_lead_out_are_named_and_not_followed(linked: Path) -> None:
    index = open_source(linked)
    problems = dict(zip(index.column("file_name"), index.column("problem"), strict=True))
    out = "a link that leads out of the data: put the file there itself, or add --follow-links"
    assert problems == {b"dog/1.jpg": None, b"dog/more": out, b"dog/9.jpg": out, b"eel/1.jpg": None}
    assert index.passed_over == (f"'cat' ({out})",)


def test_links_that_lead_out_are_followed_if_asked_to(linked: Path) -> None:
    index = open_source(linked, follow_links=True)
    names = b" ".join(index.column("file_name"))
    assert names == b"cat/1.jpg cat/2.jpg dog/1.jpg dog/9.jpg dog/more/1.jpg dog/more/2.jpg eel/1.jpg"
    assert (set(index.column("problem")), index.passed_over) == ({None}, ())


def test_a_data_folder_may_be_a_link_itself(tmp_path: Path) -> None:
    put(tmp_path / "here", "cat/1.jpg")
    (tmp_path / "data").symlink_to("here", target_is_directory=True)
    assert listing(tmp_path / "data") == [("train", "cat", "cat/1.jpg")]


def test_data_that_are_links_alone_are_refused_with_the_flag_that_helps(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "cat/1.jpg")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(DataError, match=r"contains no images \('train/cat' \(a link that leads out.*--follow-links"):
        open_source(tmp_path / "data")
    assert len(open_source(tmp_path / "data", follow_links=True)) == 1


@pytest.mark.parametrize("name", [".. ", ".hidden", "extra"])
def test_a_folder_with_images_that_is_no_class_is_named(tmp_path: Path, name: str) -> None:
    put(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", ".git/HEAD", "notes/readme")
    folder = tmp_path / name if name == "extra" else tmp_path / "train" / name
    folder.mkdir()
    Image.new("RGB", (16, 16)).save(folder / "1.png")
    [told] = open_source(tmp_path).passed_over
    assert told.startswith(f"'{folder.relative_to(tmp_path)}' (")


@pytest.mark.parametrize("name", ["café", "猫", "a b", "100% 'x'"])
def test_unusual_names_are_kept(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"{name}/{name}.jpg")
    assert listing(tmp_path) == [("train", name, f"{name}/{name}.jpg")]
    assert Path(open_source(tmp_path).path(0)).is_file()


def test_names_that_are_no_utf_8_are_kept(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    try:
        put(tmp_path, f"{name}/{name}.jpg")
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    index = open_source(tmp_path)
    assert index.classes == ("caf\\xe9",)
    assert index.column("file_name") == [b"caf\xe9/caf\xe9.jpg"]
    assert os.path.isfile(index.path(0))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no images"):
        open_source(tmp_path)


def test_empty_class_folders_are_named(tmp_path: Path) -> None:
    put(tmp_path, "train/cat/1.jpg", "train/eel/notes.txt", "test/cat/2.jpg", "test/dog/3.jpg")
    (tmp_path / "train/dog").mkdir()
    index = open_source(tmp_path)
    assert (index.classes, index.empty) == (("cat", "dog"), ("train/dog", "train/eel"))


@pytest.mark.parametrize(("given", "parent"), [("web/cat", "web"), ("web/train/cat", "web")])
def test_a_single_class_is_refused(tmp_path: Path, given: str, parent: str) -> None:
    folder = tmp_path / given
    folder.mkdir(parents=True)
    Image.new("RGB", (16, 16)).save(folder / "photo", "PNG")
    with pytest.raises(DataError, match=f"a single class: give its parent, {tmp_path / parent}, or"):
        open_source(folder)


def test_what_lies_beside_the_class_folders_is_named(tmp_path: Path) -> None:
    put(tmp_path, "cat/1.jpg", "dog/1.jpg", "Loose.JPG", "pants.zip", "cat.zip", "dog.tar.gz", "notes.txt", ".x.jpg")
    index = open_source(tmp_path)
    assert index.beside == ("Loose.JPG", "pants.zip")  # of the other archives there are folders
    assert index.of_split("train").beside == index.beside


def test_empty_class_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataError, match="contains no images"):
        open_source(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_source(tmp_path / "nothing")


def test_order_is_that_of_the_names(tmp_path: Path) -> None:
    put(tmp_path, *(f"c/{i}.jpg" for i in (3, 1, 2)), "b/9.jpg")
    assert [name for *_, name in listing(tmp_path)] == ["b/9.jpg", "c/1.jpg", "c/2.jpg", "c/3.jpg"]


def test_split_folders_count_without_a_train_folder(tmp_path: Path) -> None:
    (tmp_path / "test" / "cat").mkdir(parents=True)
    (tmp_path / "test" / "cat" / "1.jpg").touch()
    index = open_source(tmp_path)
    assert index.classes == ("cat",)
    assert index.splits() == {"test"}


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder in which permissions bind, even if the tests are run by root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        user = os.geteuid()
        if user == 0:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)


@pytest.mark.parametrize("locked", ["train", "train/oak", "train/oak/deep"])
def test_an_unreadable_folder_is_named_and_not_passed_over(as_nobody: Path, locked: str) -> None:
    put(as_nobody, "train/ash/1.jpg", "train/oak/2.jpg", "train/oak/deep/3.jpg")
    (as_nobody / locked).chmod(0)
    try:
        with pytest.raises(DataError, match=rf"{locked}: Permission denied: make it readable"):
            open_source(as_nobody)
    finally:
        (as_nobody / locked).chmod(0o755)
    assert len(open_source(as_nobody)) == 3
