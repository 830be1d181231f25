"""One rule, one count: every place that says how many images are doubted says the same."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from somnet import clean
from somnet.cleaning.clean import CleaningRules
from somnet.report.overview import count_row
from somnet.report.records import read_records
from somnet.report.site import describe_run
from somnet.runs.doubt import flagged_sentence
from somnet.runs.kinds import count_kinds
from somnet.runs.label_scores import LabelScores, with_label_scores
from somnet.runs.run import Run


@pytest.fixture
def doubtful(run: Run, tmp_path: Path) -> Run:
    """A run in which some labels are doubted, by scores as train writes them."""
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("report"))
    table = pq.read_table(folder / "issues.parquet")
    readable = table.filter(pa.compute.invert(table["is_unreadable_issue"]))
    rng, count = np.random.default_rng(0), readable.num_rows
    right, known = rng.beta(0.4, 0.2, count), rng.beta(0.5, 0.2, count)
    scores = LabelScores(right.astype(np.float32), known.astype(np.float32), np.full(count, -1))
    new = {"is_label_issue", "label_score", "is_outlier_issue", "outlier_score", "suggested_label", "review_order"}
    judged = with_label_scores(readable.drop_columns(sorted(new)), scores, run.classes).select(table.column_names)
    bad = table.filter(table["is_unreadable_issue"])
    pq.write_table(pa.concat_tables([judged, bad]), folder / "issues.parquet")
    return Run(folder)


def test_all_places_count_alike(doubtful: Run, tmp_path: Path) -> None:
    scores = doubtful.scores()
    columns = [np.array(scores[name].to_pylist(), bool) for name in ("is_label_issue", "is_outlier_issue")]
    expected = int(sum(columns).sum())  # type: ignore[union-attr]
    assert expected > 3
    assert not (columns[0] & columns[1]).any()
    records = read_records(doubtful)
    total = count_row(records, "all", None).counts
    assert total["label"] + total["outlier"] == expected
    by_class = [count_row(records, name, number).counts for number, name in enumerate(doubtful.classes)]
    assert sum(counts["label"] + counts["outlier"] for counts in by_class) == expected
    page = describe_run(doubtful, records)
    assert page["below"][page["threshold"]] == expected
    cleaned = clean(doubtful, tmp_path / "out", CleaningRules(max_drop_per_class=1.0), dry_run=True)
    gone = [counts.get("label", 0) + counts.get("outlier", 0) for counts in cleaned.removed.values()]
    assert sum(gone) == expected
    assert cleaned.threshold == records.threshold == page["threshold"] / 100
    kinds = count_kinds(scores)
    assert min(kinds["test-leak"], kinds["duplicate"], kinds["unreadable"]) > 0
    assert {kind: total[kind] for kind in kinds} == kinds
    assert kinds == {kind: sum(counts[kind] for counts in by_class) for kind in kinds}
    assert flagged_sentence(scores).startswith(f"{expected} labels are doubted")
