"""SOMNet+: ELR's training, then a memory of what the network has learnt."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.schedule import INIT_CNN, INIT_MEMORY
from somnet.errors import ConfigError
from somnet.methods.somnet_plus import SomNetPlus

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


def test_the_network_is_that_of_elr(toy: "MakeToy", tmp_path: Path) -> None:
    made, rival = toy("somnet+"), toy("elr")
    rival.method.network.load_state_dict(made.method.network.state_dict())
    for each in (made, rival):
        each.trainer(tmp_path / each.config.method).run()
    mine, theirs = made.method.network.state_dict(), rival.method.network.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_clusters_instead_of_a_memory_are_refused(toy: "MakeToy") -> None:
    with pytest.raises(ConfigError, match=r"leave out somnet\.memory\.kmeans"):
        toy("somnet+", **{"somnet.memory.kmeans": True})


def test_targets_move_only_with_a_step_that_is_taken(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method, phase = plus(made), plus(made).plan()[0]
    step = method.step(made.batch_of(phase), phase)
    assert (method.targets.get(torch.arange(10)) == 0).all()
    method.after_step(step.pending)
    assert torch.allclose(method.targets.get(step.pending["rows"]), step.pending["target"], atol=1e-3)


def test_label_score_is_the_mean_of_the_best_region_and_the_moving_average(toy: "MakeToy") -> None:
    made = toy("somnet+")
    method = plus(made)
    method.targets.put(torch.arange(10), torch.tensor([[0.1, 0.2, 0.1]]).repeat(10, 1))
    batch = made.batches(1)[0]
    with torch.no_grad():
        seen = method.eval().inspect(batch)
        somnet = super(SomNetPlus, method).inspect(batch)
    average = torch.tensor([0.25] * 5 + [0.5] * 4 + [0.25])
    assert torch.allclose(seen.label_score, (somnet.label_score + average) / 2, atol=1e-3)
    assert seen.probabilities[0].tolist() == pytest.approx([0.25, 0.5, 0.25], abs=1e-3)
