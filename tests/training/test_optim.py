"""Learning rates worked by hand, and what a phase trains."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.types import Phase
from somnet.training.optim import (
    enter_phase,
    gradient_norm,
    learning_rates,
    make_optimizer,
    momentum_tensors,
    restore_momentum,
    set_classifier_decay,
    set_rates,
)

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


@pytest.mark.parametrize(
    ("anneal", "progress", "factor"),
    [
        ((0.0, 1.0), 0.0, 1.0),
        ((0.0, 1.0), 1 / 3, 0.75),  # (1 + cos 60°) / 2
        ((0.0, 1.0), 0.5, 0.5),
        ((0.0, 1.0), 2 / 3, 0.25),
        ((0.0, 1.0), 1.0, 0.0),
        ((0.5, 1.0), 0.0, 0.5),  # the second of two joint epochs
        ((0.5, 1.0), 1 / 3, 0.25),
        ((0.0, 0.0), 0.7, 1.0),  # no annealing
    ],
)
def test_rates_follow_a_half_cosine(anneal: tuple[float, float], progress: float, factor: float) -> None:
    rates = learning_rates(Phase("x", 3, {"network": 0.2, "keys": 0.6}, anneal), progress)
    assert rates == pytest.approx({"network": 0.2 * factor, "keys": 0.6 * factor}, abs=1e-12)


def test_a_group_that_is_not_named_stands_still(toy: "MakeToy") -> None:
    made = toy("somnet")
    optimizer = make_optimizer(made.method, made.config.train)
    enter_phase(optimizer, Phase("x", 1, {"keys": 0.5}))
    set_rates(optimizer, {"keys": 0.5})
    for group in optimizer.param_groups:
        assert group["lr"] == (0.5 if group["name"] == "keys" else 0.0)
        assert all(p.requires_grad is (group["name"] == "keys") for p in group["params"])


@pytest.mark.parametrize("name", ["plain", "divide-mix"])
def test_a_classifier_shares_the_rate_and_has_a_decay_of_its_own(toy: "MakeToy", name: str) -> None:
    made = toy(name, **{"train.weight_decay": 0.0})
    optimizer, phase = make_optimizer(made.method, made.config.train), made.method.plan()[0]
    enter_phase(optimizer, phase)
    set_rates(optimizer, dict.fromkeys(phase.lr, 0.5))
    set_classifier_decay(optimizer, 0.25)
    sizes = {group["name"]: [p.dim() for p in group["params"]] for group in optimizer.param_groups}
    classifiers = [group for group in optimizer.param_groups if group["name"].endswith(".classifier")]
    assert len(classifiers) == len(phase.lr)
    for group in classifiers:
        assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
        assert sizes[group["name"]] == [2]  # the weight; a bias is left alone
        before = [p.detach().clone() for p in group["params"]]
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, old in zip(group["params"], before, strict=True):
            torch.testing.assert_close(p.detach(), old * (1 - 0.5 * 0.25))


def test_the_memory_is_trained_by_plain_sgd(toy: "MakeToy") -> None:
    made = toy("somnet")
    groups = {group["name"]: group for group in make_optimizer(made.method, made.config.train).param_groups}
    network, classifier = groups.pop("network"), groups.pop("network.classifier")
    assert (network["momentum"], network["weight_decay"]) == (0.9, 1e-4)
    assert (classifier["momentum"], classifier["weight_decay"]) == (0.9, 1e-4)  # until its own is chosen
    assert "keys" in groups
    for group in groups.values():
        assert (group["momentum"], group["weight_decay"]) == (0.0, 0.0)


def test_the_gradients_of_the_memory_count_row_by_row() -> None:
    dense, sparse = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(4, 2))
    rows = torch.nn.functional.embedding(torch.tensor([2, 0, 2]), sparse, sparse=True)
    torch.autograd.backward(rows.sum() + 3 * dense.sum())
    assert float(gradient_norm(torch.optim.SGD([dense, sparse]))) == pytest.approx((9 + 2 + 2 + 2) ** 0.5)


def test_momentum_goes_round(toy: "MakeToy") -> None:
    first, second = (toy("plain") for _ in range(2))
    optimizers = [make_optimizer(made.method, made.config.train) for made in (first, second)]

    def step(made: "Toy", optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(made.method.step(made.batches(1)[0], made.method.plan()[0]).losses["cls"])
        optimizer.step()

    assert momentum_tensors(optimizers[0]) == {}
    step(first, optimizers[0])
    second.method.load_state_dict(first.method.state_dict())
    saved = {name: value.clone() for name, value in momentum_tensors(optimizers[0]).items()}
    assert len(saved) == sum(len(group["params"]) for group in optimizers[0].param_groups)
    restore_momentum(optimizers[1], saved)
    for made, optimizer in zip((first, second), optimizers, strict=True):
        step(made, optimizer)
    assert torch.equal(first.method.network.classifier.weight, second.method.network.classifier.weight)
