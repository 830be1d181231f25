"""The memory as a whole: its steps, its projection, and what it converges to."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from somnet.core.grid import geodesic_distance
from somnet.core.losses import total_loss
from somnet.core.memory import SelfOrganizingMemory, exact_ratios, memory_loss, similarity, winner

SIDE, WIDTH, CLASSES = 4, 6, 5


def random_memory(radius: int, seed: int = 0) -> SelfOrganizingMemory:
    torch.manual_seed(seed)
    memory = SelfOrganizingMemory(SIDE, WIDTH, CLASSES, radius)
    memory.d.data = F.normalize(torch.rand(SIDE**2, CLASSES) + 0.05, p=1, dim=1)
    memory.r.data = F.normalize(torch.rand(CLASSES, SIDE**2) + 0.05, p=1, dim=1)
    return memory


def tables(memory: SelfOrganizingMemory) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in memory.named_parameters()}


def dense_loss(start: dict[str, Tensor], x: Tensor, label: Tensor, radius: int) -> Tensor:
    """Eq. 9 over whole matrices, straight from the paper."""
    cosine = F.normalize(x, dim=1) @ F.normalize(start["keys"], dim=1).T  # (B, L)
    slot = cosine.argmax(dim=1)
    slots = torch.arange(SIDE**2)
    geo = geodesic_distance(slot[:, None], slots[None], SIDE)  # (B, L)
    som_key = -(torch.where(geo <= radius, 1 / (1 + geo), 0.0) * cosine).sum()
    y = F.one_hot(label, CLASSES).float()
    z = F.one_hot(slot, SIDE**2).float()
    d_value = -F.cosine_similarity(y, start["d"][slot], dim=1).sum()
    r_value = -F.cosine_similarity(z, start["r"][label], dim=1).sum()
    return som_key + d_value + r_value


@pytest.mark.parametrize("radius", [0, 1, 2])
def test_a_sparse_step_is_the_dense_step(radius: int) -> None:
    memory = random_memory(radius)
    start = {name: value.requires_grad_() for name, value in tables(memory).items()}
    x, label = torch.randn(8, WIDTH), torch.randint(CLASSES, (8,))  # more bags than some slots: rows repeat
    torch.autograd.backward(dense_loss(start, x, label, radius))
    optimizer = torch.optim.SGD(memory.parameters(), lr=0.1)
    torch.autograd.backward(total_loss(memory.losses(x, label, winner(x, memory.keys))))
    assert all(value.grad is not None and value.grad.is_sparse for value in memory.parameters())
    optimizer.step()
    for name, value in memory.named_parameters():
        gradient = start[name].grad
        assert gradient is not None
        assert torch.allclose(value, start[name] - 0.1 * gradient, atol=1e-6), name


@given(side=st.integers(1, 7), radius=st.integers(0, 3), bags=st.integers(1, 20), seed=st.integers(0, 2**31))
def test_a_step_touches_only_what_is_near_the_winners(side: int, radius: int, bags: int, seed: int) -> None:
    torch.manual_seed(seed)
    memory = SelfOrganizingMemory(side, WIDTH, CLASSES, radius)
    x, label = torch.randn(bags, WIDTH), torch.randint(CLASSES, (bags,))
    slot = winner(x, memory.keys)
    geo = geodesic_distance(slot[:, None], torch.arange(side**2)[None], side)  # (B, L)
    near = (geo <= radius).any(dim=0)  # (L,)
    seen = torch.isin(torch.arange(CLASSES), label)  # (C,)
    before = tables(memory)
    optimizer = torch.optim.SGD(memory.parameters(), lr=0.1)
    torch.autograd.backward(total_loss(memory.losses(x, label, slot)))
    optimizer.step()
    memory.project(slot, label)
    for name, touched in (("keys", near), ("d", near), ("r", seen)):
        after = tables(memory)[name]
        assert torch.equal(after[~touched], before[name][~touched]), name  # to the last bit
    assert not torch.equal(memory.keys, before["keys"])


@given(radius=st.integers(0, 3), bags=st.integers(1, 20), seed=st.integers(0, 2**31))
def test_sparse_gradients_are_the_dense_ones_to_the_last_bit(radius: int, bags: int, seed: int) -> None:
    memory = random_memory(radius, seed)
    x, label = torch.randn(bags, WIDTH), torch.randint(CLASSES, (bags,))
    slot = memory.nearest(x)[1][:, 0]
    neighbour_keys = memory.keys[memory.neighbours[slot]]  # (B, K, F) indexing has dense gradients
    losses = memory_loss(x, label, slot, neighbour_keys, memory.eta[slot], memory.d[slot], memory.r[label])
    dense = torch.autograd.grad(total_loss(losses), list(memory.parameters()))
    sparse = torch.autograd.grad(total_loss(memory.losses(x, label, slot)), list(memory.parameters()))
    for ours, theirs in zip(sparse, dense, strict=True):
        assert torch.equal(ours.to_dense(), theirs)


def test_losses_train_the_features_too() -> None:
    memory = random_memory(1)
    x = torch.randn(3, WIDTH, requires_grad=True)
    torch.autograd.backward(total_loss(memory.losses(x, torch.tensor([0, 1, 2]), winner(x, memory.keys))))
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


def test_projection_restores_unit_keys_and_distributions() -> None:
    memory = random_memory(1)
    optimizer = torch.optim.SGD(memory.parameters(), lr=0.5)
    x, label = torch.randn(4, WIDTH), torch.tensor([0, 1, 2, 3])
    slot = winner(x, memory.keys)
    torch.autograd.backward(total_loss(memory.losses(x, label, slot)))
    optimizer.step()
    assert (memory.d < 0).any()  # else the step was too small to prove anything
    memory.project(slot, label)
    assert torch.allclose(memory.keys.norm(dim=1), torch.ones(SIDE**2), atol=1e-5)
    for rows in (memory.d, memory.r):
        assert (rows >= 0).all()
        assert torch.allclose(rows.sum(dim=1), torch.ones(len(rows)), atol=1e-5)


def test_projection_touches_only_rows_of_the_step() -> None:
    memory = random_memory(1)
    memory.keys.data *= 2
    memory.d.data *= 2
    memory.r.data *= 2
    before = tables(memory)
    memory.project(torch.tensor([0]), torch.tensor([2]))  # slot 0: its neighbours are 1 and 4
    changed = {
        name: (value != before[name]).any(dim=1).nonzero().flatten().tolist()
        for name, value in memory.named_parameters()
    }
    assert changed["keys"] == [0, 1, 4]
    assert 0 in changed["d"]
    assert set(changed["d"]) <= {0, 1, 4}
    assert changed["r"] == [2]


def test_projection_of_no_bags_changes_nothing() -> None:
    memory = random_memory(1)
    memory.keys.data *= 3
    before = tables(memory)
    memory.project(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    assert all(torch.equal(value, before[name]) for name, value in memory.named_parameters())


def test_scores_are_those_of_the_winner() -> None:
    memory = random_memory(1)
    x = 7 * memory.keys.detach()[[5, 9]]
    slot, d_score, r_score = memory.scores(x, torch.tensor([3, 1]))
    assert slot.tolist() == [5, 9]
    values = tables(memory)
    assert d_score.tolist() == [float(values["d"][5, 3]), float(values["d"][9, 1])]
    assert r_score.tolist() == [float(values["r"][3, 5]), float(values["r"][1, 9])]


def test_scores_take_any_leading_shape() -> None:
    memory = random_memory(1)
    slot, d_score, r_score = memory.scores(torch.randn(2, 3, WIDTH), torch.zeros(2, 3, dtype=torch.long))
    assert slot.shape == d_score.shape == r_score.shape == (2, 3)


def test_keys_start_as_features() -> None:
    memory = random_memory(1)
    features = torch.randn(40, WIDTH) * 5
    memory.start_from(features, torch.Generator().manual_seed(1))
    match = F.normalize(features, dim=1) @ memory.keys.detach().T  # (40, L)
    assert torch.allclose(match.amax(dim=0), torch.ones(SIDE**2), atol=1e-5)
    assert len(set(match.argmax(dim=0).tolist())) == SIDE**2  # each another image


def test_few_features_fill_all_slots_with_different_unit_keys() -> None:
    memory = random_memory(1)
    features = torch.randn(3, WIDTH)
    memory.start_from(features, torch.Generator().manual_seed(1))
    keys = memory.keys.detach()
    assert torch.allclose(keys.norm(dim=1), torch.ones(SIDE**2), atol=1e-5)
    assert len(torch.unique(keys, dim=0)) == SIDE**2
    nearest = (keys @ F.normalize(features, dim=1).T).amax(dim=1)
    assert (nearest > 0.9).all()
    assert int((nearest > 0.99999).sum()) >= 3  # the originals are among them


def test_start_is_determined_by_the_generator() -> None:
    first, second = random_memory(1, seed=1), random_memory(1, seed=2)
    features = torch.randn(5, WIDTH)
    for memory in (first, second):
        memory.start_from(features, torch.Generator().manual_seed(7))
    assert torch.equal(first.keys, second.keys)


def test_given_clusters_bring_their_exact_ratios() -> None:
    memory = random_memory(1)
    keys = torch.randn(SIDE**2, WIDTH)
    slot, label = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1])
    memory.set_clusters(keys, slot, label)
    assert torch.allclose(memory.keys, F.normalize(keys, dim=1), atol=1e-6)
    assert memory.d[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0, 0], abs=1e-4)
    assert memory.r[1, :3].tolist() == pytest.approx([0.5, 0.5, 0], abs=1e-4)
    assert torch.allclose(memory.d.sum(dim=1), torch.ones(SIDE**2), atol=1e-5)


def gap(values: Tensor, exact: Tensor) -> float:
    return float((values.detach() - exact).abs().mean())


def test_d_and_r_approach_the_exact_ratios() -> None:
    generator = torch.Generator().manual_seed(0)
    memory = random_memory(0)
    memory.d.data.fill_(1 / CLASSES)
    memory.r.data.fill_(1 / SIDE**2)
    memory.keys.data = F.normalize(torch.randn(SIDE**2, 32, generator=generator), dim=1)
    centres = memory.keys.detach().clone()
    # each class prefers some slots over others
    chances = torch.rand(CLASSES, SIDE**2, generator=generator) ** 3
    label = torch.randint(CLASSES, (10_000,), generator=generator)
    slot = torch.multinomial(chances[label], 1, generator=generator).squeeze(1)
    d, r = exact_ratios(slot, label, SIDE**2, CLASSES)
    assert min(gap(memory.d, d), gap(memory.r, r)) > 0.06  # there is a way to go
    optimizer = torch.optim.SGD([memory.d, memory.r], lr=0.01)
    for part in torch.arange(10_000).view(-1, 50):
        optimizer.zero_grad()
        x = centres[slot[part]]
        torch.autograd.backward(total_loss(memory.losses(x, label[part], winner(x, memory.keys))))
        optimizer.step()
        memory.project(slot[part], label[part])
    assert torch.equal(winner(centres[slot], memory.keys), slot)
    assert gap(memory.d, d) < 0.05
    assert gap(memory.r, r) < 0.05


def topographic_error(radius: int) -> float:
    """Share of inputs whose best and second best keys are not neighbours on the grid, after training."""
    side = 6
    torch.manual_seed(0)
    memory = SelfOrganizingMemory(side, 3, 2, radius)
    plane = 2 * torch.rand(4000, 2) - 1
    data = torch.cat([plane, torch.ones(4000, 1)], dim=1)  # cosine sees a square as a patch of the sphere
    memory.start_from(data, torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD([memory.keys], lr=0.5)
    for part in torch.randint(len(data), (400, 16)):
        optimizer.zero_grad()
        slot, label = winner(data[part], memory.keys), torch.zeros(16, dtype=torch.long)
        torch.autograd.backward(total_loss(memory.losses(data[part], label, slot)))
        optimizer.step()
        memory.project(slot, label)
    best, second = similarity(data, memory.keys.detach()).topk(2, dim=1).indices.T
    return float((geodesic_distance(best, second, side) > 1).float().mean())


def test_neighbours_on_the_grid_become_neighbours_in_feature_space() -> None:
    assert topographic_error(radius=2) <= topographic_error(radius=0) / 2
