"""Which views of an image are drawn, and how often."""

import numpy as np
import torch

from somnet.data.bags import DrawnInputs, Inputs


def says(number: int) -> Inputs:
    """A view that is its number, with the image and the seed that it was asked for."""
    return lambda row, seed: (torch.tensor(number), torch.tensor(row), torch.tensor(seed or 0))


def test_drawn_inputs_are_chosen_by_the_seed() -> None:
    choices = [says(0), says(1), says(2)]
    drawn = DrawnInputs(choices)
    chosen = [int(drawn(5, seed)[0]) for seed in range(300)]
    assert chosen == [int(drawn(5, seed)[0]) for seed in range(300)]
    assert all(70 < chosen.count(number) < 130 for number in range(3))
    assert [int(value) for value in drawn(5, 7)[1:]] == [5, 7]
    for seed in range(20):
        assert len(set(DrawnInputs(choices, 3)(5, seed)[0].tolist())) == 3  # all differ
        assert set(DrawnInputs(choices, 5)(5, seed)[0].tolist()) == {0, 1, 2}


def test_drawn_inputs_follow_their_shares() -> None:
    """Image 1 shows its thing in the first choice three times as often as in the second, and hardly in the third."""

    shares = np.array([[1, 1, 1], [3, 1, 1e-4]], np.float32)
    drawn = DrawnInputs([says(0), says(1), says(2)], 1, shares)
    chosen = [int(drawn(1, seed)[0]) for seed in range(400)]
    assert chosen == [int(drawn(1, seed)[0]) for seed in range(400)]
    assert 270 < chosen.count(0) < 330
    assert chosen.count(2) == 0
    even = [int(drawn(0, seed)[0]) for seed in range(300)]
    assert all(70 < even.count(number) < 130 for number in range(3))
    together = DrawnInputs(drawn.choices, 3, shares)
    assert all(set(together(1, seed)[0].tolist()) == {0, 1, 2} for seed in range(20))


def test_a_draw_is_the_even_one_as_often_as_shares_allow() -> None:
    """Shares of 0.3, 0.3, 0.3 and 0.1 differ from even ones by 0.15: so many of the draws, and no more."""
    choices = [says(number) for number in range(4)]
    shares = np.array([[1, 1, 1, 1], [3, 3, 3, 1]], np.float32)
    even, alike, other = DrawnInputs(choices), DrawnInputs(choices, 1, shares[:1]), DrawnInputs(choices, 1, shares)
    first = [int(even(0, seed)[0]) for seed in range(1000)]
    assert [int(alike(0, seed)[0]) for seed in range(1000)] == first
    second = [int(other(1, seed)[0]) for seed in range(1000)]
    changed = [(before, after) for before, after in zip(first, second, strict=True) if before != after]
    assert 115 < len(changed) < 185
    assert {before for before, _ in changed} == {3}
    assert 70 < second.count(3) < 130
    assert all(255 < second.count(number) < 345 for number in range(3))
