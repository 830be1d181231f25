"""SOMNet+: bags of regions with an early-learning term, and a memory that learns along."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from somnet.core.schedule import INIT_CNN, JOINT
from somnet.core.types import BagBatch
from somnet.methods.somnet_plus import SomNetPlus

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def plus(made: "Toy") -> SomNetPlus:
    assert isinstance(made.method, SomNetPlus)
    return made.method


def one_bag(rows: list[int], mask: list[list[bool]], label: int) -> BagBatch:
    """A bag of G images with P boxes each."""
    there = torch.tensor([mask])
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(*there.shape, 4)
    return BagBatch(torch.tensor([rows]), torch.tensor([label]), boxes, there, torch.zeros(0))


def classify(method: SomNetPlus, logits: dict[int, list[float]]) -> None:
    """Make the classifier answer with given logits for the features e_0, e_1, ..."""
    with torch.no_grad():
        method.network.classifier.weight.zero_()
        method.network.classifier.bias.zero_()
        for axis, row in logits.items():
            method.network.classifier.weight[:, axis] = torch.tensor(row)


def axes(method: SomNetPlus, *which: int) -> Tensor:
    """Features (1, N, F), each along an axis."""
    return torch.eye(method.network.width)[list(which)][None]


def test_the_term_by_hand(toy: "MakeToy") -> None:
    """Two images of three ROIs. Of the first two ROIs are kept, with weights .5 and .3, of the second one with .2."""
    method = plus(toy("somnet+", **{"somnet_plus.strength": 2.0, "somnet_plus.beta": 0.5}))
    classify(method, {0: [math.log(2), 0, 0], 1: [0, 0, math.log(8)]})  # p (.5, .25, .25) and (.1, .1, .8)
    batch = one_bag([1, 2], [[True] * 3, [True] * 3], label=0)
    kept = torch.tensor([[0.5, 0.3, 0.0, 0.0, 0.0, 0.2]])
    rois = axes(method, 0, 1, 0, 0, 0, 1)
    method.targets.put(torch.tensor([2]), torch.tensor([[0.6, 0.2, 0.2]]))
    step = method.joint_step(batch, rois, kept, kept)
    first = (5 * torch.tensor([0.5, 0.25, 0.25]) + 3 * torch.tensor([0.1, 0.1, 0.8])) / 8
    second = torch.tensor([0.1, 0.1, 0.8])
    targets = torch.stack([0.5 * first, 0.5 * torch.tensor([0.6, 0.2, 0.2]) + 0.5 * second])
    assert torch.allclose(step.pending["target"], targets, atol=1e-3)
    assert step.pending["rows"].tolist() == [1, 2]
    expected = 2 * (0.8 * math.log(1 - float(targets[0] @ first)) + 0.2 * math.log(1 - float(targets[1] @ second)))
    assert float(step.losses["early"].detach()) == pytest.approx(expected, abs=2e-3)


def test_an_image_of_which_nothing_is_kept_keeps_its_target(toy: "MakeToy") -> None:
    method = plus(toy("somnet+"))
    batch = one_bag([1, 2], [[True] * 2, [True] * 2], label=0)
    step = method.joint_step(batch, axes(method, 0, 1, 0, 1), torch.tensor([[0.0, 0.0, 0.4, 0.6]]), torch.ones(1, 4))
    assert step.pending["rows"].tolist() == [2]
    assert torch.isfinite(step.losses["early"])


def test_single_views_have_the_term_while_the_network_is_initialised(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"somnet_plus.strength": 2.0})
    method, phase = plus(made), plus(made).plan()[0]
    assert phase.name == INIT_CNN
    batch = made.batch_of(phase)
    step = method.step(batch, phase)
    present = batch.mask[..., 0]
    with torch.no_grad():
        p = method.predict(batch.images).softmax(dim=1).view(*present.shape, -1)  # (B, G, C)
    assert torch.allclose(step.pending["target"], (0.3 * p)[present], atol=1e-3)
    each = (1 - (0.3 * p * p).sum(dim=2)).log() * present / present.sum(dim=1, keepdim=True)  # (B, G)
    assert float(step.losses["early"].detach()) == pytest.approx(2 * float(each.sum() / len(each)), abs=1e-3)


@pytest.mark.parametrize("number", [0, -1])
def test_at_strength_0_it_is_somnet(toy: "MakeToy", number: int) -> None:
    made, paper = toy("somnet+", **{"somnet_plus.strength": 0.0, "somnet_plus.weigh": True}), toy("somnet")
    own = {name: tensor for name, tensor in made.method.state_dict().items() if not name.startswith("targets")}
    paper.method.load_state_dict(own)
    assert made.method.plan() == paper.method.plan()
    phase = made.method.plan()[number]
    batch = made.batch_of(phase)
    mine, theirs = made.method.step(batch, phase).losses, paper.method.step(batch, phase).losses
    assert mine.keys() == theirs.keys()
    assert all(float(mine[name].detach()) == pytest.approx(float(theirs[name].detach())) for name in theirs)


def test_the_term_reaches_the_network_and_not_the_memory(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[-1]
    assert phase.name == JOINT
    torch.autograd.backward(method.step(made.batch_of(phase), phase).losses["early"])
    assert method.memory.keys.grad is None
    assert method.network.classifier.weight.grad is not None


def test_joint_epochs_see_pairs_first_and_then_single_images(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"train.epochs": 12, "somnet.init_share": 0.25, "somnet_plus.views": 3})
    joint = [phase for phase in plus(made).plan() if phase.name == JOINT]
    assert [phase.images_per_bag for phase in joint] == [2] * 3 + [1] * 6
    assert {(phase.views, phase.passes, phase.regions) for phase in joint} == {(3, 3, False)}
    weighed = [phase for phase in plus(toy("somnet+", **{"somnet_plus.weigh": True})).plan() if phase.name == JOINT]
    assert all(phase.regions for phase in weighed)


def test_a_bag_is_the_mean_of_the_drawn_views_of_its_images(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"somnet_plus.strength": 2.0, "somnet_plus.paired": 1.0})
    method, network = plus(made), made.method.network
    phase = next(phase for phase in method.plan() if phase.name == JOINT)
    batch = made.batch_of(phase)
    assert len(batch.images) == batch.rows.numel() * phase.views
    step = method.step(batch, phase)
    present = batch.mask[..., 0]  # (B, G)
    with torch.no_grad():
        features = network.image_features(batch.images).view(*present.shape, phase.views, -1)  # (B, G, V, F)
        p = network.classifier(features).softmax(dim=-1).mean(dim=2)  # (B, G, C)
    x = torch.stack([own[there].mean(dim=(0, 1)) for own, there in zip(features, present, strict=True)])  # (B, F)
    early = (1 - 0.3 * (p * p).sum(dim=2)).log()  # (B, G), as the moving average starts at 0
    early = torch.stack([own[there].mean() for own, there in zip(early, present, strict=True)]).mean()
    assert torch.allclose(step.losses["cls"], cross_entropy(network.classifier(x), batch.label), atol=1e-5)
    assert torch.allclose(step.losses["early"], 2.0 * early, atol=1e-4)
    memory = method.memory_step(x, batch.label)
    assert torch.equal(step.pending["slot"], memory.pending["slot"])


def test_targets_move_only_with_a_step_that_is_taken(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[-1]
    step = method.step(made.batch_of(phase), phase)
    assert (method.targets.get(torch.arange(10)) == 0).all()
    method.after_step(step.pending)
    assert torch.allclose(method.targets.get(step.pending["rows"]), step.pending["target"], atol=1e-3)


def test_label_score_is_the_mean_of_the_best_region_and_the_moving_average(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method = plus(made)
    method.targets.put(torch.arange(10), torch.tensor([[0.1, 0.2, 0.1]]).repeat(10, 1))
    batch = made.batches(1)[0]
    with torch.no_grad():
        seen = method.eval().inspect(batch)
        somnet = super(SomNetPlus, method).inspect(batch)
    average = torch.tensor([0.25] * 5 + [0.5] * 4 + [0.25])
    assert torch.allclose(seen.label_score, (somnet.label_score + average) / 2, atol=1e-3)
    assert seen.probabilities[0].tolist() == pytest.approx([0.25, 0.5, 0.25], abs=1e-3)
