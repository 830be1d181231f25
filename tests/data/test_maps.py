"""The cache of trunk outputs."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from somnet.data.maps import MapStore

SHAPE = (2, 3, 3)


def keys(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "little") for number in numbers]


def maps(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def store() -> MapStore:
    return MapStore("trunk", SHAPE)


def part(suffix: str) -> Path:
    (file,) = store().folder.glob(f"*{suffix}")
    return file


def test_what_is_kept_can_be_had() -> None:
    kept, values = store(), maps(3)
    kept.add(keys(1, 2, 3), values)
    assert keys(2)[0] in kept
    assert keys(9)[0] not in kept
    assert kept[keys(2)[0]].dtype == torch.float16
    assert torch.allclose(kept[keys(2)[0]].float(), values[1], atol=1e-2)


def test_a_new_store_finds_what_an_old_one_kept() -> None:
    old, first, second = store(), maps(2, seed=1), maps(1, seed=2)
    old.add(keys(1, 2), first)
    old.add(keys(3), second)
    new = store()
    for key, value in zip(keys(1, 2, 3), [*first, *second], strict=True):
        assert torch.allclose(new[key].float(), value, atol=1e-2)


def test_a_map_can_be_changed_without_harm() -> None:
    kept = store()
    kept.add(keys(1), maps(1))
    kept[keys(1)[0]].zero_()
    assert kept[keys(1)[0]].abs().sum() > 0


def test_another_trunk_has_another_store() -> None:
    store().add(keys(1), maps(1))
    assert keys(1)[0] not in MapStore("other", SHAPE)


def test_a_part_without_keys_does_not_count() -> None:
    store().add(keys(1), maps(1))
    part(".keys").unlink()
    kept = store()
    assert keys(1)[0] not in kept
    kept.add(keys(1), maps(1))
    assert keys(1)[0] in store()


def test_keys_without_their_part_do_not_count() -> None:
    store().add(keys(1), maps(1))
    part(".npy").unlink()
    assert keys(1)[0] not in store()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_part_does_not_count(share: float) -> None:
    store().add(keys(1, 2), maps(2))
    data = part(".npy").read_bytes()
    part(".npy").write_bytes(data[: int(share * len(data))])
    kept = store()
    assert keys(1)[0] not in kept
    kept.add(keys(1, 2), maps(2))
    assert torch.allclose(store()[keys(2)[0]].float(), maps(2)[1], atol=1e-2)


def test_a_part_of_garbage_does_not_count() -> None:
    store().add(keys(1), maps(1))
    part(".npy").write_bytes(b"garbage" * 50)
    assert keys(1)[0] not in store()


def test_truncated_keys_do_not_name_other_maps() -> None:
    store().add(keys(1, 2, 3), maps(3))
    part(".keys").write_bytes(b"".join(keys(1, 2, 3))[:20])
    kept = store()
    assert keys(2)[0] not in kept
    assert keys(3)[0] not in kept


def test_maps_of_another_shape_do_not_count() -> None:
    store().add(keys(1), maps(1))
    assert keys(1)[0] not in MapStore("trunk", (2, 4, 4))


def test_a_damaged_part_does_not_hide_a_sound_one() -> None:
    kept = store()
    kept.add(keys(1), maps(1))
    part(".npy").write_bytes(b"garbage")
    kept.add(keys(2), maps(1))
    assert keys(2)[0] in store()
