"""Gated attention over the ROIs of a bag."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch
from somnet.methods.admil import Admil, GatedAttention

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]

ROIS = torch.tensor([[[math.atanh(0.5), math.log(3)], [0.0, 7.0], [9.0, 9.0]]])  # (1, 3, 2)
STRONG = math.exp(0.75)


def by_hand() -> GatedAttention:
    """V looks at the first feature, U at the second, w is 2: ROI 0 of ROIS scores 2 x .5 x .75, ROI 1 scores 0."""
    attention = GatedAttention(2, 1)
    with torch.no_grad():
        for bias in (attention.value.bias, attention.gate.bias, attention.score.bias):
            bias.zero_()
        attention.value.weight.copy_(torch.tensor([[1.0, 0.0]]))
        attention.gate.weight.copy_(torch.tensor([[0.0, 1.0]]))
        attention.score.weight.fill_(2.0)
    return attention


def test_weights_by_hand() -> None:
    weights = by_hand()(ROIS[:, :2], torch.ones(1, 2, dtype=torch.bool))
    assert weights[0].tolist() == pytest.approx([STRONG / (STRONG + 1), 1 / (STRONG + 1)])


def test_biases_by_hand() -> None:
    """Biases of V and U make tanh 1/2 and sigmoid 3/4 for a ROI of zeros; the other ROI undoes the bias of V."""
    attention = by_hand()
    with torch.no_grad():
        attention.value.bias.fill_(math.atanh(0.5))
        attention.gate.bias.fill_(math.log(3))
        attention.score.bias.fill_(5.0)  # the same for all: it changes no weight
    rois = torch.tensor([[[0.0, 0.0], [-math.atanh(0.5), 0.0]]])
    weights = attention(rois, torch.ones(1, 2, dtype=torch.bool))
    assert weights[0].tolist() == pytest.approx([STRONG / (STRONG + 1), 1 / (STRONG + 1)])


def test_what_is_not_there_gets_no_weight() -> None:
    weights = by_hand()(ROIS, torch.tensor([[True, True, False]]))
    assert weights[0].tolist() == pytest.approx([STRONG / (STRONG + 1), 1 / (STRONG + 1), 0])


def with_attention(toy: "MakeToy", rois: Tensor, monkeypatch: pytest.MonkeyPatch) -> Admil:
    """The attention of `by_hand`, and a network that sees these ROI features (1, P, 2) whatever the pixels."""
    method = toy("admil").method
    assert isinstance(method, Admil)
    method.attention = by_hand()
    method.network.classifier = torch.nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        method.network.classifier.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    monkeypatch.setattr(method.network, "roi_features", lambda images, boxes: rois.view(*boxes.shape[:2], -1))
    return method.eval()


def bag_of(images: int, boxes: int, label: int) -> BagBatch:
    mask = torch.ones(1, images, boxes, dtype=torch.bool)
    places = torch.rand(1, images, boxes, 4)
    return BagBatch(torch.arange(images)[None], torch.tensor([label]), places, mask, torch.zeros(images, 1))


def test_the_loss_is_that_of_the_weighted_bag(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images of one ROI each are one bag of two instances."""
    method = with_attention(toy, ROIS[:, :2], monkeypatch)
    share = STRONG / (STRONG + 1)
    x = share * ROIS[0, 0] + (1 - share) * ROIS[0, 1]  # the classifier gives it as its logits
    expected = classification_loss(torch.tensor([[float(x[0]), float(x[1]), 0.0]]), torch.tensor([1]))
    loss = method.step(bag_of(2, 1, label=1), method.plan()[0]).losses["cls"]
    assert float(loss.detach()) == pytest.approx(float(expected))


def test_inspection_by_hand(toy: "MakeToy", monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole image is ROI 1 here, the region ROI 0: the region has more weight."""
    method = with_attention(toy, ROIS[:, [1, 0]], monkeypatch)
    batch = bag_of(1, 2, label=0)
    with torch.no_grad():
        seen = method.inspect(batch)
    share = STRONG / (STRONG + 1)
    assert seen.weights[0].tolist() == pytest.approx([1 - share, share])
    assert seen.best.tolist() == [1]
    assert float(seen.background_score) == pytest.approx(1 / STRONG)
    x = share * ROIS[0, 0] + (1 - share) * ROIS[0, 1]
    expected = torch.tensor([float(x[0]), float(x[1]), 0.0]).softmax(dim=0)
    assert float(seen.label_score) == pytest.approx(float(expected[0]))
    whole = torch.tensor([float(ROIS[0, 1, 0]), float(ROIS[0, 1, 1]), 0.0]).softmax(dim=0)
    assert seen.probabilities[0].tolist() == pytest.approx(whole.tolist())


def test_a_bag_of_one_is_the_network_alone(toy: "MakeToy") -> None:
    made = toy("admil")
    batch = made.batches(1)[0]
    alone = BagBatch(batch.rows, batch.label, batch.boxes[:, :, :1], batch.mask[:, :, :1], batch.images)
    with torch.no_grad():
        seen = made.method.eval().inspect(alone)
        assert torch.allclose(seen.probabilities, made.method.predict(made.maps).softmax(dim=1), atol=1e-6)
    assert torch.equal(seen.weights, torch.ones(10, 1))


def test_settings_are_taken(toy: "MakeToy") -> None:
    method = toy("admil", **{"admil.images_per_bag": 3, "admil.width": 7}).method
    assert isinstance(method, Admil)
    assert method.plan()[0].images_per_bag == 3
    assert set(method.plan()[0].lr) == {"network", "attention"}
    assert method.attention.gate.weight.shape == (7, method.network.width)
