"""Metrics with numbers worked by hand."""

import numpy as np
import pytest

from somnet.runs.metrics import auroc, iou, per_class, top_k

SCORES = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.5, 0.4, 0.1]])
LABELS = np.array([0, 2, 2, 2])  # ranks of the labels: 1, 2, 1, 3


def boxes(*rows: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(rows, np.float64)


@pytest.mark.parametrize(("k", "share"), [(1, 2 / 4), (2, 3 / 4), (3, 1.0), (5, 1.0)])
def test_top_k_counts_labels_among_the_k_best(k: int, share: float) -> None:
    assert top_k(SCORES, LABELS, k) == pytest.approx(share)


def test_per_class_is_the_top_1_of_each_class() -> None:
    assert per_class(SCORES, LABELS, ["a", "b", "c"]) == pytest.approx({"a": 1.0, "c": 1 / 3})


def test_auroc_is_the_share_of_pairs_in_order() -> None:
    # clean .9 .4, noisy .5 .1: three of four pairs are in order
    score, clean = np.array([0.9, 0.5, 0.4, 0.1]), np.array([True, False, True, False])
    assert auroc(score, clean) == pytest.approx(3 / 4)


def test_auroc_counts_a_tie_as_half() -> None:
    assert auroc(np.array([0.5, 0.5]), np.array([True, False])) == pytest.approx(0.5)


def test_auroc_of_a_score_turned_round_is_0() -> None:
    assert auroc(np.array([0.1, 0.9]), np.array([True, False])) == 0.0


@pytest.mark.parametrize("clean", [True, False])
def test_auroc_needs_both_kinds(clean: bool) -> None:
    assert auroc(np.array([0.1, 0.9]), np.array([clean, clean])) is None


def test_iou_of_a_shifted_box() -> None:
    # 2 x 2 against 2 x 2 shifted by (1, 1): 1 / (4 + 4 - 1)
    assert iou(boxes((0, 0, 2, 2)), boxes((1, 1, 3, 3))).tolist() == pytest.approx([1 / 7])


def test_iou_goes_row_by_row() -> None:
    first = boxes((0, 0, 2, 2), (0, 0, 4, 1), (0, 0, 1, 1))
    second = boxes((0, 0, 2, 2), (0, 0, 2, 1), (2, 2, 3, 3))
    assert iou(first, second).tolist() == pytest.approx([1.0, 0.5, 0.0])


def test_iou_of_boxes_apart_in_both_directions_is_0() -> None:
    assert iou(boxes((0, 0, 1, 1)), boxes((5, 5, 6, 6))).tolist() == [0.0]


def test_iou_of_empty_boxes_is_0() -> None:
    assert iou(boxes((1, 1, 1, 1)), boxes((1, 1, 1, 1))).tolist() == [0.0]
