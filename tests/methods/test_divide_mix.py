"""DivideMix: the division, the targets and the losses by hand."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.methods.divide_mix import DivideMix, balance, clean_probability, mean_of, sharpen, targets

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def divide_mix(made: "Toy") -> DivideMix:
    assert isinstance(made.method, DivideMix)
    return made.method


def test_low_losses_are_clean() -> None:
    losses = torch.tensor([0.1, 0.2, 0.15, 0.12, 3.0, 2.8, 3.2, 0.18])
    assert clean_probability(losses, seed=0).round().tolist() == [1, 1, 1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("losses", [[0.7], [0.7, 0.7, 0.7]])
def test_losses_that_are_all_the_same_are_clean(losses: list[float]) -> None:
    assert clean_probability(torch.tensor(losses), seed=0).tolist() == [1.0] * len(losses)


def test_two_losses_are_enough() -> None:
    assert clean_probability(torch.tensor([0.1, 4.0]), seed=0).round().tolist() == [1, 0]


def test_sharpening_by_hand() -> None:
    assert sharpen(torch.tensor([[0.6, 0.4]]), 0.5)[0].tolist() == pytest.approx([0.36 / 0.52, 0.16 / 0.52])
    assert sharpen(torch.tensor([[0.6, 0.4]]), 1.0)[0].tolist() == pytest.approx([0.6, 0.4])


def test_targets_by_hand() -> None:
    label, clean = torch.tensor([0, 0]), torch.tensor([0.8, 0.3])
    own, both = torch.tensor([[0.5, 0.5]] * 2), torch.tensor([[0.1, 0.9]] * 2)
    found = targets(label, clean, own, both, threshold=0.5, temperature=1.0)
    assert found[0].tolist() == pytest.approx([0.8 + 0.2 * 0.5, 0.2 * 0.5])  # refined
    assert found[1].tolist() == pytest.approx([0.1, 0.9])  # guessed


def test_mean_of_the_chosen() -> None:
    values = torch.tensor([1.0, 5.0, 9.0])
    assert float(mean_of(values, torch.tensor([True, False, True]))) == 5.0
    assert float(mean_of(values, torch.tensor([False] * 3))) == 0.0


def test_balance_by_hand() -> None:
    even, quarter = torch.tensor([[0.2, 0.8], [0.8, 0.2]]), torch.tensor([[0.25, 0.75]])
    assert float(balance(even)) == pytest.approx(0.0, abs=1e-6)
    assert float(balance(quarter)) == pytest.approx(-0.5 * math.log(0.5) - 0.5 * math.log(1.5))


@pytest.mark.parametrize(("epochs", "spent"), [(1, 1), (2, 2), (5, 4), (12, 12)])
def test_two_networks_take_two_passes(toy: "MakeToy", epochs: int, spent: int) -> None:
    plan = toy("divide-mix", **{"train.epochs": epochs}).method.plan()
    assert sum(phase.epochs * phase.passes for phase in plan) == spent
    assert all(phase.passes == len(phase.lr) for phase in plan)


def test_the_networks_differ_from_the_start(toy: "MakeToy") -> None:
    method = divide_mix(toy("divide-mix"))
    assert not torch.equal(method.network.classifier.weight, method.second.classifier.weight)
    assert all(p.requires_grad for p in method.second.parameters())


def test_images_are_divided_by_their_losses(toy: "MakeToy") -> None:
    made = toy("divide-mix", **{"train.epochs": 8})
    method = divide_mix(made)
    with torch.no_grad():
        for network, preferred in ((method.network, 0), (method.second, 1)):
            network.classifier.weight.zero_()
            network.classifier.bias.copy_(5.0 * torch.eye(3)[preferred])  # finds its class right, the others wrong
        method.eval().prepare(method.plan()[-1], made.bag_pass, torch.Generator().manual_seed(0))
    assert method.clean[:, 0].round().tolist() == [1.0] * 5 + [0.0] * 5
    assert method.clean[:, 1].round().tolist() == [0.0] * 5 + [1.0] * 4 + [0.0]
    assert method.metrics() == {"labelled/network": 4.0, "labelled/second": 5.0}  # by the other one's view
    with torch.no_grad():
        score = method.inspect(made.batches(1)[0]).label_score
    assert score.tolist() == pytest.approx(method.clean.mean(dim=1).tolist())


@pytest.mark.parametrize(("clean", "absent"), [(1.0, "unlabelled"), (0.0, "labelled")])
def test_a_set_may_be_empty(toy: "MakeToy", clean: float, absent: str) -> None:
    made = toy("divide-mix", **{"train.epochs": 8})
    method, batch = divide_mix(made), made.batches(1)[0]
    method.clean.fill_(clean)
    losses = method.step(batch, method.plan()[-1]).losses
    assert set(losses) == {"labelled", "unlabelled", "balance"}
    assert float(losses[absent].detach()) == 0.0
    assert all(math.isfinite(float(loss.detach())) for loss in losses.values())
    assert all(float(loss.detach()) > 0 for name, loss in losses.items() if name != absent)


def test_pixels_are_mixed_as_numbers(toy: "MakeToy") -> None:
    made = toy("divide-mix", **{"train.epochs": 8, "model.freeze": "none"})
    method, batch = divide_mix(made), made.batches(1)[0]
    seen = []
    method.network.tail.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    pixels = torch.randint(0, 256, batch.images.shape, dtype=torch.uint8)
    losses = (
        method.train()
        .step(type(batch)(batch.rows, batch.label, batch.boxes, batch.mask, pixels), method.plan()[-1])
        .losses
    )
    assert all(math.isfinite(float(loss.detach())) for loss in losses.values())
    normal = method.network.normalise(pixels)
    guessed, mixed = seen
    assert torch.allclose(guessed, normal)
    assert not torch.allclose(mixed, normal)
    assert mixed.amin() >= normal.amin() - 1e-4  # a mean of two images does not leave their range
    assert mixed.amax() <= normal.amax() + 1e-4
