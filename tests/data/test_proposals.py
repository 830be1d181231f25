"""Scanning a data set: boxes, reasons, and a cache that can be trusted."""

import hashlib
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from somnet.config import ProposalConfig
from somnet.data import proposals
from somnet.data.checked_tables import read_checked, write_checked
from somnet.data.decode import Picture, read_picture
from somnet.data.index import Index, make_index
from somnet.data.location import Location
from somnet.data.proposals import Scan, scan
from somnet.errors import UnreadableImage
from somnet.runs.metrics import iou
from somnet.system.files import cache_folder

CONFIG = ProposalConfig(max_boxes=4, edge_side=64)


def draw(file: Path, *squares: tuple[int, int, int, int], size: tuple[int, int] = (80, 60)) -> Path:
    image = Image.new("RGB", size, "black")
    for square in squares:
        ImageDraw.Draw(image).rectangle(square, fill="white")
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw(tmp_path / "data/a.png", (20, 15, 55, 45))
    draw(tmp_path / "data/b.png", (10, 10, 30, 50), (50, 10, 70, 40))
    draw(tmp_path / "data/flat.png")
    (tmp_path / "data/text.jpg").write_text("not a picture")
    (tmp_path / "data/empty.jpg").write_bytes(b"")
    return tmp_path / "data"


def index_of(folder: Path, *names: str, problem: str | None = None) -> Index:
    return make_index(folder, ["c"], ({"file_name": os.fsencode(n), "label": 0, "problem": problem} for n in names))


def same(first: Scan, second: Scan) -> bool:
    return (
        first.keys.equals(second.keys)
        and first.reasons.equals(second.reasons)
        and np.array_equal(first.sizes, second.sizes)
        and np.array_equal(first.boxes, second.boxes)
        and np.array_equal(first.counts, second.counts)
    )


def forbid_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("boxes are computed again")

    monkeypatch.setattr(proposals, "read_picture", refuse)


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is, of files that were not written a moment ago, which are never trusted."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a file is read again")

    monkeypatch.setattr(hashlib, "file_digest", refuse)


def parts() -> list[Path]:
    return sorted((cache_folder() / "proposals").rglob("*.table"))


# --- what a scan says


def test_boxes_are_shares_of_the_image(folder: Path) -> None:
    result = scan(index_of(folder, "a.png"), CONFIG, workers=1)
    assert result.sizes.tolist() == [[80, 60]]
    assert 1 <= result.counts[0] <= 4
    best = result.boxes[0, : result.counts[0]]
    square = np.array([[20 / 80, 15 / 60, 56 / 80, 46 / 60]] * len(best))
    assert iou(best, square).max() > 0.6  # edges of so small an image are coarse
    assert (best >= 0).all()
    assert (best <= 1).all()
    assert (best[:, 2:] > best[:, :2]).all()


def test_boxes_are_counted_and_padded_with_zeros(folder: Path) -> None:
    result = scan(index_of(folder, "flat.png", "a.png"), CONFIG, workers=1)
    assert result.boxes.shape == (2, 4, 4)
    assert result.counts[0] == 0
    for boxes, count in zip(result.boxes, result.counts, strict=True):
        assert (boxes[count:] == 0).all()
        assert (boxes[:count].sum(axis=1) > 0).all()


def test_no_boxes_can_be_asked_for(folder: Path) -> None:
    result = scan(index_of(folder, "a.png"), ProposalConfig(max_boxes=0), workers=1)
    assert result.boxes.shape == (1, 0, 4)
    assert result.reasons.to_pylist() == [None]


def test_bad_files_have_reasons(folder: Path) -> None:
    (folder / "sub").mkdir()
    index = index_of(folder, "a.png", "text.jpg", "empty.jpg", "gone.jpg", "sub")
    result = scan(index, CONFIG, workers=1)
    assert result.reasons[0].as_py() is None
    assert result.reasons[1].as_py() == "not an image"
    assert result.reasons[2].as_py() == "the file is empty"
    assert "No such file" in (result.reasons[3].as_py() or "")
    assert "not a regular file" in (result.reasons[4].as_py() or "")
    assert result.keys[3].as_py() is None
    assert result.readable().tolist() == [0]


def test_a_row_with_a_problem_is_not_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_reading(monkeypatch)
    result = scan(index_of(folder, "a.png", problem="lies outside"), CONFIG, workers=1)
    assert result.reasons.to_pylist() == ["lies outside"]
    assert result.keys.to_pylist() == [None]


def test_a_pipe_does_not_block_the_scan(folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    results: list[Scan] = []
    index = index_of(folder, "a.png", "pipe")
    thread = threading.Thread(target=lambda: results.append(scan(index, CONFIG, workers=1)), daemon=True)
    thread.start()
    thread.join(timeout=120)
    blocked = thread.is_alive()
    while thread.is_alive():  # let it go, so that the test ends
        try:
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads just now
            thread.join(timeout=0.2)
    assert not blocked
    assert results[0].reasons[0].as_py() is None
    assert results[0].reasons[1].as_py() is not None


def test_the_same_file_twice_is_the_same(folder: Path) -> None:
    result = scan(index_of(folder, "a.png", "b.png", "a.png"), CONFIG, workers=1)
    assert result.keys[0].as_py() == result.keys[2].as_py() != result.keys[1].as_py()
    assert np.array_equal(result.boxes[0], result.boxes[2])
    assert result.counts[0] == result.counts[2] > 0


def test_workers_do_not_change_the_result(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = [draw(folder / f"{i}.png", (5 + i, 5, 40 + i, 40)).name for i in range(40)]  # more than a task holds
    index = index_of(folder, *names, "text.jpg", "gone.jpg")
    alone = scan(index, CONFIG, workers=1)
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / "other"))
    assert same(alone, scan(index, CONFIG, workers=2))


def test_names_that_are_no_utf_8_are_scanned(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    try:
        shutil.copy(folder / "a.png", folder / name)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    assert scan(index_of(folder, name), CONFIG, workers=1).reasons.to_pylist() == [None]


def test_rows_can_be_taken(folder: Path) -> None:
    result = scan(index_of(folder, "a.png", "text.jpg", "b.png"), CONFIG, workers=1)
    part = result.take(np.array([2, 0]))
    assert part.keys.to_pylist() == [result.keys[2].as_py(), result.keys[0].as_py()]
    assert np.array_equal(part.boxes, result.boxes[[2, 0]])
    assert part.reasons.to_pylist() == [None, None]


# --- the cache


def test_without_a_cache_pictures_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the tests below: what they forbid is what a first scan does."""
    forbid_boxes(monkeypatch)
    with pytest.raises(AssertionError, match="boxes are computed"):
        scan(index_of(folder, "a.png"), CONFIG, workers=1)
    monkeypatch.undo()
    forbid_reading(monkeypatch)
    monkeypatch.setenv("SOMNET_CACHE", str(folder / "fresh"))
    with pytest.raises(AssertionError, match="a file is read"):
        scan(index_of(folder, "a.png"), CONFIG, workers=1)


def test_a_second_scan_does_no_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "SETTLED_NS", 0)
    index = index_of(folder, "a.png", "b.png")
    first = scan(index, CONFIG, workers=1)
    forbid_boxes(monkeypatch)
    forbid_reading(monkeypatch)
    assert same(first, scan(index, CONFIG, workers=1))


def test_a_failure_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may have been short, or the disk away for a moment."""
    index = index_of(folder, "a.png")

    def fail(*_: object, **__: object) -> None:
        raise UnreadableImage("not enough memory to decode it")

    with monkeypatch.context() as patch:
        patch.setattr("somnet.data.proposals.read_picture", fail)
        assert scan(index, CONFIG, workers=1).reasons.to_pylist() == ["not enough memory to decode it"]
    assert scan(index, CONFIG, workers=1).reasons.to_pylist() == [None]


def test_a_renamed_copy_is_known_by_its_content(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = scan(index_of(folder, "a.png"), CONFIG, workers=1)
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.copyfile(folder / "a.png", other / "renamed.png")
    forbid_boxes(monkeypatch)
    assert same(first, scan(index_of(other, "renamed.png"), CONFIG, workers=1))


def test_a_changed_file_is_scanned_again(folder: Path) -> None:
    index = index_of(folder, "a.png")
    first = scan(index, CONFIG, workers=1)
    draw(folder / "a.png", (1, 1, 20, 20), size=(120, 90))
    second = scan(index, CONFIG, workers=1)
    assert not second.keys.equals(first.keys)
    assert second.sizes.tolist() == [[120, 90]]


def test_other_parameters_have_other_boxes(folder: Path) -> None:
    index = index_of(folder, "b.png")
    many = scan(index, CONFIG, workers=1)
    assert many.counts[0] > 1
    assert scan(index, ProposalConfig(max_boxes=1, edge_side=64), workers=1).counts[0] == 1
    assert same(many, scan(index, CONFIG, workers=1))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_a_damaged_part_is_computed_again(folder: Path, caplog: pytest.LogCaptureFixture, share: float) -> None:
    index = index_of(folder, "a.png", "b.png")
    first = scan(index, CONFIG, workers=1)
    (part,) = parts()
    data = part.read_bytes()
    part.write_bytes(data[: int(share * len(data))])
    with caplog.at_level(logging.WARNING, logger="somnet"):
        assert same(first, scan(index, CONFIG, workers=1))
    assert "damaged" in caplog.text
    caplog.clear()
    scan(index, CONFIG, workers=1)
    assert "damaged" not in caplog.text  # it was repaired


def test_a_damaged_table_of_files_is_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = index_of(folder, "a.png")
    first = scan(index, CONFIG, workers=1)
    (table,) = (cache_folder() / "files").glob("*.table")
    table.write_bytes(b"PAR1 damaged")
    with caplog.at_level(logging.WARNING, logger="somnet"):
        assert same(first, scan(index, CONFIG, workers=1))
    assert "damaged" in caplog.text


def test_a_scan_leaves_no_temporary_files(folder: Path) -> None:
    scan(index_of(folder, "a.png", "b.png"), CONFIG, workers=1)
    assert {file.suffix for file in cache_folder().rglob("*") if file.is_file()} == {".table"}


def test_new_files_join_the_cache(folder: Path) -> None:
    scan(index_of(folder, "a.png"), CONFIG, workers=1)
    scan(index_of(folder, "a.png", "b.png"), CONFIG, workers=1)
    assert len(parts()) == 2


def test_hashes_are_cached_with_the_boxes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(folder, "a.png", "b.png", "flat.png", "text.jpg")
    first = scan(index, CONFIG, workers=1)
    assert [value is None for value in first.hashes.to_pylist()] == [False, False, True, True]
    assert first.hashes[0].as_py() != first.hashes[1].as_py()
    monkeypatch.setattr(proposals, "picture_hash", None)
    again = scan(index_of(folder, "b.png", "a.png"), CONFIG, workers=1)
    assert again.hashes.to_pylist() == [first.hashes[1].as_py(), first.hashes[0].as_py()]


def test_a_cache_of_an_older_format_is_left_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(proposals, "ALGORITHM", proposals.ALGORITHM - 1)
        scan(index_of(folder, "a.png"), CONFIG, workers=1)
    (old,) = parts()
    write_checked(old, read_checked(old, proposals.SCAN_SCHEMA).drop_columns(["hash"]))
    assert scan(index_of(folder, "a.png"), CONFIG, workers=1).hashes[0].as_py() is not None
    assert len(parts()) == 2


# --- what a file is known by


def test_files_swapped_with_equal_sizes_and_times_are_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user sees them: equal sizes, equal times, and the names exchanged."""
    monkeypatch.setattr(proposals, "SETTLED_NS", 0)  # their stamps are trusted at once
    for name, square in (("x.bmp", (20, 15, 55, 45)), ("y.bmp", (5, 5, 30, 30))):
        draw(folder / name, square)
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))
    assert (folder / "x.bmp").stat().st_size == (folder / "y.bmp").stat().st_size
    index = index_of(folder, "x.bmp", "y.bmp")
    first = scan(index, CONFIG, workers=1)
    (folder / "x.bmp").rename(folder / "z")
    (folder / "y.bmp").rename(folder / "x.bmp")
    (folder / "z").rename(folder / "y.bmp")
    assert scan(index, CONFIG, workers=1).keys.to_pylist() == first.keys.to_pylist()[::-1]
    content, changed = (folder / "y.bmp").read_bytes(), (folder / "x.bmp").stat().st_ctime_ns
    while (folder / "x.bmp").stat().st_ctime_ns == changed:  # within a tick of the clock
        (folder / "x.bmp").write_bytes(content)  # in place: the same inode
        os.utime(folder / "x.bmp", (1_000_000_000, 1_000_000_000))
    assert len(set(scan(index, CONFIG, workers=1).keys.to_pylist())) == 1


def test_a_file_that_changes_between_two_looks_is_trusted_neither_time(folder: Path) -> None:
    index = index_of(folder, "a.png")
    first = scan(index, CONFIG, workers=1)
    status = (folder / "a.png").stat()
    draw(folder / "a.png", (20, 15, 55, 46))
    os.utime(folder / "a.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not scan(index, CONFIG, workers=1).keys.equals(first.keys)


def test_a_file_replaced_between_its_key_and_its_boxes_does_not_poison_the_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(folder, "a.png", "b.png")
    expected = scan(index, CONFIG, workers=1)
    monkeypatch.setenv("SOMNET_CACHE", str(folder / "fresh"))
    original = (folder / "a.png").read_bytes()

    def replace_first(location: Location, **how: Any) -> Picture:
        draw(folder / "a.png", (1, 1, 20, 20), size=(120, 90))
        return read_picture(location, **how)

    with monkeypatch.context() as patch:
        patch.setattr(proposals, "read_picture", replace_first)
        found = scan(index, CONFIG, workers=1)
    assert found.reasons.to_pylist() == ["its content has changed since the files were listed", None]
    (folder / "a.png").write_bytes(original)
    assert same(expected, scan(index, CONFIG, workers=1))


@pytest.mark.parametrize("kind", ["proposals", "files"])
def test_one_bit_of_a_table_is_noticed_wherever_it_is(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = index_of(folder, "a.png", "b.png")
    first = scan(index, CONFIG, workers=1)
    (file,) = (cache_folder() / kind).rglob("*.table")
    content = file.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 25)):
        damaged = bytearray(content)
        damaged[place] ^= 4
        file.write_bytes(damaged)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="somnet"):
            assert read_checked(file, proposals.SCAN_SCHEMA).num_rows == 0
        assert "its checksum does not match" in caplog.text
        assert not file.exists()
    assert same(first, scan(index, CONFIG, workers=1))
