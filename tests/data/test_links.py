"""Links in the data: nothing outside is read without --follow-links, in any layout and by any verb."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.cleaning.clean import clean
from somnet.config import load_config
from somnet.data.sources import open_source
from somnet.errors import DataError
from somnet.runs.predictions import image_files

if TYPE_CHECKING:
    from tests.conftest import Outcome, Photos, Tiny

    Cli = Callable[..., Outcome]


def problems(data: Path, *, follow_links: bool = False) -> dict[str, str | None]:
    index = open_source(data, follow_links=follow_links)
    return dict(zip(map(os.fsdecode, index.column("file_name")), index.column("problem"), strict=True))


@pytest.mark.parametrize("name", ["link.jpg", "way/secret.jpg"])
def test_a_manifest_may_name_links_that_stay_inside(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "secret.jpg").write_bytes(b"x")
    (root / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (root / "way").symlink_to(tmp_path, target_is_directory=True)
    (root / "metadata.csv").write_text(f"file_name,label\n{name},cat\n../secret.jpg,cat\n")
    assert "--follow-links" in str(problems(root)[name])
    assert problems(root, follow_links=True) == {
        name: None,
        "../secret.jpg": "lies outside the data folder: put the file inside it",  # that is no link
    }


def test_a_list_of_the_papers_data_leads_nowhere_else(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "images/cake").mkdir(parents=True)
    (root / "meta").mkdir()
    (root / "meta/train.txt").write_text("cake/1\ncake/2\npie/1\n")
    (root / "meta/test.txt").write_text("cake/3\n")
    (tmp_path / "pie").mkdir()
    for file in (root / "images/cake/1.jpg", root / "images/cake/3.jpg", tmp_path / "pie/1.jpg"):
        file.write_bytes(b"x")
    (root / "images/cake/2.jpg").symlink_to("1.jpg")
    (root / "images/pie").symlink_to(tmp_path / "pie", target_is_directory=True)
    found = problems(root)
    assert [name for name, problem in found.items() if problem] == ["images/pie/1.jpg"]
    assert not any(problems(root, follow_links=True).values())


@pytest.mark.parametrize("name", ["a.zip", "metadata.csv"])
def test_an_archive_or_manifest_that_lies_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("cat/1.jpg", b"x")
    (tmp_path / "metadata.csv").write_text("file_name,label\n1.jpg,cat\n")
    (root / name).symlink_to(tmp_path / name)
    with pytest.raises(DataError, match=f"{name} is a link that leads out of the data.*--follow-links"):
        open_source(root)
    assert open_source(root, follow_links=True).classes == ("cat",)
    assert open_source(root / name).classes == ("cat",)  # which was named by the user


def test_predict_names_the_links_that_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    for file in (folder / "1.jpg", tmp_path / "2.jpg"):
        file.write_bytes(b"x")
    (folder / "2.jpg").symlink_to(tmp_path / "2.jpg")
    assert image_files([folder]) == [str(folder / "1.jpg")]
    assert f"{folder / '2.jpg'}: each is a link that leads out" in caplog.text
    assert image_files([folder], follow_links=True) == [str(folder / "1.jpg"), str(folder / "2.jpg")]
    assert image_files([folder / "2.jpg"]) == [str(folder / "2.jpg")]  # which was named by the user


def test_a_run_keeps_to_what_it_was_started_with(photos: "Photos", tiny: "Tiny", tmp_path: Path, cli: "Cli") -> None:
    """Train, resume, report and clean read the same images, with the flag once."""
    web, out = photos.fill(tmp_path / "web", train=4, test=1), tmp_path / "run"
    (web / "train/ash").rename(tmp_path / "ash")
    (web / "train/ash").symlink_to(tmp_path / "ash", target_is_directory=True)
    words = ["train", web, *tiny.flags(), "--method", "plain", "--out", out, "--workers", 0]
    done = cli(*words, "--epochs", 1)
    assert done.code == 0, done.err
    assert "left out: 'train/ash' (a link that leads out of the data" in (out / "train.log").read_text()
    assert "train/ash" not in (out / "issues.csv").read_text()

    done = cli(*words, "--epochs", 1, "--follow-links", "--overwrite")
    assert done.code == 0, done.err
    assert load_config(out / "config.toml").follow_links
    assert (out / "issues.csv").read_text().count("train/ash") == 4
    assert len(list((out / "report/pictures/0").glob("*.jpg"))) == 12
    clean(out, tmp_path / "cleaned")
    assert list((tmp_path / "cleaned").rglob("ash/*.png"))
    (out / "summary.json").unlink()
    done = cli(*words, "--epochs", 1, "--resume")
    assert done.code == 0, done.err
    assert "have changed" not in done.err + cli("report", out).err
    other = tmp_path / "other"
    assert cli(*words[:-4], "--out", other, "--workers", 0, "--epochs", 1).code == 0
    (other / "summary.json").unlink()
    refused = cli(*words[:-4], "--out", other, "--workers", 0, "--epochs", 1, "--follow-links", "--resume")
    assert "was started with follow_links = False: leave out yours, or add --overwrite" in refused.err
