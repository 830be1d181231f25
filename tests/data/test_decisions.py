"""What a person decided reaches the list of images, and what cannot be meant is refused."""

from pathlib import Path

import pytest

from somnet.data.decisions import (
    DROPPED,
    Decision,
    check_decisions,
    describe_decisions,
    read_decisions,
    read_rounds,
    with_decisions,
    write_decisions,
)
from somnet.data.index import Index, make_index
from somnet.errors import ConfigError


def images() -> Index:
    names = (b"a.jpg", b"b.jpg", b"c.jpg", b"d.jpg", b"a.jpg")
    splits = ("train", "train", "train", "train", "test")
    rows = [{"file_name": name, "label": 0, "split": split} for name, split in zip(names, splits, strict=True)]
    return make_index(Path(), ("cat", "dog"), rows)


def written(file: Path, *lines: str) -> str:
    file.write_text("\n".join(("file_name,decision,label", *lines)) + "\n", encoding="utf-8")
    return str(file)


def test_decisions_are_done_to_training_images_alone() -> None:
    index = with_decisions(
        images(),
        {
            "a.jpg": Decision("drop"),
            "b.jpg": Decision("keep"),
            "c.jpg": Decision("relabel", "dog"),
            "d.jpg": Decision("unsure"),
        },
    )
    assert index.column("split") == [DROPPED, "train", "train", "train", "test"]
    assert index.labels().tolist() == [0, 0, 1, 0, 0]
    assert index.verified().tolist() == [False, True, True, False, False]
    assert index.column("judged_label") == [0, 0, 0, None, None]
    assert index.table.schema == images().table.schema


def test_no_decision_changes_nothing() -> None:
    index = images()
    assert with_decisions(index, {}) is index
    assert with_decisions(index, {"a.jpg": Decision("unsure")}).table.equals(index.table)


def test_dropped_images_may_be_gone(caplog: pytest.LogCaptureFixture) -> None:
    there, gone = {"a.jpg": Decision("keep")}, {"b.jpg": Decision("drop"), "c.jpg": Decision("drop")}
    check_decisions(there | gone, ["a.jpg"], ["x"])
    assert "2 images that were to be dropped are not there any more, as b.jpg" in caplog.text
    with pytest.raises(ConfigError, match=r"none of the 2 images that the decisions drop, as b\.jpg, is there"):
        check_decisions(gone, ["a.jpg"], ["x"])
    with pytest.raises(ConfigError, match="did you mean 'banana'"):
        check_decisions({"a.jpg": Decision("relabel", "Banana")}, ["a.jpg"], ["apple", "banana"])


def test_unknown_images_and_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the decisions are about training images that are not there, as e\.jpg"):
        with_decisions(images(), {"e.jpg": Decision("keep")})
    with pytest.raises(ConfigError, match="a class that the data do not have, 'bird': fix the label"):
        check_decisions({"a.jpg": Decision("relabel", "bird")}, ["a.jpg"], ["cat"])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    decisions = {"=1+1.jpg": Decision("keep"), "'b, c.jpg": Decision("relabel", "-dog"), "ä.jpg": Decision("drop")}
    write_decisions(tmp_path / "d.csv", decisions)
    assert read_decisions(tmp_path / "d.csv") == decisions
    assert "\n=" not in (tmp_path / "d.csv").read_text(encoding="utf-8")  # no formula
    assert describe_decisions(decisions) == "decisions: 1 kept, 1 relabelled, 1 dropped and not trained on"


def test_a_later_round_overrides_but_who_keeps_a_new_label_keeps_that(tmp_path: Path) -> None:
    first = written(tmp_path / "1.csv", "a.jpg,keep,", "b.jpg,relabel,dog", "c.jpg,relabel,dog", "d.jpg,drop,")
    second = written(tmp_path / "2.csv", "a.jpg,drop,", "b.jpg,keep,", "c.jpg,relabel,cat")
    assert read_rounds([first, second]) == {
        "a.jpg": Decision("drop"),
        "b.jpg": Decision("relabel", "dog"),
        "c.jpg": Decision("relabel", "cat"),
        "d.jpg": Decision("drop"),
    }
    assert read_rounds([]) == {}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("a.jpg,keep,", "a.jpg,drop,"), "line 3 contradicts an earlier one about a.jpg"),
        (("a.jpg,relabel,",), "line 2 is not a decision"),
        (("a.jpg,maybe,",), "line 2 is not a decision"),
    ],
)
def test_what_is_no_decision_is_refused(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_decisions(Path(written(tmp_path / "d.csv", *lines)))
