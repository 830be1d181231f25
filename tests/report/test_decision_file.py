"""decisions.csv of a review: written at every step, read when somebody else has changed it."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somnet.data.decisions import Decision, read_decisions
from somnet.errors import ConfigError, RunError
from somnet.report.decision_file import DecisionFile
from somnet.system.locks import one_writer

NAMES = ("a.jpg", "=b.jpg", "__proto__", "a.jpg", 'new\nline "quoted".jpg')
CLASSES = ("constructor", "=birch", "oak, red")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.csv"


def test_every_step_is_on_the_disk(file: Path) -> None:
    kept = DecisionFile(file, NAMES, CLASSES)
    assert kept.codes() == (0, {})
    assert not file.exists()  # nothing is written before something is decided
    assert kept.change([(1, "k"), (2, "r0"), (4, "s")]) == 1
    assert read_decisions(file) == {
        "=b.jpg": Decision("keep"),
        "__proto__": Decision("relabel", "constructor"),
        NAMES[4]: Decision("unsure"),
    }
    assert kept.change([(1, None), (4, "r2")]) == 2
    assert read_decisions(file) == {
        "__proto__": Decision("relabel", "constructor"),
        NAMES[4]: Decision("relabel", "oak, red"),
    }
    assert DecisionFile(file, NAMES, CLASSES).codes()[1] == {2: "r0", 4: "r2"}


def test_a_decision_is_about_all_rows_of_its_name(file: Path) -> None:
    kept = DecisionFile(file, NAMES, CLASSES)
    kept.change([(3, "d")])
    assert kept.codes()[1] == {0: "d", 3: "d"}
    assert file.read_text().count("a.jpg") == 1


def test_steps_are_undone_in_turn(file: Path) -> None:
    kept = DecisionFile(file, NAMES, CLASSES)
    kept.change([(1, "k"), (2, "d")])
    kept.change([(1, "d")])
    assert kept.undo() == (3, [(1, "k")])
    assert kept.codes()[1] == {1: "k", 2: "d"}
    assert kept.undo()[1] == [(1, None), (2, None)]
    assert read_decisions(file) == {}
    assert not kept.can_undo
    assert kept.undo() == (4, [])


@pytest.mark.parametrize(
    ("row", "code"),
    [
        *((row, "k") for row in (-1, 5, "1", True, 1.0, None)),
        *((1, code) for code in ("x", "constructor", "r3", "r", "r-1", "r1 ", "r\u0661", 0, ["k"], "keep", "")),
    ],
)
def test_what_means_nothing_changes_nothing(file: Path, row: object, code: object) -> None:
    kept = DecisionFile(file, NAMES, CLASSES)
    kept.change([(2, "d")])
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="load the page again"):
        kept.change([(0, "k"), (row, code)])  # type: ignore[list-item]
    assert (file.read_bytes(), kept.codes()) == (before, (1, {2: "d"}))


def test_a_file_that_somebody_else_wrote_is_read(file: Path) -> None:
    first, second = DecisionFile(file, NAMES, CLASSES), DecisionFile(file, NAMES, CLASSES)
    first.change([(1, "k")])
    second.change([(2, "d")])
    assert first.codes()[1] == second.codes()[1] == {1: "k", 2: "d"}
    file.write_text("file_name,decision,label\n'=b.jpg,drop,\n")
    assert first.codes()[1] == {1: "d"}
    file.write_text("file_name,decision,label\nelsewhere.jpg,drop,\n")
    for act in (first.codes, first.undo, lambda: first.change([(1, "k")])):
        with pytest.raises(ConfigError, match=r"elsewhere\.jpg"):
            act()
    assert "elsewhere" in file.read_text()  # it is the user's


def test_a_link_or_a_pipe_is_not_written_through(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    file.symlink_to(tmp_path / "mine.txt")
    with pytest.raises(RunError, match="not a plain file"):
        DecisionFile(file, NAMES, CLASSES)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(RunError, match="not a plain file"):
        DecisionFile(file, NAMES, CLASSES)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@settings(max_examples=15)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([None, "k", "d", "s", "r0", "r1", "r2"])), max_size=12
    )
)
def test_the_file_says_what_the_pages_know(
    changes: list[tuple[int, str | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("kept") / "decisions.csv"
    kept = DecisionFile(file, NAMES, CLASSES)
    for change in changes:
        kept.change([change])
    assert DecisionFile(file, NAMES, CLASSES).codes()[1] == kept.codes()[1]
    json.dumps(kept.codes())


def decide(file: Path, rows: range, names: list[str]) -> None:
    kept = DecisionFile(file, names, CLASSES)
    for row in rows:
        kept.change([(row, "kds"[row % 3])])


def test_two_servers_that_decide_at_once_lose_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("somnet.report.decision_file.PATIENCE", 600.0)  # the kernel hands a lock to anyone
    names = [f"{number}.jpg" for number in range(60)]
    processes = [
        multiprocessing.get_context("fork").Process(target=decide, args=(file, range(who, 60, 3), names))
        for who in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert DecisionFile(file, names, CLASSES).codes()[1] == {row: "kds"[row % 3] for row in range(60)}
    assert os.listdir(file.parent) == [file.name]


def test_a_word_that_is_changed_in_place_is_seen(file: Path) -> None:
    kept = DecisionFile(file, NAMES, CLASSES)
    kept.change([(1, "k"), (2, "d")])
    status = file.stat()
    file.write_text(file.read_text().replace("keep", "drop"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    kept.change([(4, "s")])
    assert kept.codes()[1] == {1: "d", 2: "d", 4: "s"}


def test_a_server_that_stands_still_in_a_write_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("somnet.report.decision_file.PATIENCE", 0.05)
    kept = DecisionFile(file, NAMES, CLASSES)
    with (
        one_writer(file.with_name(".decisions.csv.somnet-lock"), file),
        pytest.raises(RunError, match=rf"decisions\.csv is being written by process {os.getpid()}"),
    ):
        kept.change([(1, "k")])
    assert kept.change([(1, "k")]) == 1
