"""Equations 2 to 9 with numbers worked by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from somnet.core.memory import (
    d_value_loss,
    exact_ratios,
    key_loss,
    memory_loss,
    prototypical_score,
    r_value_loss,
    similarity,
    som_key_loss,
    to_simplex,
    winner,
)

ROWS = st.lists(
    st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4), min_size=1, max_size=5
)  # (n, 4), any sign


def number(value: Tensor) -> float:
    assert value.shape == ()
    return float(value)


# --- Eq. 2


def test_similarity_is_the_cosine() -> None:
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert similarity(torch.tensor([[3.0, 4.0]]), keys)[0].tolist() == pytest.approx([0.6, 0.8, -0.6])


def test_winner_is_the_key_of_highest_cosine() -> None:
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    features = torch.tensor([[4.0, 3.0], [3.0, 4.0], [-5.0, 1.0]])
    assert winner(features, keys).tolist() == [0, 1, 2]


def test_winner_does_not_depend_on_length() -> None:
    keys = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    short = torch.tensor([[0.003, 0.004]])
    assert winner(short, keys).tolist() == winner(1e6 * short, keys).tolist() == [0]


# --- Eq. 3


def test_key_loss_is_minus_the_cosine() -> None:
    # cos((3, 4), (1, 0)) = 3 / 5; cos((6, 8), (0, 2)) = 16 / 20
    x = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    keys = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert number(key_loss(x, keys)) == pytest.approx(-(0.6 + 0.8))


def test_key_step_moves_the_winner_towards_the_feature() -> None:
    x = torch.tensor([[3.0, 4.0]])
    key = torch.tensor([[1.0, 0.0]], requires_grad=True)
    torch.autograd.backward(key_loss(x, key))
    # the cosine's gradient at a unit key: x/|x| - cos * k = (0.6, 0.8) - 0.6 * (1, 0)
    assert key.grad is not None
    assert key.grad[0].tolist() == pytest.approx([0.0, -0.8])


# --- Eq. 4


def test_d_value_loss_is_minus_the_cosine_with_the_label() -> None:
    # |(3, 4)| = 5: 3/5 for label 0 and 4/5 for label 1
    rows = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    assert number(d_value_loss(rows, torch.tensor([0, 1]))) == pytest.approx(-(0.6 + 0.8))


def test_d_value_step_moves_towards_the_label() -> None:
    row = torch.tensor([[3.0, 4.0]], requires_grad=True)
    torch.autograd.backward(d_value_loss(row, torch.tensor([0])))
    # d/dd_0 of 3/5: 1/5 - 3*3/125 = 16/125; d/dd_1: -3*4/125 = -12/125
    assert row.grad is not None
    assert row.grad[0].tolist() == pytest.approx([-16 / 125, 12 / 125])


# --- Eq. 5 and 7


def test_simplex_of_a_positive_row_divides_by_its_sum() -> None:
    assert to_simplex(torch.tensor([[1.0, 3.0]]))[0].tolist() == pytest.approx([0.25, 0.75])


def test_simplex_lifts_negative_entries_to_nothing() -> None:
    assert to_simplex(torch.tensor([[-2.0, 1.0, 1.0]]))[0].tolist() == pytest.approx([0.0, 0.5, 0.5], abs=1e-5)


@given(ROWS)
def test_simplex_rows_are_distributions(values: list[list[float]]) -> None:
    rows = to_simplex(torch.tensor(values))
    assert (rows >= 0).all()
    assert torch.allclose(rows.sum(dim=1), torch.ones(len(values)), atol=1e-5)


@given(ROWS)
def test_simplex_twice_is_simplex_once(values: list[list[float]]) -> None:
    once = to_simplex(torch.tensor(values))
    assert torch.allclose(to_simplex(once), once, atol=1e-5)


# --- Eq. 6


def test_r_value_loss_is_minus_the_cosine_with_the_slot() -> None:
    # |(2, 3, 6)| = 7: 6/7 for slot 2 and 2/7 for slot 0
    rows = torch.tensor([[2.0, 3.0, 6.0], [2.0, 3.0, 6.0]])
    assert number(r_value_loss(rows, torch.tensor([2, 0]))) == pytest.approx(-8 / 7)


def test_r_value_step_moves_towards_the_slot() -> None:
    row = torch.tensor([[2.0, 3.0, 6.0]], requires_grad=True)
    torch.autograd.backward(r_value_loss(row, torch.tensor([0])))
    # of 2/7: 1/7 - 4/343, -6/343, -12/343, and the loss is its negative
    assert row.grad is not None
    assert row.grad[0].tolist() == pytest.approx([-45 / 343, 6 / 343, 12 / 343])


# --- Eq. 8


def test_som_key_loss_weighs_the_neighbours_by_eta() -> None:
    x = torch.tensor([[3.0, 4.0]])
    keys = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [9.0, 9.0]]])
    eta = torch.tensor([[1.0, 1 / 2, 1 / 3, 0.0]])  # the last lies off the grid
    assert number(som_key_loss(x, keys, eta)) == pytest.approx(-(0.8 + 0.6 / 2 - 0.6 / 3))


def test_som_key_loss_leaves_keys_off_the_grid_alone() -> None:
    keys = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]], requires_grad=True)
    torch.autograd.backward(som_key_loss(torch.tensor([[3.0, 4.0]]), keys, torch.tensor([[1.0, 0.0]])))
    assert keys.grad is not None
    assert keys.grad[0, 1].tolist() == [0.0, 0.0]
    assert keys.grad[0, 0].abs().sum() > 0


def test_som_key_loss_of_radius_0_is_the_key_loss() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 5, generator=generator)
    keys = torch.randn(6, 5, generator=generator)
    whole = som_key_loss(x, keys[:, None], torch.ones(6, 1))
    assert number(whole) == pytest.approx(number(key_loss(x, keys)), rel=1e-6)


# --- Eq. 9


def test_memory_loss_has_three_terms() -> None:
    terms = memory_loss(
        x=torch.tensor([[3.0, 4.0]]),
        label=torch.tensor([1]),
        slot=torch.tensor([2]),
        neighbour_keys=torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]),
        eta=torch.tensor([[1.0, 0.5]]),
        d_winner=torch.tensor([[3.0, 4.0]]),
        r_label=torch.tensor([[2.0, 3.0, 6.0]]),
    )
    assert {name: number(term) for name, term in terms.items()} == pytest.approx(
        {"som_key": -(0.8 + 0.3), "d_value": -0.8, "r_value": -6 / 7}
    )


# --- the ratios that D and R stand for


def test_prototypical_score_is_the_product() -> None:
    product = prototypical_score(torch.tensor([0.5, 0.2]), torch.tensor([0.4, 0.0]))
    assert product.tolist() == pytest.approx([0.2, 0.0])


def test_exact_ratios_count_the_bags() -> None:
    # slot 0 has classes 0, 0, 1; slot 1 has class 1; slot 2 is empty
    d, r = exact_ratios(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]), slots=3, classes=2)
    assert d.tolist() == [pytest.approx([2 / 3, 1 / 3]), [0.0, 1.0], [0.0, 0.0]]
    assert r.tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
