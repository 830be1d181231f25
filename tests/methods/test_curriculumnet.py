"""Density decides the stage: distances, densities, groups, and what each stage trains on."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.core.losses import classification_loss
from somnet.methods import curriculumnet
from somnet.methods.curriculumnet import (
    CurriculumNet,
    cutoff_distance,
    densities,
    density_groups,
    principal,
)
from somnet.training.optim import learning_rates

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

LINE = torch.tensor([[0.0], [1.0], [2.0], [10.0]])  # distances 1 1 2 8 9 10


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def cloud(count: int, width: int) -> Tensor:
    return torch.randn(count, width, generator=generator()) * torch.linspace(3, 0.1, width)


def test_the_cutoff_by_hand() -> None:
    assert cutoff_distance(LINE, 0.6, generator()) == pytest.approx(8)
    assert cutoff_distance(LINE, 0.3, generator()) == pytest.approx(1.5)


def test_densities_by_hand() -> None:
    assert densities(LINE, 8.0).tolist() == [3, 3, 3, 1]  # a distance of just 8 is not below it
    assert densities(LINE, 8.5).tolist() == [3, 3, 4, 2]


def test_densities_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(23, 4)
    whole = densities(points, 3.0)
    monkeypatch.setattr(curriculumnet, "BLOCK", 5)
    assert torch.equal(densities(points, 3.0), whole)


def test_a_sample_gives_nearly_the_same_cutoff(monkeypatch: pytest.MonkeyPatch) -> None:
    points = cloud(600, 6)
    exact = cutoff_distance(points, 0.6, generator())
    monkeypatch.setattr(curriculumnet, "SAMPLE", 200)
    sampled = cutoff_distance(points, 0.6, generator())
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.1)


def test_copies_of_an_image_are_neighbours() -> None:
    """More than 60 % of the pairs are copies at a distance of 0: rounding must not decide who is near."""
    points = torch.cat([torch.full((18, 50), 7.3), cloud(2, 50)])
    density = densities(points, cutoff_distance(points, 0.6, generator()))
    assert density.tolist() == [18] * 18 + [1, 1]


def test_principal_components_keep_the_widest_directions() -> None:
    points = cloud(40, 10)
    first = principal(points, 2)
    centred = points - points.mean(dim=0)
    *_, axes = torch.linalg.svd(centred, full_matrices=False)
    assert torch.allclose(torch.pdist(first), torch.pdist(centred @ axes[:2].T), atol=1e-3)


def test_principal_components_of_few_points_change_no_distance() -> None:
    points = cloud(6, 10) + 5
    kept = principal(points, 8)
    assert torch.allclose(torch.pdist(kept), torch.pdist(points), atol=1e-5)
    assert torch.allclose(kept.mean(dim=0), torch.zeros(10), atol=1e-5)


def test_groups_by_hand() -> None:
    density = torch.tensor([10, 52, 3, 50, 11, 4, 51, 9, 2, 50])
    assert density_groups(density).tolist() == [1, 0, 2, 0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    "density",
    [
        [50] * 30,
        [50] * 15 + [51] * 15,  # fewer values than groups
        [500, 501, 502] * 200,  # a spread of 2 in 600 images
        [1, 5, 9, 9],  # few images
        [1],
    ],
)
def test_densities_that_tell_nothing_leave_the_class_whole(density: list[int]) -> None:
    assert density_groups(torch.tensor(density)).tolist() == [0] * len(density)


def test_most_images_may_share_the_highest_density() -> None:
    density = torch.tensor([40] * 30 + [20] * 2 + [1])
    assert density_groups(density).tolist() == [0] * 30 + [1] * 2 + [2]


def test_the_weighted_loss_by_hand() -> None:
    logits = torch.tensor([[0.5, 0.5], [0.8, 0.2]]).log()
    loss = classification_loss(logits, torch.tensor([0, 1]), torch.tensor([1.0, 0.5]))
    assert float(loss) == pytest.approx((math.log(2) + 0.5 * math.log(5)) / 2)


def with_groups(toy: "MakeToy", **settings: object) -> tuple["Toy", CurriculumNet]:
    made = toy("curriculumnet", **settings)
    assert isinstance(made.method, CurriculumNet)
    made.method.group.copy_(torch.tensor([0, 0, 1, 2, 2, 0, 1, 1, 2, 0]))
    return made, made.method.eval()


def test_each_stage_adds_a_group(toy: "MakeToy") -> None:
    _, method = with_groups(toy)
    features, clean, noisy, everything = method.plan()
    assert method.rows(features) is None
    chosen = [method.rows(phase) for phase in (clean, noisy, everything)]
    assert [rows.tolist() for rows in chosen if rows is not None] == [
        [0, 1, 5, 9],
        [0, 1, 2, 5, 6, 7, 9],
        list(range(10)),
    ]


def test_what_is_not_clean_counts_half(toy: "MakeToy") -> None:
    made, method = with_groups(toy, **{"curriculumnet.noisy_weight": 0.25})
    batch = made.batches(1)[0]
    with torch.no_grad():
        loss = method.step(batch, method.plan()[-1]).losses["cls"]
        each = torch.nn.functional.cross_entropy(method.predict(made.maps), batch.label, reduction="none")
    weight = torch.where(method.group == 0, 1.0, 0.25)
    assert float(loss) == pytest.approx(float((weight * each).sum() / 10), rel=1e-5)


def test_one_cosine_over_all_stages(toy: "MakeToy") -> None:
    plan = toy("curriculumnet", **{"train.epochs": 12}).method.plan()
    assert [(phase.name, phase.epochs) for phase in plan] == [("features", 2), ("clean", 4), ("noisy", 3), ("all", 3)]
    rates = [learning_rates(phase, progress)["network"] for phase in plan for progress in (0.0, 1.0)]
    after_4, after_7 = (0.005 * (1 + math.cos(math.pi * share)) for share in (0.4, 0.7))
    assert rates == pytest.approx([0.01, 0.0, 0.01, after_4, after_4, after_7, after_7, 0.0])
    assert [phase.fresh for phase in plan] == [False, True, False, False]


def test_the_stages_start_with_a_fresh_network(toy: "MakeToy") -> None:
    made = toy("curriculumnet")
    method, network = made.method, made.method.network
    start = network.classifier.weight.clone()
    trained = start + 1
    for phase, expected in zip(method.plan(), (trained, start, trained, trained), strict=True):
        with torch.no_grad():
            network.classifier.weight.copy_(trained)
            method.prepare(phase, made.bag_pass, generator())
        assert torch.equal(network.classifier.weight, expected), phase.name


def test_classes_are_divided_when_the_features_are_there(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """Class 0 has a core, its edge and a stranger; the other classes are too small to be divided."""
    monkeypatch.setattr(curriculumnet, "LEAST", 5)
    made = toy("curriculumnet", **{"curriculumnet.quantile": 0.4})
    place = torch.tensor([0.0, 1.0, 2.0, 3.0, 60.0, 0.0, 0.0, 50.0, 0.0, 0.0])
    monkeypatch.setattr(curriculumnet, "training_features", lambda network, bag_pass: place[:, None].half())
    method = made.method.eval()
    assert isinstance(method, CurriculumNet)
    with torch.no_grad():
        method.leave(method.plan()[0], made.bag_pass)
    # distances 1 1 1 2 2 3 and four of 57 or more, so the cutoff is 2: 1 2 2 1 0 neighbours
    assert method.group[:5].tolist() == [1, 0, 0, 1, 2]
    assert method.group[5:].tolist() == [0] * 5
    before = method.group.clone()
    method.leave(method.plan()[1], made.bag_pass)
    assert torch.equal(method.group, before)
