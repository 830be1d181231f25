"""Images that are replaced, removed or added after a training."""

import shutil
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet.cleaning.clean import clean
from somnet.data.index import index_from_columns
from somnet.data.proposals import KEY
from somnet.errors import RunError
from somnet.runs.data_changes import SCHEMA, DataChanges, compare, find_changes, trained_keys
from somnet.system.folders import IMAGES
from somnet.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


def test_what_is_replaced_removed_and_added() -> None:
    before = {"same": b"1", "other": b"2", "gone": b"3", "bad": None, "unreadable now": b"4", "good now": None}
    now = {"same": b"1", "other": b"9", "bad": None, "unreadable now": None, "new": b"5", "good now": b"6"}
    found = compare(keys_of(before.items()), keys_of(reversed(now.items())))  # in any order
    assert found == DataChanges(("other", "unreadable now"), ("gone",), ("new",))
    assert not compare(keys_of(before.items()), keys_of(before.items()))


def keys_of(images: "Iterable[tuple[str, bytes | None]]") -> pa.Table:
    """A table of names and keys, these filled up to their length."""
    names, keys = zip(*images, strict=True)
    return pa.table([names, [key and key.ljust(16) for key in keys]], schema=SCHEMA)


def test_names_that_look_alike_have_not_changed() -> None:
    alike = keys_of([("\\xff", b"1"), ("\\xff", b"2"), ("other", b"3")])  # as of a name that is not UTF-8
    assert not compare(alike, alike)


def test_changes_are_looked_for_in_bounded_memory(tmp_path: Path) -> None:
    """Tables, not Python objects for each image."""
    names = [f"train/a class of the images/{number:012d}.jpg" for number in range(100_000)]
    keys = [number.to_bytes(16, "big") for number in range(100_000)]
    pq.write_table(pa.table([names, keys], schema=SCHEMA), tmp_path / IMAGES)
    images = index_from_columns(tmp_path, ["a"], {"file_name": pa.array(names), "split": pa.array(["train"] * 100_000)})
    known = pa.array(keys, KEY)
    tracemalloc.start()
    pool = pa.default_memory_pool()
    with patch("somnet.runs.data_changes.content_keys", lambda index: (known, None)):
        before = pool.bytes_allocated()
        assert not find_changes(tmp_path, images)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert python < 100 * len(names)
    assert pool.bytes_allocated() - before < 1_000_000  # nothing is kept


def test_the_keys_of_some_images_can_be_had(tmp_path: Path) -> None:
    assert trained_keys(tmp_path, ["a"]) is None
    keys = {"a": bytes(16), "b": None, "c": bytes(range(16))}
    pq.write_table(pa.table([list(keys), list(keys.values())], schema=SCHEMA), tmp_path / IMAGES)
    assert trained_keys(tmp_path) == keys
    assert trained_keys(tmp_path, ["c", "gone", "b"]) == {"b": None, "c": keys["c"]}
    assert trained_keys(tmp_path, []) == {}


def test_no_new_picture_is_judged_by_an_old_score(photos: "Photos", tiny: "Tiny", tmp_path: Path, cli: "Cli") -> None:
    web, out = photos.fill(tmp_path / "web", train=4, test=1), tmp_path / "run"
    (web / "train" / "ash" / "bad.png").write_text("no picture")
    train(web, tiny.config("plain"), out=out, workers=0)
    shown = {file.name for file in (out / "report" / "pictures").rglob("*.jpg")}
    words = ["train", web, *tiny.flags(), "--method", "plain", "--out", out, "--resume", "--workers", 0]
    assert "have changed" not in cli("report", out).err
    clean(out, tmp_path / "cleaned")

    photos.picture(2, 99).save(web / "train" / "ash" / "0.png")
    shutil.move(web / "train" / "ash" / "1.png", tmp_path)
    photos.picture(1, 98).save(web / "train" / "ash" / "new.png")
    told = "1 replaced: train/ash/0.png; 1 removed: train/ash/1.png; 1 added: train/ash/new.png"
    done = cli("report", out)
    assert done.code == 0
    assert told in done.err
    assert len(shown) - len({file.name for file in (out / "report" / "pictures").rglob("*.jpg")}) == 2
    with pytest.raises(RunError, match=rf"{told}.*restore them, or train again"):
        clean(out, tmp_path / "cleaned", overwrite=True)
    assert told in cli(*words).err
    (out / "summary.json").unlink()
    done = cli(*words)
    assert done.code == 2
    assert told in done.err

    photos.picture(1, 0).save(web / "train" / "ash" / "0.png")
    shutil.move(tmp_path / "1.png", web / "train" / "ash")
    clean(out, tmp_path / "cleaned", overwrite=True)
    assert not (tmp_path / "cleaned" / "train" / "ash" / "new.png").exists()


def test_a_resume_tells_that_the_test_images_are_others(
    photos: "Photos", tiny: "Tiny", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    web, out = photos.fill(tmp_path / "web", train=4, test=1), tmp_path / "run"
    train(web, tiny.config("plain"), out=out, workers=0)
    told = "the test images have changed since"
    for change in (False, True):
        (out / "summary.json").unlink()
        if change:
            photos.picture(2, 99).save(next((web / "test" / "ash").iterdir()))
        train(web, tiny.config("plain"), out=out, workers=0, resume=True)
        assert (told in caplog.text) is change
