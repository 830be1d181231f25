"""Manifests as data sets."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet.data.index import Index
from somnet.data.sources import open_source
from somnet.errors import DataError

ROWS: list[dict[str, Any]] = [
    {"file_name": "a.jpg", "label": "cat", "split": "train", "true_label": "dog", "true_box": [1.0, 2.0, 3.0, 4.0]},
    {"file_name": "b.jpg", "label": "dog", "split": "test", "true_label": None, "true_box": None},
]


def write_csv(folder: Path, text: str | bytes) -> Path:
    (folder / "metadata.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def write_jsonl(folder: Path, *rows: object) -> Path:
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def write(folder: Path, kind: str) -> Path:
    """ROWS as a manifest of a kind."""
    if kind == "csv":
        text = "file_name,label,split,true_label,true_box\na.jpg,cat,train,dog,1 2 3 4\nb.jpg,dog,test,,\n"
        return write_csv(folder, text)
    if kind == "jsonl":
        return write_jsonl(folder, *ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "metadata.parquet")
    return folder


def problem(index: Index, row: int = 0) -> str | None:
    problems: list[str | None] = index.column("problem")
    return problems[row]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_kinds_say_the_same(tmp_path: Path, kind: str) -> None:
    index = open_source(write(tmp_path, kind))
    assert index.classes == ("cat", "dog")
    assert index.labels().tolist() == [0, 1]
    assert index.column("file_name") == [b"a.jpg", b"b.jpg"]
    assert index.column("split") == ["train", "test"]
    assert index.column("true_label") == ["dog", None]
    assert index.column("true_box") == [[1.0, 2.0, 3.0, 4.0], None]
    assert index.column("problem") == [None, None]


def test_a_manifest_can_be_named_itself(tmp_path: Path) -> None:
    index = open_source(write(tmp_path, "csv") / "metadata.csv")
    assert Path(index.path(0)) == tmp_path / "a.jpg"


def test_a_manifest_outranks_the_folders(tmp_path: Path) -> None:
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog/1.jpg").write_bytes(b"x")
    index = open_source(write_csv(tmp_path, "file_name,label\ndog/1.jpg,cat\n"))
    assert index.classes == ("cat",)


def test_two_manifests_are_refused(tmp_path: Path) -> None:
    write(write(tmp_path, "csv"), "jsonl")
    with pytest.raises(DataError, match=r"metadata\.csv, metadata\.jsonl"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("name,label\na.jpg,cat\n", "file_name"),
        ("file_name,class\na.jpg,cat\n", "label"),
        ("a.jpg,cat\nb.jpg,dog\n", "file_name"),
        ("name,class\na.jpg,cat,surplus\n", "file_name"),
    ],
)
def test_a_missing_column_is_named(tmp_path: Path, text: str, missing: str) -> None:
    with pytest.raises(DataError, match=f"no column {missing}"):
        open_source(write_csv(tmp_path, text))


def test_surplus_columns_are_ignored(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, "url,file_name,label\nhttp://x,a.jpg,cat,more,yet more\n"))
    assert index.column("file_name") == [b"a.jpg"]


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../b.jpg", "/etc/hostname", ".."])
def test_names_that_lead_outside_are_kept_with_the_problem(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "secret.jpg").write_bytes(b"x")
    index = open_source(write_csv(root, f"file_name,label\n{name},cat\nfine.jpg,cat\n"))
    assert len(index) == 2
    assert "outside" in (problem(index) or "")
    assert problem(index, 1) is None


def test_an_absolute_name_is_refused_even_inside(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, f"file_name,label\n{tmp_path}/a.jpg,cat\n"))
    assert "outside" in (problem(index) or "")


@pytest.mark.parametrize("name", ["a/../b.jpg", "./b.jpg", "sub/b.jpg", "..b.jpg"])
def test_names_that_stay_inside_are_fine(tmp_path: Path, name: str) -> None:
    assert problem(open_source(write_csv(tmp_path, f"file_name,label\n{name},cat\n"))) is None


def test_a_data_folder_that_is_a_link_is_inside_itself(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    write_csv(real, "file_name,label\na.jpg,cat\n")
    (tmp_path / "link").symlink_to(real, target_is_directory=True)
    assert problem(open_source(tmp_path / "link")) is None


@pytest.mark.parametrize("label", ["", "   "])
def test_an_empty_label_is_a_problem(tmp_path: Path, label: str) -> None:
    index = open_source(write_csv(tmp_path, f"file_name,label\na.jpg,{label}\nb.jpg,cat\n"))
    assert "no label" in (problem(index) or "")
    assert index.labels().tolist() == [-1, 0]
    assert index.classes == ("cat",)


def test_missing_labels_of_other_kinds_are_a_problem(tmp_path: Path) -> None:
    rows = [{"file_name": "a", "label": None}, {"file_name": "b", "label": float("nan")}, {"file_name": "c"}]
    index = open_source(write_jsonl(tmp_path, *rows, {"file_name": "d", "label": 7}))
    assert [text is None for text in index.column("problem")] == [False, False, False, True]
    assert index.classes == ("7",)


def test_an_empty_name_is_a_problem(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, "file_name,label\n,cat\n"))
    assert "no file_name" in (problem(index) or "")


def test_a_null_byte_in_a_name_is_a_problem(tmp_path: Path) -> None:
    index = open_source(write_jsonl(tmp_path, {"file_name": "a\0.jpg", "label": "cat"}))
    assert "null byte" in (problem(index) or "")


def test_a_name_of_the_wrong_kind_is_a_problem(tmp_path: Path) -> None:
    index = open_source(write_jsonl(tmp_path, {"file_name": ["a.jpg"], "label": "cat"}))
    assert "no file_name" in (problem(index) or "")


@pytest.mark.parametrize("field", ["file_name", "label"])
def test_text_that_cannot_be_encoded_is_the_datas_fault(tmp_path: Path, field: str) -> None:
    """JSON can spell half of a surrogate pair, which no file name can be."""
    (tmp_path / "metadata.jsonl").write_text(json.dumps({"file_name": "a.jpg", "label": "cat", field: "\ud800"}))
    try:
        index = open_source(tmp_path)
    except DataError:
        return
    assert len(index) == 1
    if field == "file_name":
        assert problem(index) is not None


@pytest.mark.parametrize("box", ["1 2 3 4", "1,2,3,4", "[1, 2, 3, 4]", "(1.0 2.0 3.0 4.0)", " 1  2  3  4 "])
def test_boxes_are_read_in_many_spellings(tmp_path: Path, box: str) -> None:
    index = open_source(write_csv(tmp_path, f'file_name,label,true_box\na.jpg,cat,"{box}"\n'))
    assert index.column("true_box") == [[1.0, 2.0, 3.0, 4.0]]


def test_weights_are_read(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, "file_name,label,weight\na.jpg,cat,0.25\nb.jpg,cat,\nc.jpg,dog,0\n"))
    assert index.weights().tolist() == [0.25, 1.0, 0.0]


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "much"])
def test_a_weight_that_is_none_is_refused_with_its_row(tmp_path: Path, weight: str) -> None:
    with pytest.raises(DataError, match=r"row 2: the weight .* is not a number"):
        open_source(write_csv(tmp_path, f"file_name,label,weight\na.jpg,cat,1\nb.jpg,cat,{weight}\n"))


@pytest.mark.parametrize("box", ["1 2 3", "1 2 3 4 5", "left", "1;2;3;4"])
def test_a_box_that_is_none_is_refused_with_its_row(tmp_path: Path, box: str) -> None:
    text = f"file_name,label,true_box\na.jpg,cat,\nb.jpg,cat,{box}\n"
    with pytest.raises(DataError, match=r"row 2.*four numbers"):
        open_source(write_csv(tmp_path, text))


@pytest.mark.parametrize("box", [5, [1, 2, 3], [1, 2, 3, None], {"x": 1}])
def test_a_box_of_the_wrong_kind_is_refused(tmp_path: Path, box: object) -> None:
    with pytest.raises(DataError, match=r"row 1.*four numbers"):
        open_source(write_jsonl(tmp_path, {"file_name": "a.jpg", "label": "cat", "true_box": box}))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, kind: str) -> None:
    file = write(tmp_path, kind) / f"metadata.{kind}"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert open_source(tmp_path).column("file_name") == [b"a.jpg", b"b.jpg"]


def test_accented_names_are_kept(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, "file_name,label\ncafé.jpg,café\n"))
    assert index.column("file_name") == ["café.jpg".encode()]
    assert index.classes == ("café",)


def test_names_that_are_no_utf_8_are_kept(tmp_path: Path) -> None:
    index = open_source(write_csv(tmp_path, b"file_name,label\ncaf\xe9.jpg,caf\xe9\n"))
    assert index.column("file_name") == [b"caf\xe9.jpg"]
    assert index.classes == ("caf\\xe9",)
    assert index.path(0) == os.path.join(tmp_path, os.fsdecode(b"caf\xe9.jpg"))


def test_duplicate_rows_are_kept(tmp_path: Path) -> None:
    assert len(open_source(write_csv(tmp_path, "file_name,label\na.jpg,cat\na.jpg,cat\na.jpg,dog\n"))) == 3


@pytest.mark.parametrize(("name", "split"), [("", "train"), ("validation", "val"), ("Valid", "val"), ("TEST", "test")])
def test_splits_have_one_name_each(tmp_path: Path, name: str, split: str) -> None:
    index = open_source(write_csv(tmp_path, f"file_name,label,split\na.jpg,cat,{name}\n"))
    assert index.column("split") == [split]


def test_a_manifest_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metadata\.csv lists no images"):
        open_source(write_csv(tmp_path, "file_name,label\n"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("metadata.jsonl", b'{"file_name": "a.jpg", '),
        ("metadata.jsonl", b"[1, 2]\n"),
        ("metadata.jsonl", b"[" * 100_000),
        ("metadata.parquet", b"PAR1 but not really"),
        ("metadata.csv", b'file_name,label\n"' + b"a" * 200_000 + b'",cat\n'),
        ("list.txt", b"a.jpg"),
    ],
)
def test_a_broken_manifest_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=name.replace(".", r"\.")):
        open_source(tmp_path / name)


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text('\n{"file_name": "a.jpg", "label": "cat"}\n\n   \n')
    assert len(open_source(tmp_path)) == 1


def test_a_manifest_for_each_split(tmp_path: Path) -> None:
    """Hugging Face's imagefolder: file names are relative to the manifest that has them."""
    for split, suffix in (("train", "csv"), ("validation", "jsonl")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.jpg").write_bytes(b"x")
        text = (
            "file_name,label\na.jpg,cat\n../b.jpg,dog\n"
            if suffix == "csv"
            else '{"file_name": "a.jpg", "label": "dog"}'
        )
        (tmp_path / split / f"metadata.{suffix}").write_text(text)
    index = open_source(tmp_path)
    assert index.classes == ("cat", "dog")
    assert index.column("file_name") == [b"train/a.jpg", b"train/../b.jpg", b"validation/a.jpg"]
    assert index.column("split") == ["train", "train", "val"]
    assert [index.classes[label] for label in index.labels()] == ["cat", "dog", "dog"]
    assert [problem is None for problem in index.column("problem")] == [True, False, True]
    assert Path(index.path(2)).is_file()


def test_verified_labels_are_marked(tmp_path: Path) -> None:
    rows = ("a.jpg,cat,true", "b.jpg,cat,", "c.jpg,dog,Yes", "d.jpg,dog,1.0", "e.jpg,dog,0")
    index = open_source(write_csv(tmp_path, "\n".join(("file_name,label,verified", *rows))))
    assert index.verified().tolist() == [True, False, True, True, False]


def test_a_verified_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1: verified is 'by Ann': write true, or nothing"):
        open_source(write_csv(tmp_path, "file_name,label,verified\na.jpg,cat,by Ann\n"))
