"""The noise layer: its loss, its simplex, and the decay that must move it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from somnet.core.losses import classification_loss
from somnet.methods.sukhbaatar import LARGEST, Sukhbaatar, nearest_on_simplex, noisy_cross_entropy
from somnet.training.optim import enter_phase, make_optimizer, set_rates

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

P = torch.tensor([[0.5, 0.3, 0.2]])
Q = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.4, 0.6]])  # one row per true class


def layer_of(made: "Toy") -> torch.nn.Parameter:
    assert isinstance(made.method, Sukhbaatar)
    return made.method.layer


def test_the_given_label_is_seen_through_the_layer() -> None:
    # .5 x .1 + .3 x .7 + .2 x .4 = .34; rows instead of columns would give .33
    assert float(noisy_cross_entropy(P.log(), Q.T[torch.tensor([1])])) == pytest.approx(-math.log(0.34))


def test_the_identity_changes_nothing() -> None:
    logits, label = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 2, 1, 0])
    loss = noisy_cross_entropy(logits, torch.eye(3)[label])
    assert float(loss) == pytest.approx(float(classification_loss(logits, label)), rel=1e-5)


def test_a_label_that_cannot_be_has_a_finite_loss() -> None:
    assert math.isfinite(float(noisy_cross_entropy(torch.tensor([[500.0, 0.0]]), torch.tensor([[0.0, 1.0]]))))


@pytest.mark.parametrize(
    ("row", "nearest"),
    [
        ([0.7, 0.0, 0.0], [0.8, 0.1, 0.1]),  # what is missing is handed out evenly
        ([1.2, 0.2, -1.0], [1.0, 0.0, 0.0]),
        ([0.5, 0.7, -0.1], [0.4, 0.6, 0.0]),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
    ],
)
def test_the_nearest_point_of_the_simplex_by_hand(row: list[float], nearest: list[float]) -> None:
    assert nearest_on_simplex(torch.tensor([row]))[0].tolist() == pytest.approx(nearest, abs=1e-6)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.integers(0, 1000))
def test_no_distribution_is_nearer(row: list[float], seed: int) -> None:
    point = torch.tensor(row, dtype=torch.float64)
    nearest = nearest_on_simplex(point)
    assert float(nearest.sum()) == pytest.approx(1)
    assert (nearest >= 0).all()
    others = torch.rand(50, len(row), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    others = torch.cat([others / others.sum(dim=1, keepdim=True), torch.eye(len(row), dtype=torch.float64)])
    assert (point - nearest).norm() <= (point - others).norm(dim=1).min() + 1e-9


def test_the_decay_lowers_the_trace(toy: "MakeToy") -> None:
    """Without any gradient a row e_i becomes (1 - c) e_i + c / C, c = rate x decay / C."""
    made = toy("sukhbaatar", **{"sukhbaatar.decay": 0.6})
    layer, optimizer = layer_of(made), make_optimizer(made.method, made.config.train)
    enter_phase(optimizer, made.method.plan()[1])
    set_rates(optimizer, {"noise-layer": 0.5})
    layer.grad = torch.zeros(3, 3)
    optimizer.step()
    made.method.after_step({})
    c = 0.5 * 0.6 / 3
    assert torch.allclose(layer, (1 - c) * torch.eye(3) + c / 3)
    assert made.method.metrics() == {"noise-layer/diagonal": pytest.approx(1 - c * 2 / 3)}


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_training_leaves_the_identity_by_the_decay_alone(toy: "MakeToy", tmp_path: Path, decay: float) -> None:
    made = toy("sukhbaatar", **{"sukhbaatar.start": 0.75, "train.epochs": 12, "sukhbaatar.decay": decay})
    history = made.trainer(tmp_path).run().history
    diagonal = [row["noise-layer/diagonal"] for row in history]
    assert [row["phase"] for row in history] == ["plain"] * 9 + ["noise-layer"] * 3
    assert diagonal[:9] == [1.0] * 9
    assert (diagonal[-1] < 0.999) is (decay > 0)
    layer = layer_of(made)
    assert (layer >= 0).all()
    assert torch.allclose(layer.sum(dim=1), torch.ones(3))


def test_before_the_layer_sets_in_training_is_plain(toy: "MakeToy", tmp_path: Path) -> None:
    made, plain = toy("sukhbaatar", **{"sukhbaatar.start": 1.0}), toy("plain")
    made.trainer(tmp_path / "layer").run()
    plain.trainer(tmp_path / "plain").run()
    assert torch.equal(layer_of(made), torch.eye(3))
    state = made.method.network.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in plain.method.network.state_dict().items())


def test_one_image_cannot_fill_a_row(toy: "MakeToy") -> None:
    """The classifier is sure of class 0, the label says 1: the gradient on Q_01 is -1 / p_1, e^50 here."""
    made = toy("sukhbaatar")
    with torch.no_grad():
        made.method.network.classifier.weight.zero_()
        made.method.network.classifier.bias.copy_(torch.tensor([50.0, 0.0, 0.0]))
    batch = made.batches(1)[0]
    count = len(made.labels)  # of which 4 have label 1 and 1 has label 2
    torch.autograd.backward(made.method.step(batch, made.method.plan()[1]).losses["cls"])
    gradient = layer_of(made).grad
    assert gradient is not None
    assert gradient[0].tolist() == pytest.approx([-5 / count, -4 * LARGEST / count, -LARGEST / count])


def test_the_two_phases_share_a_cosine(toy: "MakeToy") -> None:
    first, second = toy("sukhbaatar", **{"train.epochs": 10, "sukhbaatar.start": 0.3}).method.plan()
    assert (first.epochs, second.epochs) == (3, 7)
    assert (first.anneal, second.anneal) == ((0.0, 0.3), (0.3, 1.0))
    assert set(first.lr) == {"network"}
    assert second.lr == {"network": 0.01, "noise-layer": pytest.approx(0.03)}
