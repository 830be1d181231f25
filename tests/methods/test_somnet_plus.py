"""SOMNet+: training on probable labels, then a memory of what the network has learnt."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from somnet.core.schedule import INIT_CNN, INIT_MEMORY
from somnet.errors import ConfigError
from somnet.methods import label_judgement, somnet_plus
from somnet.methods.base import of_label
from somnet.methods.label_judgement import Judged
from somnet.methods.somnet_plus import SomNetPlus, view_shares

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def plus(made: "Toy") -> SomNetPlus:
    assert isinstance(made.method, SomNetPlus)
    return made.method


def test_the_network_has_all_epochs_and_then_the_memory_its_own(toy: "MakeToy") -> None:
    network, memory = plus(toy("somnet+", **{"train.epochs": 12, "somnet.memory.init_epochs": 4})).plan()
    assert (network.name, network.epochs, network.images_per_bag, network.passes) == (INIT_CNN, 12, 1, 1.0)
    assert (memory.name, memory.epochs, set(memory.lr)) == (INIT_MEMORY, 4, {"keys", "d", "r"})


def test_the_network_is_trained_on_probable_labels(toy: "MakeToy") -> None:
    """Cross entropy with the distributions by hand: -sum of t log p, as a mean over the images."""
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[0]
    target = torch.tensor([[0.2, 0.7, 0.1]]).repeat(10, 1)
    method.targets.put(torch.arange(10), target)
    batch = made.batch_of(phase)
    step = method.step(batch, phase)
    p = method.predict(batch.images).softmax(dim=1)
    assert step.losses["cls"].item() == pytest.approx(-(target * p.log()).sum(dim=1).mean().item(), rel=1e-3)
    assert step.pending == {}


def test_the_more_labels_are_wrong_the_more_robust_the_loss(toy: "MakeToy") -> None:
    """With e = 0.4: (0.6 + 0.04) CE, and 0.4 times -log(1e-4) (1 - <p, t>)."""
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[0]
    target = torch.tensor([[0.2, 0.7, 0.1]]).repeat(10, 1)
    method.targets.put(torch.arange(10), target)
    batch = made.batch_of(phase)
    assert method.step(batch, phase).losses["reverse"].item() == 0
    method.wrong.fill_(0.4)
    losses = method.step(batch, phase).losses
    p = method.predict(batch.images).softmax(dim=1)
    assert losses["cls"].item() == pytest.approx(-0.64 * (target * p.log()).sum(dim=1).mean().item(), rel=1e-3)
    reverse = 0.4 * 9.21034 * (1 - (target * p).sum(dim=1)).mean().item()
    assert losses["reverse"].item() == pytest.approx(reverse, rel=1e-3)


def judged_as(clutter: float) -> Callable[..., Iterator[Judged]]:
    """What the others say about ten images whose first proposal shows the thing four times as likely as the image."""

    def judge(*_: object) -> Iterator[Judged]:
        rows, even = np.arange(10), np.full((10, 3), 1 / 3)
        seen = np.tile(np.array([0.2, 0.8, 0.2, 0.0], np.float32), (10, 1))
        yield Judged(rows, even, even, even.astype(np.float32), even.astype(np.float16), seen, seen >= 0, 0.3, clutter)

    return judge


@pytest.mark.parametrize(("clutter", "expected"), [(0.0, 1.0), (0.5, 2.0), (1.0, 4.0)])
def test_views_are_drawn_by_what_is_seen_in_them_as_far_as_there_is_clutter(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clutter: float, expected: float
) -> None:
    monkeypatch.setattr(somnet_plus, "judge_labels", judged_as(clutter))
    made = toy("somnet+", **{"views.proposals": 3, "views.crops": 2})
    method = plus(made)
    training, memory = method.plan()
    method.prepare(training, made.trainer(tmp_path).bag_pass, torch.Generator())
    shares = method.view_shares(training)
    assert shares is not None
    assert shares.shape == (10, 7)
    image, first, second, unseen, mirrored, *crops = shares[0]
    assert first / second == pytest.approx(expected)
    assert second / image == pytest.approx(4**clutter)  # it shares its part with its mirror image and two crops
    assert mirrored == crops[0] == crops[1] == image
    assert unseen == pytest.approx(0.001**clutter)  # never 0
    assert method.wrong == pytest.approx(0.3)
    assert method.view_shares(memory) is None


def test_the_image_that_stands_in_for_missing_regions_has_one_part_in_all() -> None:
    """An image with one region of three, its mirror image: three variants of the image share its part, 0.3."""
    seen = np.array([[0.3, 0.6, 0.3, 0.3]], np.float32)
    real = np.array([[True, True, False, False]])
    judged = replace(next(judged_as(clutter=1.0)()), seen=seen, real=real)
    assert view_shares(judged, views=5)[0].tolist() == pytest.approx([0.075, 0.6, 0.075, 0.075, 0.075])
    assert view_shares(replace(judged, clutter=0.0), views=5)[0].tolist() == [1.0] * 5


@pytest.mark.parametrize("part", ["probable_labels", "robust_loss", "choose_views"])
def test_each_part_can_be_left_out(toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(somnet_plus, "judge_labels", judged_as(clutter=1.0))
    made = toy("somnet+", **{f"somnet_plus.{part}": False})
    method, phase = plus(made), plus(made).plan()[0]
    method.prepare(phase, made.trainer(tmp_path).bag_pass, torch.Generator())
    given = of_label(method.targets.get(torch.arange(10)), method.labels)
    assert (given == 1).all() == (part == "probable_labels")
    assert (method.view_shares(phase) is None) == (part == "choose_views")
    assert ("reverse" in method.step(made.batch_of(phase), phase).losses) == (part != "robust_loss")


def test_labels_are_heard_about_once_and_before_training(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("somnet+", **{"train.epochs": 2})
    method, trainer = plus(made), made.trainer(tmp_path)
    trainer.run()
    known = method.targets.get(torch.arange(10))
    assert method.judged
    assert torch.allclose(known.sum(dim=1), torch.ones(10), atol=1e-5)
    method.prepare(method.plan()[0], trainer.bag_pass, torch.Generator())
    assert torch.equal(method.targets.get(torch.arange(10)), known)


def test_of_many_images_some_are_asked_and_all_are_judged(
    toy: "MakeToy", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_judgement, "MOST", 6)
    made = toy("somnet+")
    method = plus(made)
    with torch.no_grad():
        method.prepare(method.plan()[0], made.trainer(tmp_path).bag_pass, torch.Generator())
    assert torch.allclose(method.targets.get(torch.arange(10)).sum(dim=1), torch.ones(10), atol=1e-5)


def test_a_verified_label_is_beyond_doubt(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("somnet+")
    method, verified = plus(made), torch.arange(10) < 3
    method.confirm(verified)
    with torch.no_grad():
        method.prepare(method.plan()[0], made.trainer(tmp_path).bag_pass, torch.Generator())
    own = of_label(method.targets.get(torch.arange(10)), method.labels)
    assert ((own == 1) == verified).all()


@pytest.mark.parametrize(
    ("silent", "heard"), [("best_region", [0, 2, 3]), ("prototypes", [0, 1, 3]), ("neighbours", [0, 1, 2])]
)
def test_a_witness_can_be_left_out(toy: "MakeToy", silent: str, heard: list[int]) -> None:
    assert plus(toy("somnet+")).plus.heard() == [0, 1, 2, 3]
    assert plus(toy("somnet+", **{f"somnet_plus.{silent}": False})).plus.heard() == heard


def test_clusters_instead_of_a_memory_are_refused(toy: "MakeToy") -> None:
    with pytest.raises(ConfigError, match=r"leave out somnet\.memory\.kmeans"):
        toy("somnet+", **{"somnet.memory.kmeans": True})


def test_label_score_is_the_mean_of_the_best_region_and_the_probable_label(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method = plus(made)
    method.targets.put(torch.arange(10), torch.tensor([[0.25, 0.5, 0.25]]).repeat(10, 1))
    batch = made.batches(1)[0]
    with torch.no_grad():
        seen = method.eval().inspect(batch)
        somnet = super(SomNetPlus, method).inspect(batch)
    probable = torch.tensor([0.25] * 5 + [0.5] * 4 + [0.25])
    assert torch.allclose(seen.label_score, (somnet.label_score + probable) / 2, atol=1e-3)
    assert torch.equal(seen.probabilities, somnet.probabilities)  # what the network sees, not what was found before
