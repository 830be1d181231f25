"""How likely a label is right, the threshold that keeps a promise, and that every place counts alike."""

from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from somnet.data.dataset import Part
from somnet.data.index import SCHEMA, Index
from somnet.data.proposals import Scan
from somnet.methods import label_posterior
from somnet.methods.label_evidence import RegionFeatures
from somnet.runs import doubt
from somnet.runs.doubt import HALF, PROMISED, choose_threshold, flagged_sentence
from somnet.runs.label_scores import Beside, LabelScores, judge, spare_varied_classes, suggestions, with_label_scores


def test_suggestions_are_sure_and_typical_of_the_class() -> None:
    other, typical = np.array([1, 1, 1]), np.array([True, True, False])
    sure = np.array([0.85, 0.75, 0.95])
    assert suggestions(other, sure, typical).tolist() == [1, -1, -1]


def test_the_threshold_by_hand() -> None:
    """Below 0.31 the mean of 1 - score is (1 + 0.9 + 0.7) / 3 = 0.87, below 0.5 it is (2.6 + 0.55) / 4 = 0.79."""
    assert choose_threshold(np.array([0.0, 0.1, 0.3, 0.45, 0.9])) == pytest.approx(0.45)
    assert choose_threshold(np.array([0.9, 0.99])) == HALF  # nothing lies below
    assert choose_threshold(np.array([0.4, 0.45, 0.9])) == pytest.approx(0.4)  # neither is doubted
    assert choose_threshold(np.zeros(0)) == HALF


@given(st.lists(st.floats(0, 1, width=32), max_size=60))
def test_the_promise_is_kept_by_the_scores(scores: list[float]) -> None:
    score = np.array(scores, np.float32)
    threshold = choose_threshold(score)
    flagged = score[score < threshold]
    assert threshold <= HALF
    assert threshold == round(threshold, 2)  # what a slider of whole percents can show
    assert (1 - flagged.astype(np.float64)).sum() >= PROMISED * len(flagged) - 1e-6


def images(belief: list[float]) -> pa.Table:
    count = len(belief)
    return pa.table(
        {
            "file_name": [f"{number}.jpg" for number in range(count)],
            "belief": pa.array(belief, pa.float32()),
            "is_background_issue": [True] * count,
        }
    )


def test_a_doubted_image_is_a_wrong_label_or_an_outlier() -> None:
    scores = LabelScores(
        right=np.array([0.05, 0.02, 0.9], np.float32),
        known=np.array([0.9, 0.03, 0.95], np.float32),
        suggested=np.array([1, -1, -1]),
    )
    table = with_label_scores(images([0.6, 0.7, 0.8]), scores, ("ash", "oak"))
    assert table["is_label_issue"].to_pylist() == [True, False, False]
    assert table["is_outlier_issue"].to_pylist() == [False, True, False]
    assert table["is_background_issue"].to_pylist() == [False, False, True]
    assert table["suggested_label"].to_pylist() == ["oak", None, None]
    assert table["belief"].to_pylist() == pytest.approx([0.6, 0.7, 0.8])
    assert flagged_sentence(table) == "2 labels are doubted, of which about 2 are wrong"
    assert flagged_sentence(pa.table({"label_score": [0.1, 0.9]})) == "1 label is doubted, and probably wrong"


def test_clean_data_have_no_doubted_label() -> None:
    for count, said in ((29, "no label is doubted, as fewer than 30 tell nothing"), (30, "no label is doubted")):
        table = pa.table({"label_score": pa.array([0.9] * count + [None], pa.float32())})
        assert flagged_sentence(table) == said
    assert label_posterior.FEWEST == doubt.FEWEST


def test_a_class_that_is_more_varied_than_the_others_is_spared() -> None:
    foreign, labels = np.array([0.9, 0.8, 0.1, 0.9, 0.0, 0.0]), np.array([0, 0, 0, 1, 1, 1])
    assert spare_varied_classes(1 - foreign, labels) == pytest.approx(np.array([1.0, 1.0, 1.0, 0.1, 1.0, 1.0]))


def alike(labels: NDArray[np.int64]) -> Part:
    """Images with these labels, of three classes, without copies."""
    columns = {field.name: pa.nulls(len(labels), field.type) for field in SCHEMA}
    index = Index(Path(), ("ash", "elm", "oak"), pa.table(columns | {"label": pa.array(labels, pa.int32())}, SCHEMA))
    return Part(index, cast(Scan, None), np.full(len(labels), -1))  # nothing of the files is needed


def crawl(wrong: int = 6) -> tuple[RegionFeatures, NDArray[np.int64], Part]:
    """Three classes of 100, of which some show another one and 12 of the first none, but all the same thing."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    shown = labels.copy()
    shown[:wrong] = (labels[:wrong] + 1 + np.arange(wrong) // 3) % 3
    shown[30:66:3] = 3
    features = rng.normal(size=(300, 1, 16)) / 2 + 4 * np.eye(4, 16)[shown][:, None]
    return RegionFeatures(features.astype(np.float16), np.ones((300, 1), bool)), shown, alike(labels)


@pytest.mark.parametrize(("count", "sure"), [(6, False), (24, True)])  # of few others are not sure
def test_wrong_labels_and_foreign_pictures_are_told_apart(count: int, sure: bool) -> None:
    regions, shown, part = crawl(count)
    found = judge(lambda: iter([(np.arange(300), regions)]), part, Beside(), seed=0)
    wrong, foreign = shown != part.labels, shown == 3
    assert (found.right[~wrong] > 0.5).mean() > 0.98
    assert (found.right[wrong] < 0.5).all()
    assert (found.known[foreign] < 0.5).all()
    assert (found.known[~foreign] > 0.5).mean() > 0.98  # a wrong label is no outlier: it shows another class
    named, others = found.suggested[wrong & ~foreign], shown[wrong & ~foreign]
    assert (named == others).mean() > 0.9 if sure else (named == -1).all()
    assert ((named == others) | (named == -1)).all()
    assert (found.suggested[foreign] == -1).all()


def test_images_whose_labels_are_right_calibrate_the_others() -> None:
    """Odd but right images are as frequent among them: none of those is called wrong any longer."""
    regions, shown, part = crawl()
    rng = np.random.default_rng(1)
    labels = np.arange(120) % 3
    features = rng.normal(size=(120, 1, 16)) / 2 + 4 * np.eye(4, 16)[labels][:, None]
    everything = RegionFeatures(
        np.concatenate([regions.features, features.astype(np.float16)]), np.ones((420, 1), bool)
    )
    found = judge(lambda: iter([(np.arange(420), everything)]), part, Beside(right=alike(labels)), seed=0)
    wrong = shown != part.labels
    assert len(found.right) == 300
    assert (found.right[wrong] < choose_threshold(found.right)).mean() > 0.9
    assert (found.right[~wrong] < choose_threshold(found.right)).mean() < 0.02
    assert found.right.max() <= 1 - 1 / 122  # calibrated by 120, so none is surer


def test_all_that_lies_beside_the_training_images_is_told_apart() -> None:
    _, _, part = crawl()
    some = Part(part.index.take(np.arange(4)), cast(Scan, None), np.full(4, -1))
    assert Beside().labels().tolist() == []
    assert Beside(right=some).is_dropped().tolist() == [False] * 4
    both = Beside(some, part)
    assert both.is_dropped().tolist() == [True] * 4 + [False] * 300
    assert both.labels().tolist() == [*some.labels, *part.labels]


def test_what_a_person_drops_tells_what_the_others_like_it_are() -> None:
    """30 of 100 images of a class are of another kind: some pass for a kind of it, until five of them are dropped."""
    rng, labels = np.random.default_rng(0), np.arange(300) % 3
    foreign = np.flatnonzero(labels == 0)[:30]
    centres = 4 * np.eye(4, 16)
    centres[3, 0] = 5
    shown = np.where(np.isin(np.arange(300), foreign), 3, labels)
    regions = RegionFeatures(
        (rng.normal(size=(300, 1, 16)) / 2 + centres[shown][:, None]).astype(np.float16), np.ones((300, 1), bool)
    )
    before = judge(lambda: iter([(np.arange(300), regions)]), alike(labels), Beside(), seed=0)
    order = np.append(np.setdiff1d(np.arange(300), foreign[:5]), foreign[:5])
    beside = Beside(dropped=alike(labels[foreign[:5]]))
    after = judge(lambda: iter([(np.arange(300), regions.take(order))]), alike(labels[order[:295]]), beside, seed=0)
    learnt = np.isin(order[:295], foreign) & (before.right[order[:295]] > 0.7) & (after.right < 0.5)
    assert learnt.sum() >= 15
    assert (after.known[learnt] < 0.5).all()  # an outlier: no class explains it


def test_in_one_class_there_is_no_other_one_to_explain_an_image() -> None:
    rng, labels = np.random.default_rng(0), np.zeros(100, np.int64)
    centres = 4 * np.eye(2, 16)[np.where(np.arange(100) < 10, 1, 0)]
    regions = RegionFeatures(
        (rng.normal(size=(100, 1, 16)) / 2 + centres[:, None]).astype(np.float16), np.ones((100, 1), bool)
    )
    found = judge(lambda: iter([(np.arange(100), regions)]), alike(labels), Beside(), seed=0)
    assert (found.suggested == -1).all()
    assert found.known == pytest.approx(found.right)
    assert (found.known[:10] < 0.5).all()


def test_right_pictures_that_are_dropped_condemn_no_others_beside_a_clean_split() -> None:
    """Four hundred right labels, forty of them known to be, and eight that a person drops for other reasons."""
    rng, labels = np.random.default_rng(0), np.arange(448) % 3
    features = rng.normal(size=(448, 1, 64)) * 0.15 + 6 * np.eye(3, 64)[labels][:, None]
    regions = RegionFeatures(features.astype(np.float16), np.ones((448, 1), bool))
    beside = Beside(dropped=alike(labels[400:408]), right=alike(labels[408:]))
    found = judge(lambda: iter([(np.arange(448), regions)]), alike(labels[:400]), beside, seed=0)
    assert (found.right < choose_threshold(found.right)).sum() <= 20
    assert np.median(found.right) > 0.9
