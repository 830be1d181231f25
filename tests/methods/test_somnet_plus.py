"""The second stage of somnet+, by hand; and that it trains on what the search found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.data.bags import Inputs
from somnet.methods.somnet_plus import LOOK, SomNetPlus, largest_good_region
from somnet.training.loop import Trainer

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

BOXES = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.2, 0.5], [0.5, 0.5, 1.0, 1.0]]])
ALL = torch.ones(1, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("of_label", "share", "expected"),
    [
        ([0.9, 0.8, 1.0, 0.1], 0.8, 0),  # the whole image is good enough
        ([0.3, 0.8, 1.0, 0.1], 0.8, 1),  # the larger of two good regions
        ([0.3, 0.7, 1.0, 0.1], 0.8, 2),  # only the best will do
        ([0.3, 0.7, 1.0, 0.9], 0.8, 3),
        ([0.3, 0.7, 1.0, 0.9], 0.2, 0),
    ],
)
def test_the_largest_region_that_is_nearly_as_good(of_label: list[float], share: float, expected: int) -> None:
    assert largest_good_region(BOXES, torch.tensor([of_label]), ALL, share).tolist() == [expected]


def test_regions_that_the_memory_drops_are_no_candidates() -> None:
    candidates = torch.tensor([[True, False, False, True]])
    assert largest_good_region(BOXES, torch.tensor([[0.1, 0.9, 1.0, 0.2]]), candidates, 0.8).tolist() == [3]


def plus(made: "Toy") -> SomNetPlus:
    assert isinstance(made.method, SomNetPlus)
    return made.method


@pytest.mark.parametrize(("epochs", "search"), [(1, 0), (2, 0), (5, 2), (20, 7)])
def test_the_search_takes_its_share(toy: "MakeToy", epochs: int, search: int) -> None:
    plan = plus(toy("somnet+", **{"train.epochs": epochs})).plan()
    assert plan[-1].name == LOOK
    assert plan[-1].epochs == epochs - search
    assert sum(phase.epochs * phase.passes for phase in plan[:-1]) == search


@pytest.mark.parametrize("share", [0.97, 1.0])
def test_there_is_always_a_second_stage(toy: "MakeToy", share: float) -> None:
    plan = plus(toy("somnet+", **{"train.epochs": 10, "somnet_plus.search_share": share})).plan()
    assert plan[-1].epochs == 1  # without it no image would have a target, and all scores were the same
    assert sum(phase.epochs * phase.passes for phase in plan) == 10


def searched(made: "Toy") -> SomNetPlus:
    """The method as it is before its second stage."""
    method = plus(made)
    for phase in method.plan():
        if phase.epochs:
            method.eval()
            with torch.no_grad():
                method.prepare(phase, made.bag_pass, torch.Generator().manual_seed(0))
    return method


def test_views_are_the_image_a_good_region_and_the_best_one(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"train.epochs": 5})
    method = searched(made)
    views = method.views(method.plan()[-1])
    assert views is not None
    assert views.shape == (10, 3, 4)
    assert (views[:, 0] == [0, 0, 1, 1]).all()
    batch = made.batches(1)[0]
    with torch.no_grad():
        seen = method.inspect(batch)
    best = batch.boxes[:, 0][torch.arange(10), seen.best]
    assert np.array_equal(views[:, 2], best.numpy())
    area = np.prod(views[..., 2:] - views[..., :2], axis=-1)  # (n, V)
    assert (area[:, 1] >= area[:, 2] - 1e-6).all()


@pytest.mark.parametrize("handover", [True, False])
def test_the_targets_start_with_the_predictions_of_the_search(toy: "MakeToy", handover: bool) -> None:
    made = toy("somnet+", **{"train.epochs": 5, "somnet_plus.handover": handover})
    method = searched(made)
    batch = made.batches(1)[0]
    with torch.no_grad():
        seen = super(SomNetPlus, method).inspect(batch)  # the network is the search network still
    expected = seen.probabilities if handover else torch.zeros_like(seen.probabilities)
    assert torch.allclose(method.targets.get(batch.rows[:, 0]), expected, atol=1e-6)


def test_searching_phases_see_whole_images(toy: "MakeToy") -> None:
    method = searched(toy("somnet+", **{"train.epochs": 5}))
    assert all(method.views(phase) is None for phase in method.plan()[:-1])


def test_without_regions_the_second_stage_sees_whole_images(toy: "MakeToy") -> None:
    method = searched(toy("somnet+", **{"train.epochs": 5, "somnet_plus.regions": False}))
    assert method.views(method.plan()[-1]) is None


def test_the_search_network_keeps_what_the_search_had_learnt(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("somnet+", **{"train.epochs": 5})
    method = plus(made)
    made.trainer(tmp_path).run()
    last_of_search = method.plan()[-2]
    assert last_of_search.name == "joint"
    twin = toy("somnet+", **{"train.epochs": 5})
    alone = twin.trainer(tmp_path / "alone")
    alone.plan = alone.plan[:-1]
    alone.run()
    assert method.memory_network is method.scout
    for name, tensor in method.scout.classifier.state_dict().items():
        assert torch.equal(tensor, twin.method.network.classifier.state_dict()[name])
        assert not torch.equal(tensor, method.network.classifier.state_dict()[name])


def test_the_loop_draws_all_views_and_only_in_the_second_stage(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("somnet+", **{"train.epochs": 5})
    asked: list[np.ndarray] = []
    drawn: list[int] = []

    def crop_inputs(views: np.ndarray) -> Inputs:
        number = len(asked)
        asked.append(views)

        def inputs(row: int, seed: int | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            drawn.append(number)
            return made.inputs(row, seed)

        return inputs

    images = replace(made.images(), crop_inputs=crop_inputs)
    Trainer(made.method, made.config, images, tmp_path).run()
    assert [views.shape for views in asked] == [(10, 4)] * 3
    assert set(drawn) == {0, 1, 2}
    assert len(drawn) == 3 * 10  # three epochs


def test_the_score_is_the_mean_of_both_stages(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"train.epochs": 5})
    method = searched(made)
    method.targets.put(torch.arange(10), torch.tensor([[0.6, 0.1, 0.1]]).repeat(10, 1))
    method.searched = torch.full((10,), 0.5)
    batch = made.batches(1)[0]
    with torch.no_grad():
        score = method.inspect(batch).label_score
    expected = [(0.5 + (0.75 if label == 0 else 0.125)) / 2 for label in made.labels]
    assert score.tolist() == pytest.approx(expected, abs=1e-4)


def test_strength_0_is_cross_entropy_alone(toy: "MakeToy") -> None:
    made = toy("somnet+", **{"train.epochs": 5, "somnet_plus.strength": 0.0})
    method = searched(made)
    batch = made.batches(1)[0]
    losses = method.step(replace(batch, boxes=batch.boxes), method.plan()[-1]).losses
    assert set(losses) == {"cls"}
