"""MixUp by hand."""

import math

import pytest
import torch

from somnet.methods.mixup import mix_up, soft_cross_entropy


def test_images_and_targets_are_mixed_alike() -> None:
    torch.manual_seed(0)
    number = torch.arange(8)  # each image holds its number, so that a mixture tells its parts
    images, target = (30 * number).to(torch.uint8)[:, None, None, None].expand(8, 3, 2, 2), torch.eye(8)
    mixed, soft = mix_up(images, target, alpha=0.5)
    assert torch.allclose(mixed[:, 0, 0, 0], soft @ (30.0 * number), atol=1e-3)
    assert torch.allclose(soft.sum(dim=1), torch.ones(8))
    own = soft.diagonal()
    assert (own >= 0.5).all()  # more itself than its partner
    share = float(own.min())
    assert 0.5 <= share < 1
    assert all(value == pytest.approx(share) or value == pytest.approx(1.0) for value in own.tolist())


def test_soft_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])
    found = soft_cross_entropy(logits, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    assert found.tolist() == pytest.approx([0.5 * math.log(4) + 0.5 * math.log(4 / 3), math.log(2)])
