"""Which layout a folder is read as, and how a user says so."""

import os
from pathlib import Path

import pytest

from somnet.data.sources import NAMED, absolute, open_source, split_name
from somnet.errors import DataError, RunError


def test_a_name_before_the_path_is_taken_off() -> None:
    assert split_name(Path("mini-webvision:data/web")) == ("mini-webvision", Path("data/web"))
    assert split_name(Path("ilsvrc:/data/web")) == ("ilsvrc", Path("/data/web"))
    assert split_name(Path("photos:old/web")) == (None, Path("photos:old/web"))


def test_a_folder_that_is_called_so_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards:cat/cat").mkdir(parents=True)
    (tmp_path / "shards:cat/cat/1.jpg").write_bytes(b"x")
    assert open_source(Path("shards:cat")).classes == ("cat",)


def test_a_name_survives_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(Path("webvision:web")) == f"webvision:{tmp_path}/web"
    assert absolute(Path("web")) == os.path.join(tmp_path, "web")


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_folder_is_refused_by_every_layout(tmp_path: Path, name: str) -> None:
    (tmp_path / "web/cat").mkdir(parents=True)
    (tmp_path / "web/cat/1.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="web"):
        open_source(Path(f"{name}:{tmp_path}/web"))
    with pytest.raises(DataError, match="nothing does not exist"):
        open_source(Path(f"{name}:{tmp_path}/nothing"))


@pytest.mark.parametrize("beside", ["meta/notes.txt", "images.tar", "info/readme.txt", "data/numbers.txt", "val.txt"])
def test_other_files_do_not_make_a_plain_folder_anything_else(tmp_path: Path, beside: str) -> None:
    for name in ("cat/1.jpg", "meta/2.jpg", beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    index = open_source(tmp_path)
    assert index.column("file_name") == [b"cat/1.jpg", b"meta/2.jpg"]


def test_a_manifest_goes_before_all(tmp_path: Path) -> None:
    (tmp_path / "noisy_label_kv.txt").write_text("images/1.jpg 0\n")
    (tmp_path / "metadata.csv").write_text("file_name,label\n1.jpg,cat\n")
    assert open_source(tmp_path).classes == ("cat",)


def test_computed_files_are_not_kept_among_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.jpg").write_bytes(b"x")
    for place in (tmp_path, tmp_path / "cat", tmp_path / "new"):
        monkeypatch.setenv("SOMNET_CACHE", str(place))
        with pytest.raises(RunError, match=r"SOMNET_CACHE is .* inside the data .*: choose another place"):
            open_source(tmp_path)
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / ".cache" / "somnet"))  # as where all of a user's home is given
    assert open_source(tmp_path).classes == ("cat",)
