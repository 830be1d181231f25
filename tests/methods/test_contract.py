"""What the loop relies on, for every method of the registry."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from somnet.core.types import BagBatch, Phase
from somnet.errors import ConfigError
from somnet.methods.base import Method, find_method
from somnet.methods.registry import METHODS
from somnet.runs.run import build_method
from somnet.training.optim import enter_phase, make_optimizer, rate_name

if TYPE_CHECKING:
    from tests.conftest import Tiny, Toy

    MakeToy = Callable[..., Toy]

KMEANS = {"somnet.memory.kmeans": True, "somnet.memory.side": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in METHODS}
CASES["somnet with K-means"] = ("somnet", KMEANS)
CASES["somnet with Eq. 11"] = ("somnet", {"somnet.memory.detach": False})
CASES["divide-mix"] = ("divide-mix", {"train.epochs": 6})  # enough to mix


@pytest.fixture(params=CASES)
def toy_of_each(request: pytest.FixtureRequest, toy: "MakeToy") -> "Toy":
    method, more = CASES[request.param]
    torch.manual_seed(0)  # whatever was drawn before
    return toy(method, **more)


def phases(toy: "Toy") -> list[tuple[Phase, BagBatch]]:
    """Each phase with a bag for it, the method prepared as the loop does it."""
    return [(phase, toy.batch_of(phase)) for phase in toy.method.plan() if phase.epochs]


def prepare(toy: "Toy", phase: Phase, optimizer: torch.optim.Optimizer | None = None) -> None:
    if optimizer is not None:
        enter_phase(optimizer, phase)
    toy.method.eval()
    with torch.no_grad():
        toy.method.prepare(phase, toy.bag_pass, torch.Generator().manual_seed(0))
    toy.method.train()


def losses_of(method: Method, batch: BagBatch, phase: Phase) -> dict[str, float]:
    """A step from the same state and the same random numbers each time, as the loop has it."""
    state = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    torch.manual_seed(0)
    losses = {name: float(loss.detach()) for name, loss in method.step(batch, phase).losses.items()}
    method.load_state_dict(state)
    return losses


def padded(batch: BagBatch, count: int = 3) -> BagBatch:
    """The same bags with boxes that are not there, at places that a real box could have."""
    places = torch.tensor([0.1, 0.2, 0.7, 0.9]).expand(*batch.boxes.shape[:2], count, 4)
    absent = torch.zeros(*batch.mask.shape[:2], count, dtype=torch.bool)
    images = batch.images
    if len(images) == batch.mask.numel():  # one per box
        of_images = images.view(-1, batch.mask.shape[2], *images.shape[1:])  # (I, P, ...)
        images = torch.cat([of_images, torch.ones_like(of_images[:, :1]).expand(-1, count, -1, -1, -1)], dim=1).flatten(
            0, 1
        )
    boxes, mask = torch.cat([batch.boxes, places], dim=2), torch.cat([batch.mask, absent], dim=2)
    return replace(batch, boxes=boxes, mask=mask, images=images)


@pytest.mark.parametrize("epochs", [1, 2, 5, 12])
@pytest.mark.parametrize("case", CASES)
def test_the_plan_spends_the_budget(case: str, epochs: int, tiny: "Tiny", toy: "MakeToy") -> None:
    method, more = CASES[case]
    plan = toy(method, **{**more, "train.epochs": epochs}).method.plan()
    assert isinstance(plan, tuple)
    assert all(isinstance(phase, Phase) for phase in plan)
    assert sum(phase.epochs for phase in plan if phase.passes) in (
        0,
        epochs,
    )  # all use images equally often, or never


def test_phases_name_groups_that_exist(toy_of_each: "Toy") -> None:
    groups = {group["name"] for group in toy_of_each.method.param_groups()}
    for phase, _ in phases(toy_of_each):
        assert phase.lr
        assert set(phase.lr) <= groups


def test_groups_hold_each_trained_parameter_once(toy_of_each: "Toy") -> None:
    found = [p for group in toy_of_each.method.param_groups() for p in group["params"]]
    assert len({id(p) for p in found}) == len(found)
    trained = {id(p) for p in toy_of_each.method.parameters() if p.requires_grad}
    assert {id(p) for p in found} == trained


def test_a_step_trains_what_the_phase_names_and_nothing_else(toy_of_each: "Toy") -> None:
    toy = toy_of_each
    optimizer = make_optimizer(toy.method, toy.config.train)
    for phase, batch in phases(toy):
        prepare(toy, phase, optimizer)
        losses = toy.method.step(batch, phase).losses
        assert losses
        for loss in losses.values():
            assert loss.shape == ()
            assert math.isfinite(float(loss.detach()))
        toy.method.zero_grad(set_to_none=True)
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        for group in optimizer.param_groups:
            touched = [p for p in group["params"] if p.grad is not None]
            if rate_name(group["name"]) in phase.lr:
                assert touched, f"{phase.name} leaves {group['name']} alone"
                gradients = [p.grad.to_dense() for p in touched if p.grad is not None]
                assert all(torch.isfinite(g).all() for g in gradients)
                assert any(g.abs().sum() > 0 for g in gradients)
            else:
                assert touched == [], f"{phase.name} reaches {group['name']}"
        assert all(p.grad is None for p in toy.method.network.trunk.parameters())


def gradients_of(toy: "Toy", batch: BagBatch, phase: Phase, share: float) -> list[torch.Tensor]:
    """Of a part of a batch, as it counts in the whole."""
    torch.manual_seed(0)
    losses = toy.method.step(batch, phase).losses
    total = sum(loss / share if name in toy.method.summed else loss for name, loss in losses.items())
    assert isinstance(total, torch.Tensor)
    parameters = [p for p in toy.method.parameters() if p.requires_grad]
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else share * g.to_dense() for p, g in zip(parameters, found, strict=True)]


def test_a_divisible_method_learns_the_same_from_the_parts_of_a_batch(toy_of_each: "Toy") -> None:
    toy = toy_of_each
    optimizer = make_optimizer(toy.method, toy.config.train)
    equal = []
    for phase, batch in phases(toy):
        prepare(toy, phase, optimizer)
        cut = len(batch.label) // 3
        parts = [part_of(batch, slice(cut)), part_of(batch, slice(cut, None))]
        shares = [toy.method.count(part) / toy.method.count(batch) for part in parts]
        whole = gradients_of(toy, batch, phase, 1.0)
        first, second = (gradients_of(toy, part, phase, share) for part, share in zip(parts, shares, strict=True))
        equal += [torch.allclose(a + b, c, atol=1e-5) for a, b, c in zip(first, second, whole, strict=True)]
    assert all(equal) or not toy.method.divisible  # what images of a batch tell each other may be next to nothing


def part_of(batch: BagBatch, some: slice) -> BagBatch:
    images = batch.images
    if len(images):
        images = images.view(*batch.rows.shape, -1, *images.shape[1:])[some].flatten(0, 2)
    own = BagBatch(batch.rows[some], batch.label[some], batch.boxes[some], batch.mask[some], images)
    return replace(own, whole=len(batch.label))


def test_a_weight_multiplies_the_losses_that_a_method_names(toy_of_each: "Toy") -> None:
    method, seen = toy_of_each.method, set()
    for phase, batch in phases(toy_of_each):
        prepare(toy_of_each, phase)
        first = torch.zeros(batch.rows.shape)
        first[0] = 1.0  # only the first bag counts
        usual, alone, others = (
            losses_of(method, replace(batch, weight=weight), phase) for weight in (None, 3 * first, 1 - first)
        )
        for name, loss in usual.items():
            if name in method.weighted:
                assert alone[name] / 3 + others[name] == pytest.approx(loss, rel=1e-4, abs=1e-6)
                seen.add(name)
            else:
                assert alone[name] == others[name] == pytest.approx(loss)
    assert seen == method.weighted


def test_padding_changes_no_loss(toy_of_each: "Toy") -> None:
    for phase, batch in phases(toy_of_each):
        prepare(toy_of_each, phase)
        plain, more = (losses_of(toy_of_each.method, b, phase) for b in (batch, padded(batch)))
        assert more == pytest.approx(plain, rel=1e-5)


def test_an_image_that_only_fills_up_a_bag_changes_no_loss(toy_of_each: "Toy") -> None:
    for phase, batch in phases(toy_of_each):
        absent = ~batch.mask.any(dim=2).flatten()  # (I,)
        if phase.images_per_bag == 1 or not phase.needs_images:
            continue
        assert absent.any()  # the class of one image
        absent = absent.repeat_interleave(len(batch.images) // len(absent))
        prepare(toy_of_each, phase)
        other = replace(batch, images=torch.where(absent[:, None, None, None], batch.images + 5, batch.images))
        first, second = (losses_of(toy_of_each.method, b, phase) for b in (batch, other))
        assert first == pytest.approx(second)


def test_inspection_is_made_of_probabilities(toy_of_each: "Toy") -> None:
    for phase, _ in phases(toy_of_each):
        prepare(toy_of_each, phase)
    toy_of_each.method.eval()
    batch = toy_of_each.batches(1)[0]
    assert not batch.mask.all()
    with torch.no_grad():
        seen, with_padding = toy_of_each.method.inspect(batch), toy_of_each.method.inspect(padded(batch))
    count = len(toy_of_each.labels)
    assert seen.probabilities.shape == (count, 3)
    assert torch.allclose(seen.probabilities.sum(dim=1), torch.ones(count))
    for score in (seen.label_score, seen.background_score):
        assert score.shape == (count,)
        assert ((score >= 0) & (score <= 1)).all()
    assert torch.allclose(seen.weights.sum(dim=1), torch.ones(count))
    assert (seen.weights >= 0).all()
    assert (seen.weights[~batch.mask[:, 0]] == 0).all()
    assert batch.mask[:, 0].gather(1, seen.best[:, None]).all()  # a box that is there
    assert (seen.weights.gather(1, seen.best[:, None]) > 0).all()  # and that was kept
    assert torch.equal(with_padding.best, seen.best)
    assert all(value.shape == seen.weights.shape for value in seen.details.values())
    assert torch.allclose(with_padding.weights[:, : seen.weights.shape[1]], seen.weights, atol=1e-6)
    assert torch.allclose(with_padding.label_score, seen.label_score, atol=1e-6)


def test_a_step_leaves_nothing_behind_but_what_it_returns(toy_of_each: "Toy") -> None:
    """A step that is skipped, as its loss is NaN, must have changed nothing; and nothing may hide on `self`."""
    method = toy_of_each.method
    for phase, batch in phases(toy_of_each):
        prepare(toy_of_each, phase)
        before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
        own = {module: dict(vars(module)) for module in method.modules()}
        method.step(batch, phase)
        assert all(torch.equal(tensor, before[name]) for name, tensor in method.state_dict().items())
        for module, attributes in own.items():
            assert vars(module).keys() == attributes.keys()
            changed = [name for name, value in vars(module).items() if value is not attributes[name]]
            may_change = ["training"] if toy_of_each.config.method == "mopro" else []  # its slow network's mode
            assert changed in ([], may_change)


def test_the_state_dict_holds_all_that_was_learnt(toy_of_each: "Toy") -> None:
    toy = toy_of_each
    optimizer = make_optimizer(toy.method, toy.config.train)
    for phase, batch in phases(toy):
        prepare(toy, phase, optimizer)
        step = toy.method.step(batch, phase)
        torch.autograd.backward(torch.stack(list(step.losses.values())).sum())
        optimizer.step()
        toy.method.after_step(step.pending)
    twin = build_method(toy.config.with_settings({"seed": 7}), toy.labels, classes=3)
    batch = toy.batches(1)[0]
    with torch.no_grad():
        assert not torch.equal(twin.eval().inspect(batch).probabilities, toy.method.eval().inspect(batch).probabilities)
        twin.load_state_dict(toy.method.state_dict())
        first, second = toy.method.inspect(batch), twin.inspect(batch)
    assert torch.equal(first.probabilities, second.probabilities)
    assert torch.equal(first.label_score, second.label_score)
    assert torch.equal(first.weights, second.weights)


@pytest.mark.parametrize("name", METHODS)
def test_prediction_is_the_same_for_all(name: str) -> None:
    assert getattr(Method.predict, "__final__", False)
    assert find_method(name).predict is Method.predict


def test_an_unknown_method_is_told_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=re.escape(", ".join(sorted(METHODS)))):
        find_method("nope")
