"""Outliers by reconstruction error: the split, the loss, and what becomes of the images."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor

from somnet.methods import drae
from somnet.methods.drae import (
    Drae,
    discriminative_loss,
    inliers,
    reconstruction_errors,
    separation,
    to_unit_range,
)

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def test_the_separation_by_hand() -> None:
    # SS of (1, 2, 9, 10) is 65; of its parts: 0 + 38, .5 + .5, 38 + 0
    assert separation(torch.tensor([1.0, 2.0, 9.0, 10.0])).tolist() == pytest.approx([38 / 65, 1 / 65, 38 / 65])


def test_the_separation_is_its_definition() -> None:
    error = (1000 + torch.rand(30, generator=torch.Generator().manual_seed(0))).sort().values

    def squares(part: Tensor) -> float:
        return float(((part.double() - part.double().mean()) ** 2).sum())

    expected = [(squares(error[:k]) + squares(error[k:])) / squares(error) for k in range(1, 30)]
    assert separation(error).tolist() == pytest.approx(expected)


def test_errors_that_are_all_the_same_are_no_division_by_zero() -> None:
    error = torch.full((5,), 2.0, requires_grad=True)
    loss = discriminative_loss(error, 0.1)
    assert float(loss.detach()) == pytest.approx(2.0)
    assert torch.isfinite(torch.autograd.grad(loss, error)[0]).all()


def test_the_loss_by_hand() -> None:
    error = torch.tensor([9.0, 1.0, 10.0, 2.0], requires_grad=True)
    loss = discriminative_loss(error, 0.1)
    assert float(loss.detach()) == pytest.approx(1.5 + 0.1 / 65)
    # outliers are not to be reconstructed: only the separation reaches them
    only_inliers = torch.autograd.grad(discriminative_loss(error, 0.0), error)[0]
    assert only_inliers.tolist() == pytest.approx([0, 0.5, 0, 0.5])
    # the separation draws each side together and away from the other: (SS of the side)' x 65 - SS' x 1, over 65^2
    separated = torch.autograd.grad(discriminative_loss(error, 1.0), error)[0] - only_inliers
    assert separated.tolist() == pytest.approx([-72 / 65**2, -56 / 65**2, 56 / 65**2, 72 / 65**2], rel=1e-4)
    assert float(discriminative_loss(torch.tensor([3.0]), 0.1)) == 3


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ([9.0, 1.0, 10.0, 2.0], [False, True, False, True]),
        ([10.0, 0.0, 10.1, 10.2], [True, True, False, False]),  # the best split would leave one image alone
        ([3.0, 3.0, 3.0], [True, True, True]),
        ([1.0, 100.0], [True, True]),
        ([1.0], [True]),
    ],
)
def test_inliers_by_hand(error: list[float], kept: list[bool]) -> None:
    assert inliers(torch.tensor(error)).tolist() == kept


def test_columns_are_scaled_one_by_one() -> None:
    features = torch.tensor([[1.0, 5.0, -2.0], [3.0, 5.0, 0.0], [2.0, 5.0, -1.5]])
    assert to_unit_range(features).tolist() == [[0, 0, 0], [1, 0, 1], [0.5, 0, 0.25]]


def class_with_strangers() -> Tensor:
    """60 images that differ in two ways only, and 20 that have nothing in common."""
    generator = torch.Generator().manual_seed(1)
    common = torch.rand(60, 2, generator=generator) @ torch.rand(2, 30, generator=generator)
    return torch.cat([common, 2 * torch.rand(20, 30, generator=generator)])


def errors_after(epochs: int, seed: int = 0) -> Tensor:
    return reconstruction_errors(class_with_strangers(), epochs, 0.1, torch.Generator().manual_seed(seed))


def test_the_autoencoder_learns_to_rebuild_what_is_common() -> None:
    first, later = errors_after(1), errors_after(150)
    assert later[:60].mean() < 0.5 * first[:60].mean()
    assert later[60:].mean() > first[60:].mean()  # strangers are not learnt but set apart
    kept = inliers(later)
    assert kept[:60].float().mean() > 0.8
    assert not kept[60:].any()


def test_the_errors_follow_from_the_generator() -> None:
    assert torch.equal(errors_after(2), errors_after(2))
    assert not torch.equal(errors_after(2), errors_after(2, seed=1))


def drop(patch: pytest.MonkeyPatch) -> None:
    """Of each class that has more than two images, take the first two for inliers."""

    def errors(features: Tensor, epochs: int, balance: float, generator: torch.Generator) -> Tensor:
        return (torch.arange(len(features)) >= 2).float()

    patch.setattr(drae, "reconstruction_errors", errors)


def test_the_last_phase_trains_on_the_rest(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(monkeypatch)
    made = toy("drae", **{"train.batch_size": 2})
    features, train = made.method.plan()
    assert (features.epochs, train.epochs) == (1, 3)
    seen: dict[str, set[int]] = {"features": set(), "train": set()}
    step = made.method.step

    def watched(batch, phase):  # type: ignore[no-untyped-def]
        seen[phase.name] |= set(batch.rows.flatten().tolist())
        return step(batch, phase)

    monkeypatch.setattr(made.method, "step", watched)
    made.trainer(tmp_path).run()
    assert seen["features"] == set(range(10))
    assert seen["train"] == {0, 1, 5, 6, 9}  # a class of one image keeps it


def test_the_last_phase_is_plain_training_of_a_fresh_network(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(monkeypatch)
    made = toy("drae")
    start = {name: value.clone() for name, value in made.method.network.state_dict().items()}
    trainer = made.trainer(tmp_path)
    enter, entered = trainer._enter, []

    def watched(*arguments: object) -> None:
        enter(*arguments)  # type: ignore[arg-type]
        entered.append({name: value.clone() for name, value in made.method.network.state_dict().items()})
        assert not trainer.stepper.optimizer.state

    monkeypatch.setattr(trainer, "_enter", watched)
    trainer.run()
    assert len(entered) == 2
    assert all(torch.equal(value, entered[1][name]) for name, value in start.items())


def test_every_class_is_judged_by_itself(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("drae")
    judged: list[int] = []

    def errors(features: Tensor, epochs: int, balance: float, generator: torch.Generator) -> Tensor:
        judged.append(len(features))
        assert features.dtype == torch.float32
        return torch.arange(len(features)).float() ** 4

    monkeypatch.setattr(drae, "reconstruction_errors", errors)
    method = made.method.eval()
    assert isinstance(method, Drae)
    with torch.no_grad():
        method.leave(method.plan()[0], made.bag_pass)
    assert judged == [5, 4, 1]
    # of 0 1 16 81 256 the last is apart, of 0 1 16 81 the last, and one image is kept
    assert method.kept.tolist() == [True] * 4 + [False] + [True] * 3 + [False] + [True]
    rows = method.rows(method.plan()[1])
    assert rows is not None
    assert np.array_equal(rows, [0, 1, 2, 3, 5, 6, 7, 9])
    assert method.rows(method.plan()[0]) is None
    kept = method.kept.clone()
    method.leave(method.plan()[1], made.bag_pass)  # the end of the last phase judges nothing
    assert torch.equal(method.kept, kept)
    assert len(judged) == 3
