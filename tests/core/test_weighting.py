"""From scores to ROI weights to the bag feature: Section 3.2, Eq. 10 and the top p."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.core.weighting import area_score, bag_feature, initial_weights, keep_top, normalise, roi_weight

WHOLE = [0.0, 0.0, 1.0, 1.0]


@st.composite
def bags(draw: st.DrawFn) -> tuple[list[float], list[bool], float]:
    """Weights of a bag's ROIs, which of them are real (at least one), and p."""
    size = draw(st.integers(1, 42))
    weights = draw(st.lists(st.floats(2.0**-20, 1.0, width=32), min_size=size, max_size=size))
    mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    mask[draw(st.integers(0, size - 1))] = True
    return weights, mask, draw(st.sampled_from([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 1.0]))


# --- the first weights


def test_first_weights_are_shared_by_the_images() -> None:
    weights = initial_weights(torch.ones(1, 2, 3, dtype=torch.bool))
    assert weights.tolist() == [[[0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]]


def test_first_weights_skip_padded_images() -> None:
    mask = torch.tensor([[[True, True], [False, False]]])
    assert initial_weights(mask).tolist() == [[[1.0, 0.0], [0.0, 0.0]]]


# --- area score


def test_area_score_is_relative_to_the_largest_proposal() -> None:
    boxes = torch.tensor([[WHOLE, [0, 0, 0.5, 0.8], [0.5, 0.5, 1.0, 0.7], [0.0, 0.0, 0.2, 1.0]]])  # 1, .4, .1, .2
    score = area_score(boxes, torch.ones(1, 4, dtype=torch.bool))
    assert score[0].tolist() == pytest.approx([1.0, 1.0, 0.25, 0.5])


def test_area_score_of_each_image_stands_alone() -> None:
    boxes = torch.tensor([[[WHOLE, [0, 0, 0.2, 0.5]], [WHOLE, [0, 0, 1, 0.5]]]])
    assert area_score(boxes, torch.ones(1, 2, 2, dtype=torch.bool)).tolist() == [[[1.0, 1.0], [1.0, 1.0]]]


def test_area_score_of_padding_is_0() -> None:
    boxes = torch.tensor([[WHOLE, [0, 0, 0.5, 0.5], [0, 0, 0.9, 0.9]]])
    score = area_score(boxes, torch.tensor([[True, True, False]]))
    assert score[0].tolist() == pytest.approx([1.0, 1.0, 0.0])


def test_area_score_of_a_padded_image_is_0() -> None:
    boxes = torch.tensor([[WHOLE, [0, 0, 0.5, 0.5]]])
    assert area_score(boxes, torch.tensor([[False, False]])).tolist() == [[0.0, 0.0]]


def test_area_score_without_proposals_is_1() -> None:
    assert area_score(torch.tensor([[WHOLE]]), torch.tensor([[True]])).tolist() == [[1.0]]


def test_area_score_of_empty_boxes_is_finite() -> None:
    score = area_score(torch.tensor([[WHOLE, [0.5, 0.5, 0.5, 0.9]]]), torch.tensor([[True, True]]))
    assert score.tolist() == [[1.0, 0.0]]


# --- Eq. 10


def test_roi_weight_is_prototypical_times_area_score() -> None:
    assert roi_weight(torch.tensor([0.2, 0.2, 0.6]), torch.tensor([1.0, 0.25, 0.5])).tolist() == pytest.approx(
        [0.2, 0.05, 0.3]
    )


# --- the top p


def test_keeps_the_top_40_percent_of_five() -> None:
    weights = torch.tensor([[0.1, 0.5, 0.2, 0.4, 0.3]])
    kept = keep_top(weights, torch.ones(1, 5, dtype=torch.bool), 0.4)
    assert kept[0].tolist() == pytest.approx([0.0, 0.5, 0.0, 0.4, 0.0])


def test_keeps_4_of_the_papers_42_at_10_percent() -> None:
    weights = torch.linspace(0.1, 1, 42)[None]
    kept = keep_top(weights, torch.ones(1, 42, dtype=torch.bool), 0.1)
    assert kept[0].nonzero().flatten().tolist() == [38, 39, 40, 41]


def test_keeps_at_least_one() -> None:
    kept = keep_top(torch.tensor([[0.1, 0.3, 0.2]]), torch.ones(1, 3, dtype=torch.bool), 0.1)
    assert kept[0].tolist() == pytest.approx([0.0, 0.3, 0.0])


def test_counts_only_real_rois() -> None:
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]])
    mask = torch.arange(10)[None] < 4
    assert keep_top(weights, mask, 0.5)[0].tolist() == pytest.approx([0.4, 0.3, *[0.0] * 8])


def test_each_bag_has_its_own_count() -> None:
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    assert (keep_top(weights, mask, 0.5) > 0).sum(dim=1).tolist() == [2, 1]


def test_first_of_equal_weights_wins() -> None:
    kept = keep_top(torch.full((1, 42), 0.5), torch.ones(1, 42, dtype=torch.bool), 0.1)
    assert kept[0].nonzero().flatten().tolist() == [0, 1, 2, 3]


@given(bags())
def test_top_p_of_any_bag(bag: tuple[list[float], list[bool], float]) -> None:
    values, real, share = bag
    weights, mask = torch.tensor([values]), torch.tensor([real])
    kept = keep_top(weights, mask, share)[0]
    assert int((kept > 0).sum()) == max(1, round(share * sum(real)))
    assert (kept[~mask[0]] == 0).all()
    lost = weights[0][mask[0] & (kept == 0)]
    assert not len(lost) or lost.max() <= kept[kept > 0].min()
    assert torch.equal(kept[kept > 0], weights[0][kept > 0])


# --- normalising and averaging


def test_weights_are_normalised_to_1() -> None:
    assert normalise(torch.tensor([[1.0, 3.0, 0.0]]))[0].tolist() == pytest.approx([0.25, 0.75, 0.0])


def test_a_bag_without_weight_stays_finite() -> None:
    assert normalise(torch.zeros(1, 3)).tolist() == [[0.0, 0.0, 0.0]]


def test_bag_feature_is_the_weighted_average() -> None:
    weights = torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    features = torch.tensor([[[4.0, 0.0], [0.0, 8.0], [9.0, 9.0]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    assert bag_feature(weights, features).tolist() == [[1.0, 6.0], [1.0, 2.0]]
