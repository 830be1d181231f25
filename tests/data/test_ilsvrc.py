"""The validation images of ILSVRC-2012, in each of the ways in which people keep them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from somnet.data.sources import open_source
from somnet.errors import DataError

# Rows of the sorted WNIDs. The development kit counts in another order, and from 1.
ROW = {"n01440764": 0, "n01443537": 1, "n02012849": 134, "n15075141": 999}
ID = {"n15075141": 1, "n01443537": 2, "n02012849": 3, "n01440764": 4}
TRUE = ("n02012849", "n01440764", "n15075141", "n02012849")  # of image 1, 2, ...
NAMES = tuple(f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, len(TRUE) + 1))


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def write_devkit(root: Path, folder: str = "ILSVRC2012_devkit_t12") -> None:
    data = root / folder / "data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{ID[wnid]}\n" for wnid in TRUE))
    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("words", "O")]
    leaves = [(number, wnid, "crane, bird") for wnid, number in ID.items()]
    synsets = np.array([*leaves, (1001, "n00001740", "entity")], dtype=kinds)  # inner nodes follow the classes
    savemat(data / "meta.mat", {"synsets": synsets.reshape(-1, 1)})


def truth(data: Path) -> dict[str, str]:
    """WNID of each image by its own name."""
    index = open_source(data)
    assert len(index.classes) == 1000
    assert index.splits() == {"test"}
    assert all(Path(index.path(row)).is_file() for row in range(len(index)))
    labels = [index.classes[label] for label in index.labels()]
    assert [ROW[wnid] for wnid in labels] == index.labels().tolist()
    names = (Path(index.path(row)).name for row in range(len(index)))
    return dict(zip(names, labels, strict=True))


EXPECTED = dict(zip(NAMES, TRUE, strict=True))


@pytest.mark.parametrize("images", ["val", "ILSVRC2012_img_val", "."])
@pytest.mark.parametrize("kit", ["ILSVRC2012_devkit_t12", "devkit", "."])
def test_ids_of_the_development_kit_lead_to_wnids(tmp_path: Path, images: str, kit: str) -> None:
    put(tmp_path / images, *NAMES)
    write_devkit(tmp_path, kit)
    assert truth(tmp_path) == EXPECTED


@pytest.mark.parametrize("images", ["val", "."])
@pytest.mark.parametrize("spell", [str, lambda wnid: str(ROW[wnid]), lambda wnid: f"{ROW[wnid]:04d}"])
def test_folders_are_wnids_or_labels(tmp_path: Path, images: str, spell: "type[str]") -> None:
    for name, wnid in EXPECTED.items():
        put(tmp_path / images / spell(wnid), name)
    assert truth(Path(f"ilsvrc:{tmp_path}")) == EXPECTED


def test_folders_of_wnids_are_plain_folders_too(tmp_path: Path) -> None:
    for name, wnid in EXPECTED.items():
        put(tmp_path / "val" / wnid, name)
    index = open_source(tmp_path)  # with no name before it
    assert index.classes == ("n01440764", "n02012849", "n15075141")  # as those of WebVision are called
    assert index.splits() == {"val"}


@pytest.mark.parametrize("before", ["", "val/"])
def test_a_text_file_gives_labels(tmp_path: Path, before: str) -> None:
    put(tmp_path / "val", *NAMES)
    (tmp_path / "val.txt").write_text("".join(f"{before}{name} {ROW[wnid]}\n" for name, wnid in EXPECTED.items()))
    assert truth(tmp_path) == EXPECTED


def test_images_alone_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "val", *NAMES)
    with pytest.raises(DataError, match="does not say which class its images have: unpack"):
        open_source(tmp_path)


def test_a_kit_without_images_is_refused(tmp_path: Path) -> None:
    write_devkit(tmp_path)
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="val/ is missing or empty, where 4 of 4"):
        open_source(tmp_path)


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file", b"\0" * 200])
def test_a_broken_kit_is_refused(tmp_path: Path, content: bytes) -> None:
    put(tmp_path / "val", *NAMES)
    write_devkit(tmp_path)
    (tmp_path / "ILSVRC2012_devkit_t12/data/meta.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"meta\.mat .*unpack the development kit again"):
        open_source(tmp_path)


def test_an_id_of_an_inner_node_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "val", *NAMES)
    write_devkit(tmp_path)
    with (tmp_path / "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt").open("a") as file:
        file.write("1001\n")
    with pytest.raises(DataError, match="has the ID 1001"):
        open_source(tmp_path)


def test_a_folder_that_is_no_class_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "val/n00001740", "a.JPEG")
    with pytest.raises(DataError, match="n00001740 is not a class of ILSVRC-2012"):
        open_source(Path(f"ilsvrc:{tmp_path}"))
