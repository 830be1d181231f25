"""Attention over places: its weights, its features, its bags."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.losses import classification_loss
from somnet.methods.attend_groups import AttendGroups, attended, place_weights

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

ONE = math.log(math.e - 1)  # whose softplus is 1


def made_of(toy: "MakeToy", **settings: object) -> tuple["Toy", AttendGroups]:
    made = toy("attend-groups", **settings)
    assert isinstance(made.method, AttendGroups)
    return made, made.method.eval()


def test_weights_by_hand() -> None:
    maps = torch.tensor([[[[1.0, 0.0]], [[5.0, 2.0]]]])  # (1, 2, 1, 2): features (1, 5) and (0, 2)
    first, second = 1.1, math.log(2) + 0.1  # w.x is ONE, then 0
    weights = place_weights(maps, torch.tensor([ONE, 0.0]), 0.1)
    assert weights[0].tolist() == pytest.approx([first / (first + second), second / (first + second)])


def test_the_floor_lets_no_place_go() -> None:
    maps = torch.tensor([[[[-1000.0, 0.0]]]])  # (1, 1, 1, 2)
    weights = place_weights(maps, torch.ones(1), 0.1)
    assert float(weights[0, 0]) == pytest.approx(0.1 / (0.2 + math.log(2)))


def test_features_by_hand() -> None:
    maps = torch.tensor([[[[1.0, 3.0]], [[0.0, 8.0]]]])  # (1, 2, 1, 2)
    assert attended(maps, torch.tensor([[0.25, 0.75]]))[0].tolist() == pytest.approx([2.5, 6.0])


def test_places_are_laid_out_as_in_the_map() -> None:
    maps = torch.arange(6.0).view(1, 1, 2, 3)
    weights = place_weights(maps, torch.tensor([50.0]), 0.1)  # the score grows with the number of the place
    assert weights[0].argsort().tolist() == list(range(6))
    assert float(attended(maps, torch.eye(6)[4:5])) == 4


def test_without_a_detector_it_is_the_mean(toy: "MakeToy") -> None:
    made, method = made_of(toy)
    with torch.no_grad():
        method.detector.zero_()
        seen = method.inspect(made.batches(1)[0]).probabilities
        assert torch.allclose(seen, method.predict(made.maps).softmax(dim=1), atol=1e-6)


def test_the_detector_starts_small(toy: "MakeToy") -> None:
    _, method = made_of(toy)
    assert method.detector.shape == (method.network.width,)
    assert 0.0005 < float(method.detector.detach().std()) < 0.0015


def test_a_bag_is_the_mean_of_its_images(toy: "MakeToy") -> None:
    """Classes of 5, 4 and 1 images in bags of 2: the last one has one image, and counts it alone."""
    made, method = made_of(toy)
    with torch.no_grad():
        method.detector.mul_(100)
        batch = made.batches(2)[0]
        maps = method.network.maps(made.maps)
        features = attended(maps, place_weights(maps, method.detector, 0.1))  # (n, F)
        lonely = batch.label == 2
        assert batch.mask[..., 0].sum(dim=1)[lonely].tolist() == [1]
        means = features[batch.rows].mean(dim=1)  # padding repeats the lonely image
        expected = classification_loss(method.network.classifier(means), batch.label)
        loss = method.step(batch, method.plan()[0]).losses["cls"]
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


def test_the_label_score_is_of_the_attended_places(toy: "MakeToy") -> None:
    made, method = made_of(toy)
    batch = made.batches(1)[0]
    with torch.no_grad():
        method.detector.mul_(1000)
        seen = method.inspect(batch)
        alone = method.predict(made.maps).softmax(dim=1)
        attended = method.network.classifier(method._attended(batch)).softmax(dim=1)
    assert torch.allclose(seen.probabilities, alone)
    assert torch.equal(seen.label_score, attended[torch.arange(10), batch.label])
    assert not torch.allclose(seen.label_score, alone[torch.arange(10), batch.label], atol=1e-4)


def test_settings_are_taken(toy: "MakeToy") -> None:
    _, method = made_of(toy, **{"attend_groups.images_per_bag": 3})
    (phase,) = method.plan()
    assert phase.images_per_bag == 3
    assert set(phase.lr) == {"network", "detector"}
