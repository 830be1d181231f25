"""Networks that follow another one."""

import pytest
import torch
from torch import nn

from somnet.nn.average import follow, warm_momentum


def test_momentum_is_that_of_a_mean_at_first() -> None:
    assert [warm_momentum(0.9, steps) for steps in (0, 1, 3, 9, 10, 1000)] == pytest.approx(
        [0.0, 0.5, 0.75, 0.9, 0.9, 0.9]
    )


def test_follow_by_hand() -> None:
    slow, fast = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    with torch.no_grad():
        fast.weight.fill_(5.0)
        fast.running_mean.fill_(2.0)  # type: ignore[union-attr]
        fast.num_batches_tracked.fill_(7)  # type: ignore[union-attr]
    follow(slow, fast, 0.75)
    assert float(slow.weight.detach()) == pytest.approx(0.75 * 1 + 0.25 * 5)
    assert slow.state_dict()["running_mean"].tolist() == pytest.approx([0.5])
    assert int(slow.state_dict()["num_batches_tracked"]) == 7
    assert float(fast.weight.detach()) == 5.0
