"""SSR: relabelling, votes and balance by hand."""

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.data.bags import count_bags, draw_bags
from somnet.methods.ssr import Ssr, balanced_rows, is_clean, neighbour_votes, relabelled
from somnet.runs.run import build_method

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def ssr(made: "Toy") -> Ssr:
    assert isinstance(made.method, Ssr)
    return made.method


def always(made: "Toy", logits: list[float]) -> Ssr:
    """The method with a classifier that gives these logits whatever it sees."""
    method = ssr(made)
    with torch.no_grad():
        method.network.classifier.weight.zero_()
        method.network.classifier.bias.copy_(torch.tensor(logits))
    return method


def prepare(made: "Toy", phase: int = 0, seed: int = 0) -> None:
    made.method.eval()
    with torch.no_grad():
        made.method.prepare(made.method.plan()[phase], made.bag_pass, torch.Generator().manual_seed(seed))


def on_circle(*degrees: float) -> torch.Tensor:
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_only_what_is_sure_is_relabelled() -> None:
    probabilities = torch.tensor([[0.02, 0.98], [0.06, 0.94], [0.96, 0.04]])
    assert relabelled(torch.tensor([0, 0, 1]), probabilities, threshold=0.95).tolist() == [1, 0, 0]


def test_votes_by_hand() -> None:
    unit, label = on_circle(0, 10, 20, 60, 70, 80), torch.tensor([0, 0, 0, 0, 1, 1])
    votes = neighbour_votes(unit, slice(0, 6), label, classes=2, count=3)
    assert votes[0].tolist() == [1.0, 0.0]
    assert votes[3].tolist() == pytest.approx([0.2, 0.8])  # one of four, and both of two
    assert votes[4].tolist() == pytest.approx([0.5, 0.5])  # two of four, and one of two: not counting itself
    assert is_clean(votes, label, 1.0).tolist() == [True, True, True, False, True, True]
    assert is_clean(votes, label, 0.2).all()  # 0.2 of 0.8 is a quarter
    later = neighbour_votes(unit, slice(3, 5), label, classes=2, count=3)
    assert torch.equal(later, votes[3:5])  # a block knows who is who


def test_a_class_without_images_gets_no_votes() -> None:
    votes = neighbour_votes(on_circle(0, 5, 9), slice(0, 3), torch.tensor([0, 0, 2]), classes=4, count=2)
    assert torch.isfinite(votes).all()
    assert votes[:, [1, 3]].abs().sum() == 0


def test_each_class_comes_equally_often() -> None:
    label = torch.tensor([0] * 6 + [1] * 3 + [2] * 2)
    chosen = torch.tensor([True] * 6 + [True, True, False] + [False, True])
    drawn = balanced_rows(label, chosen, torch.Generator().manual_seed(0)).tolist()
    assert len(drawn) == 11
    assert Counter(label[drawn].tolist()) == {0: 4, 1: 4, 2: 3}
    times = Counter(drawn)
    assert [times[row] for row in (6, 7, 8, 9, 10)] == [2, 2, 0, 0, 3]
    assert max(times[row] for row in range(6)) == 1  # four of the six, another time other ones
    others = (balanced_rows(label, chosen, torch.Generator().manual_seed(seed)).tolist() for seed in range(9))
    assert len({tuple(sorted(rows)) for rows in others}) > 1


def test_without_clean_images_all_are_drawn() -> None:
    label = torch.tensor([0, 0, 1, 1])
    drawn = balanced_rows(label, torch.zeros(4, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert sorted(drawn.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("images", "expected"), [(100_000, 200), (600, 80), (10, 1), (2, 1), (1, 0)])
def test_fewer_vote_where_classes_are_small(toy: "MakeToy", images: int, expected: int) -> None:
    made = build_method(toy("ssr").config, np.zeros(images, np.int64), classes=3)
    assert isinstance(made, Ssr)
    assert made.neighbours == expected


def test_an_epoch_draws_what_the_neighbours_confirm(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the five images of class 0 lie among those of class 1, which has four; class 2 has one image."""
    made = toy("ssr", **{"ssr.neighbour_share": 1.0})  # three of ten images vote
    method = always(made, [0.0, 0.0, 0.0])
    places = on_circle(0, 10, 25, 100, 130, 88, 108, 119, 136, 250)
    features = torch.nn.functional.pad(places, (0, method.network.width - 2))
    monkeypatch.setattr(method.network, "image_features", lambda images: features)
    prepare(made)
    assert method.label.tolist() == made.labels.tolist()  # nobody is sure of anything
    assert method.clean.tolist() == [True] * 3 + [False] * 2 + [True] * 4 + [False]
    assert method.metrics() == pytest.approx({"clean": 0.7, "relabelled": 0.0})
    rows = method.rows(method.plan()[0])
    assert Counter(made.labels[rows].tolist()) == {0: 5, 1: 5}
    assert set(rows.tolist()) == {0, 1, 2, 5, 6, 7, 8}
    assert count_bags(made.labels, 1, rows) == 10  # numbers that repeat are images that are used again
    assert sorted(draw_bags(made.labels, 1, np.random.default_rng(0), rows).rows[:, 0]) == sorted(rows)
    with torch.no_grad():
        score = method.inspect(made.batches(1)[0]).label_score
    assert score.tolist() == method.share.tolist()
    alone = (2 / 5) / (
        2 / 5 + 1 / 4
    )  # two neighbours of class 0, which has five images, one of class 1, which has four
    assert score[:5].tolist() == pytest.approx([alone] * 3 + [0.0] * 2)
    assert score[5:].tolist() == pytest.approx([(2 / 4) / (1 / 5 + 2 / 4)] * 4 + [0.0])


def test_what_the_network_is_sure_of_is_learnt(toy: "MakeToy") -> None:
    made = toy("ssr")
    method = always(made, [0.0, 0.0, 9.0])
    prepare(made)
    assert method.label.tolist() == [2] * 10
    assert method.metrics() == pytest.approx({"clean": 1.0, "relabelled": 0.9})
    assert sorted(method.rows(method.plan()[0]).tolist()) == list(range(10))
    always(made, [0.0, 0.0, 1.0])
    loss = method.step(made.batches(1)[0], method.plan()[0]).losses["cls"]
    assert float(loss.detach()) == pytest.approx(-math.log(math.e / (2 + math.e)), rel=1e-5)
    prepare(made)
    assert method.label.tolist() == made.labels.tolist()  # relabelling starts from the given labels each time


def test_the_final_scores_are_of_the_final_network(toy: "MakeToy") -> None:
    made = toy("ssr")
    method = always(made, [0.0, 0.0, 9.0])
    first, *_, last = method.plan()
    with torch.no_grad():
        method.leave(first, made.bag_pass)
        assert method.metrics()["relabelled"] == 0.0
        method.leave(last, made.bag_pass)
    assert method.metrics()["relabelled"] == pytest.approx(0.9)
