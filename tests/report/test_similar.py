"""Which images look alike: found exactly where they are few, nearly so where they are many; and what a card shows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import expect

from somnet.errors import RunError
from somnet.report import similar
from somnet.report.class_pages import seen
from somnet.report.records import read_records
from somnet.report.similar import NONE, find_similar, nearest, nearest_among, read_vectors
from somnet.report.site import write_report
from somnet.runs.run import Run
from somnet.system.folders import VECTORS
from tests.report.conftest import HOSTILE, Visit, made_up_run


def clusters(count: int, groups: int = 40, spread: float = 0.4) -> NDArray[np.float32]:
    """Vectors of which every `groups`-th is of the same cluster."""
    rng = np.random.default_rng(count)
    middles = rng.standard_normal((groups, 16))
    return (middles[np.arange(count) % groups] + spread * rng.standard_normal((count, 16))).astype(np.float32)


def brute_force(vectors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    wide = vectors.astype(np.float64)
    size = (wide**2).sum(axis=1)
    distance = size[:, None] + size - 2 * wide @ wide.T
    np.fill_diagonal(distance, np.inf)
    return np.argsort(distance, axis=1, kind="stable")[:, :count]


def test_few_images_are_compared_one_by_one() -> None:
    vectors = clusters(150)
    assert np.array_equal(nearest(vectors, 5), brute_force(vectors, 5))


def test_the_result_does_not_depend_on_how_much_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = clusters(150)
    whole = nearest(vectors, 5)
    monkeypatch.setattr(similar, "AT_ONCE", 1000)
    assert np.array_equal(nearest(vectors, 5), whole)


def test_of_many_images_nearly_all_nearest_ones_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "CELL", 20)  # 100 cells of 2,000 images, of which 12 are searched
    vectors = clusters(2000)
    found, true = nearest(vectors, 5), brute_force(vectors, 5)
    assert (found != np.arange(2000)[:, None]).all()
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found.tolist(), true.tolist(), strict=True)]) > 0.95


def test_where_there_are_no_more_nothing_is_made_up() -> None:
    vectors = clusters(3)
    assert sorted(nearest(vectors, 5)[0].tolist()) == [NONE, NONE, NONE, 1, 2]
    assert nearest(vectors[:1], 2).tolist() == [[NONE, NONE]]
    assert nearest(vectors[:0], 2).shape == (0, 2)
    assert nearest_among(vectors, np.array([0]), np.zeros(0, np.int64), 2).tolist() == [[NONE, NONE]]


@pytest.fixture
def made(tmp_path: Path) -> Run:
    """40 images of two classes and a file that is none; rows 2k and 2k + 1 look alike, whatever their labels."""
    files = [(f"a/{HOSTILE} {n}.jpg", "oak" if n < 20 else "elm") for n in range(40)]
    run = made_up_run(tmp_path / "run", files, [("a/broken.jpg", "not an image")])
    rng = np.random.default_rng(0)
    places = np.repeat(rng.standard_normal((20, 8)), 2, axis=0) + 0.01 * rng.standard_normal((40, 8))
    np.save(run.path / VECTORS, places.astype(np.float16))
    return run


def test_cards_compare_with_clean_images_of_both_classes(made: Run) -> None:
    records = read_records(made)
    vectors = read_vectors(made, records)
    assert vectors is not None
    assert len(vectors) == 40  # the broken file has none
    found = find_similar(records, vectors, seen(records))
    assert found.of_all[:40, 0].tolist() == [row + 1 if row % 2 == 0 else row - 1 for row in range(40)]
    assert (found.of_all[40] == NONE).all()
    for row in range(40):
        for rows, label in ((found.of_given[row], records.label[row]), (found.of_seen[row], seen(records)[row])):
            others = [other for other in rows.tolist() if other != NONE]
            assert all(
                records.flags["clean"][other] and records.label[other] == label and other != row for other in others
            )
    agrees = seen(records) == records.label
    assert (found.of_seen[agrees] == NONE).all()  # there is nothing else to compare with


def test_a_broken_file_may_stand_before_the_others(made: Run) -> None:
    records = read_records(made)
    vectors = read_vectors(made, records)
    assert vectors is not None
    before = find_similar(records, vectors, seen(records))
    turned = replace(records, table=records.table.take(np.roll(np.arange(41), 1)))
    found = find_similar(turned, vectors, seen(turned))
    for name in ("of_all", "of_given", "of_seen"):
        rows = getattr(before, name)[:40]
        assert getattr(found, name)[1:].tolist() == np.where(rows == NONE, NONE, rows + 1).tolist()
        assert (getattr(found, name)[0] == NONE).all()


def test_stored_vectors_give_what_wide_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "CELL", 20)
    monkeypatch.setattr(similar, "ROWS_AT_ONCE", 300)
    stored = clusters(2000).astype(np.float16)
    stored[7, 0], stored[8, 0] = np.nan, np.inf
    assert np.array_equal(nearest(stored, 5), nearest(np.nan_to_num(stored).astype(np.float32), 5))


def test_vectors_of_something_else_are_refused(made: Run) -> None:
    records = read_records(made)
    file = made.path / VECTORS
    for wrong in (np.zeros((39, 8)), np.zeros((40, 65)), np.zeros(40), np.zeros((40, 8), np.int64)):
        np.save(file, wrong)
        with pytest.raises(RunError, match="does not match"):
            read_vectors(made, records)
    file.write_bytes(b"\x93NUMPY" + b"\0" * 20)
    with pytest.raises(RunError, match="cannot be read"):
        read_vectors(made, records)
    file.unlink()
    assert read_vectors(made, records) is None


def test_similar_images_lead_from_card_to_card(run: Run, visit: Callable[..., Visit]) -> None:
    page = visit(run.path / "report").go("list.html#kind=all&row=3")
    nearest_of_all = page.locator("#similar-nearest .tile")
    expect(nearest_of_all).to_have_count(similar.NEAREST)
    wanted = nearest_of_all.first.get_attribute("title") or ""
    nearest_of_all.first.click()
    expect(page.locator("#card-name")).to_have_text(wanted)


def test_a_card_names_the_classes_it_compares_with(made: Run, visit: Callable[..., Visit]) -> None:
    opened, records = visit(write_report(made).parent), read_records(made)
    vectors = read_vectors(made, records)
    assert vectors is not None
    found = find_similar(records, vectors, seen(records))
    for kind, rows, classes in (("given", found.of_given, records.label), ("seen", found.of_seen, seen(records))):
        if not (rows[:40, 0] >= 0).any():
            continue
        row = int(np.flatnonzero(rows[:, 0] >= 0)[0])
        page = opened.go(f"list.html#kind=all&row={row}")
        expect(page.locator(f"#similar-{kind} bdi").first).to_have_text(records.classes[classes[row]])
        wanted, tiles = [other for other in rows[row].tolist() if other != NONE], page.locator(f"#similar-{kind} .tile")
        expect(tiles).to_have_count(len(wanted))
        assert tiles.evaluate_all("(all) => all.map((one) => Number(one.dataset.row))") == wanted
