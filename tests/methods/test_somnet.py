"""SOMNet on hand-made memories: every ablation changes what it says and nothing else."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from somnet.core.memory import exact_ratios
from somnet.core.types import BagBatch
from somnet.core.weighting import bag_feature
from somnet.methods.somnet import SomNet
from somnet.training.optim import enter_phase, make_optimizer

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

D = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5]])  # (slots, C), slots 0 and 1
R = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])  # (C, slots)
WHOLE, HALF, QUARTER = [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.5], [0.5, 0.5, 1.0, 1.0]


def with_memory(toy: "MakeToy", **settings: object) -> SomNet:
    """A SOMNet of 4 slots whose keys are the first 4 axes; slots 0 and 1 hold D and R."""
    method = toy("somnet", **{"somnet.memory.side": 2, **settings}).method
    assert isinstance(method, SomNet)
    memory = method.memory
    with torch.no_grad():
        memory.keys.copy_(torch.eye(4, memory.keys.shape[1]))
        memory.d[:2], memory.r[:, :2] = D, R
    return method.eval()


def axes(*slots: int, width: int = 96) -> Tensor:
    """ROI features (1, N, F), each of length 3 along the key of a slot."""
    return 3 * torch.eye(4, width)[list(slots)][None]


def one_bag(label: int, *images: list[list[float]]) -> BagBatch:
    """A bag of images with their boxes, without pixels."""
    boxes = torch.tensor(images)[None]  # (1, G, P, 4)
    mask = torch.ones(boxes.shape[:3], dtype=torch.bool)
    return BagBatch(torch.arange(len(images))[None], torch.tensor([label]), boxes, mask, torch.zeros(len(images), 1))


def feed(method: SomNet, rois: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the network see these ROI features (1, N, F), whatever the pixels."""

    def roi_features(_: Tensor, boxes: Tensor) -> Tensor:
        return rois.view(*boxes.shape[:2], -1)

    monkeypatch.setattr(method.network, "roi_features", roi_features)


def test_the_weight_is_the_product_of_three_scores(toy: "MakeToy") -> None:
    method = with_memory(toy, **{"somnet.weighting.a_score": True})
    seen = method.weigh(axes(0, 1, 1), one_bag(0, [WHOLE, HALF, QUARTER]))
    assert seen["slot"].tolist() == [[0, 1, 1]]
    assert seen["d"][0].tolist() == pytest.approx([0.8, 0.2, 0.2])
    assert seen["r"][0].tolist() == pytest.approx([0.6, 0.4, 0.4])
    assert seen["a"][0].tolist() == pytest.approx([1.0, 1.0, 0.5])
    assert seen["weight"][0].tolist() == pytest.approx([0.48, 0.08, 0.04])


@pytest.mark.parametrize(
    ("field", "weights"),
    [
        ("d_score", [0.6, 0.4, 0.2]),
        ("r_score", [0.8, 0.2, 0.1]),
        ("a_score", [0.48, 0.08, 0.08]),
        ("rois", [0.48, 0.0, 0.0]),
    ],
)
def test_each_ablation_drops_its_factor(toy: "MakeToy", field: str, weights: list[float]) -> None:
    method = with_memory(toy, **{"somnet.weighting.a_score": True, f"somnet.weighting.{field}": False})
    assert method.weigh(axes(0, 1, 1), one_bag(0, [WHOLE, HALF, QUARTER]))["weight"][0].tolist() == pytest.approx(
        weights
    )


def bag(method: SomNet, batch: BagBatch, keep: float | None) -> Tensor:
    """The bag features (B, F)."""
    rois, kept, _ = method.weighed_rois(batch, keep)
    return bag_feature(kept, rois)


def test_the_image_of_another_cluster_gets_no_weight(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images, label 0: the first lies in the slot of class 0, the second in that of class 2."""
    method = with_memory(toy, **{"somnet.weighting.keep_first": 0.5, "somnet.weighting.keep_last": 0.5})
    batch = one_bag(0, [WHOLE, HALF], [WHOLE, HALF])
    feed(method, axes(0, 0, 1, 1), monkeypatch)
    joint = method.plan()[-1]
    assert joint.keep == 0.5
    x = bag(method, batch, joint.keep)  # (1, F)
    assert torch.allclose(x, axes(0)[0])
    feed(method, axes(1, 1, 0, 0), monkeypatch)
    assert torch.allclose(bag(method, batch, joint.keep), axes(0)[0])


def test_all_rois_share_the_weight_by_their_scores(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    method = with_memory(toy)
    feed(method, axes(0, 1), monkeypatch)
    x = bag(method, one_bag(0, [WHOLE], [WHOLE]), 1.0)
    assert x[0, :2].tolist() == pytest.approx([3 * 0.48 / 0.56, 3 * 0.08 / 0.56])


def test_inspection_by_hand(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory keeps two of three ROIs, and of these the classifier takes the one most like the label."""
    method = with_memory(toy, **{"somnet.weighting.keep_last": 0.6})
    feed(method, axes(1, 0, 3), monkeypatch)
    with torch.no_grad():
        method.memory.d[3], method.memory.r[:, 3] = torch.tensor([1e-6, 0.5, 0.5]), 1e-6
        weight = torch.zeros_like(method.network.classifier.weight)  # (C, F)
        weight[0, 0], weight[0, 3] = 1.0, 5.0  # it sees class 0 on axis 0, and even more on axis 3
        method.network.classifier.weight.copy_(weight)
        seen = method.inspect(one_bag(0, [WHOLE, HALF, QUARTER]))
    # .08 for the image and .48 for the first region are kept, the second region has next to nothing
    assert seen.weights[0].tolist() == pytest.approx([1 / 7, 6 / 7, 0])
    assert float(seen.background_score) == pytest.approx((1 / 3) / (math.exp(3) / (math.exp(3) + 2)))
    assert seen.best.tolist() == [1]
    probability = math.exp(3) / (math.exp(3) + 2)
    assert float(seen.label_score) == pytest.approx(probability)
    assert float(seen.probabilities[0, 0]) == pytest.approx(1 / 3)  # of the image itself, as predict has it


def test_radius_0_moves_the_winner_alone(toy: "MakeToy") -> None:
    def moved(radius: int) -> list[int]:
        method = with_memory(toy, **{"somnet.memory.radius": radius})
        losses = method.memory.losses(axes(0)[0] + 0.1, torch.tensor([0]), torch.tensor([0]))
        torch.autograd.backward(losses["som_key"])
        assert method.memory.keys.grad is not None
        return sorted(torch.nonzero(method.memory.keys.grad.to_dense().abs().sum(dim=1) > 0).flatten().tolist())

    assert moved(0) == [0]
    assert moved(1) == [0, 1, 2]  # 2 x 2: all but the opposite corner
    assert moved(2) == [0, 1, 2, 3]


def test_a_fixed_p_is_kept(toy: "MakeToy") -> None:
    settings = {"somnet.weighting.keep_first": 0.3, "somnet.weighting.keep_last": 0.3, "train.epochs": 8}
    assert {phase.keep for phase in toy("somnet", **settings).method.plan() if phase.name == "joint"} == {0.3}
    growing = [p.keep for p in toy("somnet", **{"train.epochs": 12}).method.plan() if p.keep is not None]
    assert growing == pytest.approx([0.25, 0.30, 0.35, 0.45, 0.50, 0.55, 0.60])


def test_images_per_bag_and_side_are_taken(toy: "MakeToy") -> None:
    made = toy("somnet", **{"somnet.images_per_bag": 3, "somnet.memory.side": 4})
    assert {phase.images_per_bag for phase in made.method.plan()} == {3}
    assert isinstance(made.method, SomNet)
    assert made.method.memory.keys.shape[0] == 16
    assert made.method.memory.r.shape == (3, 16)


def test_the_plan_is_algorithm_1(toy: "MakeToy") -> None:
    plan = toy("somnet", **{"train.epochs": 5, "train.lr": 0.02}).method.plan()
    assert [(phase.name, phase.epochs, phase.passes) for phase in plan] == [
        ("init-cnn", 2, 1),
        ("init-memory", 2, 0),
        *[("joint", 1, 4)] * 3,  # the image and three proposals
    ]
    assert [phase.regions for phase in plan] == [False, False, True, True, True]
    assert plan[0].lr == {"network": 0.02}
    assert "network" not in plan[1].lr
    assert plan[1].lr["keys"] == 0.5
    slowly = {name: pytest.approx(0.1 * rate) for name, rate in plan[1].lr.items()}
    assert plan[2].lr == {"network": 0.01, **slowly}
    third = pytest.approx(1 / 3), pytest.approx(2 / 3)
    assert [phase.anneal for phase in plan[2:]] == [(0, third[0]), third, (third[1], 1)]


@pytest.mark.parametrize("detach", [True, False])
def test_the_memory_loss_reaches_the_network_only_if_asked(toy: "MakeToy", detach: bool) -> None:
    made = toy("somnet", **{"somnet.memory.detach": detach})
    joint = made.method.plan()[-1]
    enter_phase(make_optimizer(made.method, made.config.train), joint)
    losses = made.method.step(made.batches(2)[0], joint).losses
    torch.autograd.backward(losses["som_key"])
    reached = [p for p in made.method.network.tail.parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    assert bool(reached) is not detach
    assert isinstance(made.method, SomNet)
    assert made.method.memory.keys.grad is not None


@pytest.mark.parametrize("full_size", [True, False])
def test_the_memory_starts_from_what_it_will_judge(toy: "MakeToy", full_size: bool) -> None:
    made = toy("somnet", **{"somnet.full_size": full_size})
    method = made.method
    assert isinstance(method, SomNet)
    phase = method.plan()[1]
    method.eval()
    with torch.no_grad():
        method.prepare(phase, made.bag_pass, torch.Generator().manual_seed(0))
        batch = made.batches(1)[0]
        boxes, mask = (
            (batch.boxes[:, 0], batch.mask[:, 0]) if full_size else (batch.boxes[:, 0, :1], batch.mask[:, 0, :1])
        )
        features = normalize(method.network.roi_features(batch.images, boxes)[mask], dim=1)
    assert len(features) > 10 if full_size else len(features) == 10
    nearest = (method.memory.keys @ features.T).max(dim=1)
    assert torch.allclose(nearest.values, torch.ones(9), atol=1e-5)
    assert len(set(nearest.indices.tolist())) == 9  # different images


def test_k_means_sets_the_exact_ratios(toy: "MakeToy") -> None:
    made = toy("somnet", **{"somnet.memory.kmeans": True, "somnet.memory.side": 2})
    method = made.method
    assert isinstance(method, SomNet)
    assert {name for phase in method.plan() for name in phase.lr} == {"network"}
    method.eval()
    joint = next(phase for phase in method.plan() if phase.name == "joint")
    batch = made.batches(2)[0]
    with torch.no_grad():
        method.prepare(joint, made.bag_pass, torch.Generator())
        x = bag(method, batch, None)
    slot, _, _ = method.memory.scores(x, batch.label)
    d, r = exact_ratios(slot, batch.label, 4, 3)
    filled = torch.bincount(slot, minlength=4) > 0
    assert torch.allclose(method.memory.d[filled], d[filled], atol=1e-4)
    assert torch.allclose(method.memory.r, r, atol=1e-4)
    before = {name: value.clone() for name, value in method.memory.state_dict().items()}
    step = method.step(batch, joint)
    assert set(step.losses) == {"cls"}
    method.after_step(step.pending)
    assert all(torch.equal(before[name], value) for name, value in method.memory.state_dict().items())
