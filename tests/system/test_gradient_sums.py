"""Gradients of all ranks: their mean by shares, sent while the backward pass goes on."""

import pytest
import torch
from torch import Tensor, nn

from somnet.system.gradient_sums import PIECES, GradientSums
from somnet.system.ranks import ALONE, Ranks


class Sent:
    """Another rank with the same gradients; what it was sent, and when."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.waited: list[int] = []

    def all_reduce(self, flat: Tensor, async_op: bool) -> "Sent":
        assert async_op
        self.sizes.append(flat.numel())
        flat.mul_(2)
        return self

    def wait(self) -> None:
        self.waited.append(len(self.sizes))


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Sent:
    other = Sent()
    monkeypatch.setattr(torch.distributed, "all_reduce", other.all_reduce)
    return other


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))


X = torch.ones(3, 4)


def test_the_mean_by_shares_takes_the_place_of_the_gradient(other: Sent) -> None:
    model = network()
    model(X).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    sums, beside = GradientSums(Ranks(0, 2), model.parameters()), torch.tensor([3.0])
    sums.begin(0.25, [beside])
    model(X).sum().backward()
    sums.finish()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient * 0.5)
    assert beside.tolist() == [1.5]
    assert sum(other.sizes) == 20 + 20 + 10 + 1
    assert len(other.sizes) == PIECES


def test_the_last_layers_are_on_their_way_before_the_first_are_done(other: Sent) -> None:
    model = network()
    seen: list[int] = []
    next(model.parameters()).register_hook(lambda _: seen.append(len(other.sizes)))  # type: ignore[no-untyped-call]
    sums = GradientSums(Ranks(0, 2), model.parameters())
    sums.begin(0.5)
    model(X).sum().backward()
    assert seen == [1]  # one piece had gone
    assert other.waited == []
    sums.finish()
    assert other.waited == [2, 2]


def test_a_part_that_is_not_trained_and_a_sparse_gradient_hold_up_nothing(other: Sent) -> None:
    model, table = network(), nn.Embedding(5, 4, sparse=True)
    model[2].requires_grad_(False)
    sums = GradientSums(Ranks(0, 2), [*model.parameters(), *table.parameters()])
    sums.begin(0.5)
    (model(X).sum() + model(table(torch.tensor([1, 1]))).sum()).backward()
    sums.finish()
    assert sum(other.sizes) == 40
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    model(X).sum().backward()  # a pass that is no step
    assert sum(other.sizes) == 40


def test_one_rank_sends_nothing(other: Sent) -> None:
    model = network()
    sums = GradientSums(ALONE, model.parameters())
    sums.begin(1.0)
    model(X).sum().backward()
    sums.finish()
    assert other.sizes == []
