"""SOMNet+: bags of one image's regions, early learning, and a memory that learns along."""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.losses import classification_loss
from somnet.core.schedule import INIT_CNN, INIT_MEMORY, JOINT
from somnet.methods.elr import early_learning_term
from somnet.methods.somnet_plus import SomNetPlus

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def plus(made: "Toy") -> SomNetPlus:
    assert isinstance(made.method, SomNetPlus)
    return made.method


@pytest.mark.parametrize(("epochs", "init"), [(1, 0), (2, 1), (4, 1), (12, 3), (20, 5)])
def test_single_views_then_the_memory_then_bags_under_one_cosine(toy: "MakeToy", epochs: int, init: int) -> None:
    plan = plus(toy("somnet+", **{"train.epochs": epochs})).plan()
    assert [phase.name for phase in plan] == [INIT_CNN, INIT_MEMORY, *[JOINT] * (epochs - init)]
    assert plan[0].epochs == init
    trained = [phase for phase in plan if phase.passes]
    assert trained[0].anneal[0] == 0
    assert trained[-1].anneal[1] == 1
    assert all(a.anneal[1] == b.anneal[0] for a, b in pairwise(trained))
    assert {phase.lr["network"] for phase in trained} == {0.01}
    assert {phase.passes for phase in plan[2:]} == {4}  # the image and three proposals


def test_the_bag_is_the_mean_of_the_regions_that_are_there(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[-1]
    batch = made.batch_of(phase)
    assert not batch.mask.all()
    with torch.no_grad():
        x = method.bags(batch, phase.keep)[0]
        rois = method.network.image_features(batch.images).view(*batch.mask[:, 0].shape, -1)  # (I, P, F)
        mask = batch.mask[:, 0, :, None].float()
        expected = (rois * mask).sum(dim=1) / mask.sum(dim=1)
    assert torch.allclose(x, expected, atol=1e-5)


def test_the_memory_can_weigh_the_bag(toy: "MakeToy") -> None:
    even, weighed = (toy("somnet+", **{"somnet_plus.weigh": weigh}) for weigh in (False, True))
    plus(weighed).load_state_dict(plus(even).state_dict())
    phase = plus(even).plan()[-1]
    batch = even.batch_of(phase)
    with torch.no_grad():
        rois = plus(even).network.roi_features(batch.images, batch.boxes[:, 0])
        weight = plus(weighed).weigh(rois, batch)["weight"]
        kept = plus(weighed).kept_weights(weight, batch, 0.5)
        expected = torch.einsum("ip,ipf->if", kept, rois)
        assert torch.allclose(plus(weighed).bags(batch, 0.5)[0], expected, atol=1e-5)
        assert not torch.allclose(plus(even).bags(batch, 0.5)[0], expected, atol=1e-2)


def test_the_losses_by_hand(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"somnet_plus.strength": 2.0, "somnet_plus.beta": 0.5})
    method, phase = plus(made), plus(made).plan()[-1]
    batch = made.batch_of(phase)
    step = method.step(batch, phase)
    with torch.no_grad():
        logits = method.network.classifier(method.bags(batch, phase.keep)[0])
        target = 0.5 * logits.softmax(dim=1)  # from zero
    assert torch.allclose(step.pending["target"], target, atol=1e-3)
    assert float(step.losses["cls"].detach()) == pytest.approx(float(classification_loss(logits, batch.label)))
    early = 2 * float(early_learning_term(logits, target))
    assert float(step.losses["early"].detach()) == pytest.approx(early, abs=1e-3)
    assert {"som_key", "d_value", "r_value"} < set(step.losses)


def test_the_memory_changes_nothing_in_the_network(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[-1]
    losses = method.step(made.batch_of(phase), phase).losses
    torch.autograd.backward(torch.stack([losses[name] for name in ("som_key", "d_value", "r_value")]).sum())
    assert all(p.grad is None for p in method.network.parameters())
    assert method.memory.keys.grad is not None


def test_targets_move_only_with_a_step_that_is_taken(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[-1]
    step = method.step(made.batch_of(phase), phase)
    assert (method.targets.get(torch.arange(10)) == 0).all()
    method.after_step(step.pending)
    assert torch.allclose(method.targets.get(step.pending["rows"]), step.pending["target"], atol=1e-3)


def test_without_regions_it_is_early_learning_on_single_views(toy: "MakeToy") -> None:
    made, elr = toy("somnet+", **{"somnet_plus.regions": False}), toy("elr")
    method, phase = plus(made), plus(made).plan()[-1]
    assert not phase.regions
    assert phase.passes == 1
    batch = made.batch_of(phase)
    elr.method.network.load_state_dict(method.network.state_dict())
    mine, theirs = method.step(batch, phase).losses, elr.method.step(batch, elr.method.plan()[0]).losses
    assert float(mine["cls"].detach()) == pytest.approx(float(theirs["cls"].detach()))
    assert float(mine["early"].detach()) == pytest.approx(float(theirs["early"].detach()))


def test_label_score_is_the_labels_share_of_the_moving_average(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method = plus(made)
    method.targets.put(torch.arange(10), torch.tensor([[0.1, 0.2, 0.1]]).repeat(10, 1))
    with torch.no_grad():
        seen = method.eval().inspect(made.batches(1)[0])
    assert seen.label_score.tolist() == pytest.approx([0.25] * 5 + [0.5] * 4 + [0.25], abs=1e-3)
    assert seen.probabilities[0].tolist() == pytest.approx([0.25, 0.5, 0.25], abs=1e-3)
