"""Joint optimisation: terms and running mean by hand, and which labels each phase trains on."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import cross_entropy

from somnet.core.types import Phase
from somnet.methods.tanaka import Tanaka, prior_term, running_mean

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

LOGITS = torch.tensor([[0.0, 0.0], [0.0, math.log(3)]])  # p = (1/2, 1/2) and (1/4, 3/4)
ROWS = torch.arange(10)


def tanaka(made: "Toy") -> Tanaka:
    assert isinstance(made.method, Tanaka)
    return made.method


def phase_of(method: Tanaka, name: str) -> Phase:
    return next(phase for phase in method.plan() if phase.name == name)


def test_prior_term_by_hand() -> None:
    expected = -(0.8 * math.log(0.375) + 0.2 * math.log(0.625))
    assert float(prior_term(LOGITS, torch.tensor([0.8, 0.2]))) == pytest.approx(expected)


def test_prior_term_is_lowest_at_the_prior() -> None:
    logits = torch.tensor([[math.log(4.0), 0.0]], requires_grad=True)  # p = (0.8, 0.2)
    gradient = torch.autograd.grad(prior_term(logits, torch.tensor([0.8, 0.2])), logits)[0]
    assert gradient[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_prior_term_of_an_excluded_class_is_finite() -> None:
    assert math.isfinite(float(prior_term(torch.tensor([[1000.0, 0.0]]), torch.tensor([0.5, 0.5]))))


def test_running_mean_is_exact_within_the_window_and_fades_beyond() -> None:
    mean, found = torch.zeros(1, 1), []
    for seen, new in enumerate([4.0, 2.0, 6.0, 0.0]):
        mean = running_mean(mean, torch.tensor([seen]), torch.tensor([[new]]), window=3)
        found.append(float(mean))
    assert found == pytest.approx([4.0, 3.0, 4.0, 4.0 - 4.0 / 3])


@pytest.mark.parametrize(("epochs", "expected"), [(1, [0, 0, 1]), (2, [1, 0, 1]), (5, [1, 2, 2]), (20, [4, 8, 8])])
def test_the_phases_share_the_budget(toy: "MakeToy", epochs: int, expected: list[int]) -> None:
    assert [phase.epochs for phase in toy("tanaka", **{"train.epochs": epochs}).method.plan()] == expected


def test_the_prior_is_that_of_the_given_labels(toy: "MakeToy") -> None:
    assert tanaka(toy("tanaka")).prior.tolist() == pytest.approx([0.5, 0.4, 0.1])


def test_each_phase_trains_on_its_labels(toy: "MakeToy") -> None:
    made = toy("tanaka", **{"train.epochs": 10})
    method, batch = tanaka(made), made.batches(1)[0]
    method.eval()
    soft = torch.tensor([0.2, 0.7, 0.1]).expand(10, 3)
    method.soft.put(ROWS, soft)
    method.seen[:9] = 3  # the last image was never visited: its given label stands
    with torch.no_grad():
        logits = method.predict(batch.images)
        given = cross_entropy(logits, batch.label, reduction="none")
        softened = cross_entropy(logits, soft, reduction="none")
        losses = {phase.name: method.step(batch, phase).losses for phase in method.plan()}
    mixed = torch.cat([softened[:9], given[9:]]).mean()
    assert float(losses["given"]["cls"]) == pytest.approx(float(given.mean()))
    assert float(losses["soft"]["cls"]) == pytest.approx(float(mixed))
    assert float(losses["fresh"]["cls"]) == pytest.approx(float(mixed))
    assert set(losses["given"]) == set(losses["soft"]) == {"cls", "prior", "entropy"}
    assert set(losses["fresh"]) == {"cls"}


@pytest.mark.parametrize(("epochs", "expected"), [(1, 1), (12, 1), (40, 1), (50, 2), (333, 10)])
def test_the_window_is_a_twentieth_of_the_first_step(toy: "MakeToy", epochs: int, expected: int) -> None:
    """The first step has 60 % of the epochs; the paper's has 200, and a window of 10."""
    assert tanaka(toy("tanaka", **{"train.epochs": epochs})).window() == expected


@pytest.mark.parametrize(("share", "averaged"), [(0.05, [2]), (0.3, [1, 2])])
def test_labels_are_first_updated_from_the_last_epochs_before(
    toy: "MakeToy", share: float, averaged: list[int]
) -> None:
    """Given labels for 3 epochs, and a window of 1 or 2: the prediction of the first epoch has no weight."""
    made = toy("tanaka", **{"train.epochs": 12, "tanaka.window": share, "tanaka.start": 0.43})
    method, batch = tanaka(made), made.batches(1)[0]
    method.eval()
    assert [phase.epochs for phase in method.plan()] == [3, 4, 5]
    predictions = []
    for _ in range(3):
        with torch.no_grad():
            method.network.classifier.bias.add_(torch.tensor([1.0, 0.0, 0.0]))
            predictions.append(method.predict(batch.images).softmax(dim=1))
        method.after_step(method.step(batch, phase_of(method, "given")).pending)
    expected = torch.stack([predictions[epoch] for epoch in averaged]).mean(dim=0)
    with torch.no_grad():
        loss = method.step(batch, phase_of(method, "soft")).losses["cls"]
        assert float(loss) == pytest.approx(float(cross_entropy(method.predict(batch.images), expected)))


def test_soft_labels_are_the_mean_of_the_predictions(toy: "MakeToy") -> None:
    made = toy("tanaka", **{"train.epochs": 10, "tanaka.window": 1.0})
    method, batch = tanaka(made), made.batches(1)[0]
    method.eval()
    predictions = []
    for name in ("given", "soft"):
        with torch.no_grad():
            method.network.classifier.bias.add_(torch.tensor([1.0, 0.0, 0.0]))
            predictions.append(method.predict(batch.images).softmax(dim=1))
        method.after_step(method.step(batch, phase_of(method, name)).pending)
    assert torch.allclose(method.soft.get(ROWS), torch.stack(predictions).mean(dim=0), atol=1e-6)
    assert method.seen.tolist() == [2] * 10
    method.after_step(method.step(batch, phase_of(method, "fresh")).pending)
    assert method.seen.tolist() == [2] * 10  # final


def test_the_second_step_starts_with_the_first_weights(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("tanaka")
    method = tanaka(made)
    before = {name: tensor.clone() for name, tensor in method.network.state_dict().items()}
    made.trainer(tmp_path).run()
    assert not torch.equal(method.network.classifier.weight, before["classifier.weight"])
    method.prepare(phase_of(method, "fresh"), made.bag_pass, torch.Generator())
    assert all(torch.equal(before[name], tensor) for name, tensor in method.network.state_dict().items())


def test_the_score_is_what_is_left_of_the_given_label(toy: "MakeToy") -> None:
    made = toy("tanaka")
    method, batch = tanaka(made), made.batches(1)[0]
    method.soft.put(ROWS, torch.tensor([0.2, 0.7, 0.1]).expand(10, 3))
    method.seen[:5] = 1
    with torch.no_grad():
        seen = method.eval().inspect(batch)
    assert seen.label_score[:5].tolist() == pytest.approx([0.2] * 5)
    assert torch.equal(seen.label_score[5:], seen.probabilities[5:].gather(1, batch.label[5:, None]).squeeze(1))
