"""MLNT: neighbours, synthetic labels and the meta loss by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import cross_entropy

from somnet.methods.entropy import divergence
from somnet.methods.mlnt import Mlnt, nearest, synthetic_labels

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def mlnt(made: "Toy") -> Mlnt:
    assert isinstance(made.method, Mlnt)
    return made.method


def test_nearest_is_by_angle() -> None:
    angles = torch.tensor([0.0, 10.0, 80.0, 89.0]).deg2rad()
    features = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([[1.0], [9.0], [0.1], [2.0]])
    assert nearest(features, 1).flatten().tolist() == [1, 0, 3, 2]
    assert nearest(features, 2).tolist() == [[1, 2], [0, 2], [3, 1], [2, 1]]
    assert nearest(features, 10).shape == (4, 3)  # never the image itself


def test_half_of_the_labels_become_a_neighbours() -> None:
    label = torch.arange(10)
    neighbours = torch.stack([(label + 1) % 10, (label + 2) % 10], dim=1)
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        moved = (synthetic_labels(label, neighbours) - label) % 10
        assert int((moved > 0).sum()) == 5
        seen |= set(moved.tolist())
    assert seen == {0, 1, 2}


def test_the_meta_loss_is_that_of_the_moved_network(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy("mlnt", **{"mlnt.copies": 1, "mlnt.strength": 2.0, "mlnt.inner_lr": 0.5})
    method, batch = mlnt(made), made.batches(1)[0]
    wrong = (batch.label + 1) % 3
    monkeypatch.setattr("somnet.methods.mlnt.synthetic_labels", lambda label, neighbours: wrong)
    with torch.no_grad():
        method.teacher.classifier.bias.add_(torch.tensor([1.0, 0.0, -1.0]))
        teacher = method.teacher(batch.images)
    losses = method.train().step(batch, method.plan()[1]).losses
    parameters = [p for p in method.network.parameters() if p.requires_grad]
    found = torch.autograd.grad(losses["meta"], parameters)

    inner = torch.autograd.grad(cross_entropy(method.predict(batch.images), wrong), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, inner, strict=True):
            parameter.sub_(0.5 * gradient)
    expected = 2.0 * divergence(teacher, method.predict(batch.images))
    assert float(losses["meta"].detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    for one, other in zip(found, torch.autograd.grad(expected, parameters), strict=True):  # first order
        assert torch.allclose(one, other, atol=1e-5)


def test_neighbours_are_those_of_the_checkpoint(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the network that began the meta phase, however the network has moved since."""
    made = toy("mlnt")
    method, batch = mlnt(made), made.batches(1)[0]
    begun = nearest(method.eval().network.image_features(batch.images), 3)
    method.prepare(method.plan()[1], made.bag_pass, torch.Generator())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in method.network.tail.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    now = nearest(method.network.image_features(batch.images), 3)
    used = []

    def asked(label: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        used.append(neighbours[:, :3])
        return label

    monkeypatch.setattr("somnet.methods.mlnt.synthetic_labels", asked)
    method.train().step(batch, method.plan()[1])
    assert torch.equal(used[0], begun)
    assert not torch.equal(used[0], now)


def test_only_the_network_is_ever_in_training_mode(toy: "MakeToy") -> None:
    method = mlnt(toy("mlnt")).train()
    assert method.network.training
    assert not any(module.training for module in (*method.teacher.modules(), *method.checkpoint.modules()))


def test_the_meta_loss_has_the_strength_of_the_paper(toy: "MakeToy") -> None:
    assert mlnt(toy("mlnt")).settings.strength == 1.0


def test_a_single_image_has_no_neighbour(toy: "MakeToy") -> None:
    made = toy("mlnt")
    batch = made.batches(1)[0]
    one = replace(
        batch,
        rows=batch.rows[:1],
        label=batch.label[:1],
        boxes=batch.boxes[:1],
        mask=batch.mask[:1],
        images=batch.images[:1],
    )
    assert set(made.method.step(one, made.method.plan()[1]).losses) == {"cls"}


def test_the_teacher_follows(toy: "MakeToy") -> None:
    method = mlnt(toy("mlnt"))
    with torch.no_grad():
        method.teacher.classifier.bias.fill_(0.0)
        for value in (3.0, 6.0, 3.0):
            method.network.classifier.bias.fill_(value)
            method.after_step({})
    assert method.teacher.classifier.bias.tolist() == pytest.approx([3.0] * 3)  # mean of 0, 3, 6, 3
    method.steps.fill_(1000)
    with torch.no_grad():
        method.network.classifier.bias.fill_(4.0)
    method.after_step({})
    momentum = method.settings.teacher
    assert method.teacher.classifier.bias.tolist() == pytest.approx([3.0 * momentum + 4.0 * (1 - momentum)] * 3)


def test_in_the_end_the_network_is_the_teacher(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("mlnt")
    method, batch = mlnt(made), made.batches(1)[0]
    made.trainer(tmp_path).run()
    with torch.no_grad():
        assert torch.equal(method.eval().predict(batch.images), method.teacher(batch.images))
