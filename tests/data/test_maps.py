"""The cache of trunk outputs."""

import contextlib
import errno
import logging
import os
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from somnet.data.dataset import uncached
from somnet.data.maps import MapStore
from somnet.errors import DataError
from tests.children import exit_code, forked

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
    part(".sums").unlink()
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
    part(".sums").write_bytes(part(".sums").read_bytes()[:30])
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


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(("suffix", "place"), [(".npy", -1), (".npy", 150), (".sums", 20)])
def test_one_bit_is_noticed_told_and_computed_again(suffix: str, place: int, caplog: pytest.LogCaptureFixture) -> None:
    store().add(keys(1, 2), maps(2))
    flip(part(suffix), place)
    kept = store()
    with caplog.at_level(logging.WARNING, logger="somnet"):
        assert not all(key in kept for key in keys(1, 2))
    assert "is damaged: its maps are computed again" in caplog.text
    assert list(kept.folder.iterdir()) == []
    kept.add(keys(1, 2), maps(2))
    assert all(key in store() for key in keys(1, 2))


def test_a_damaged_key_does_not_name_another_map() -> None:
    store().add(keys(1, 2), maps(2))
    flip(part(".sums"), 0)
    assert keys(1)[0] not in store()
    assert keys(0)[0] not in store()


def test_a_bit_that_changes_within_a_run_ends_it_instead_of_being_learnt() -> None:
    store().add(keys(1), maps(1))
    kept = store()
    assert keys(1)[0] in kept
    with part(".npy").open("r+b") as file:  # in place: the store has it open
        file.seek(-1, 2)
        file.write(b"?")
    with pytest.raises(DataError, match="was damaged while it was read: continue with --resume"):
        kept[keys(1)[0]]
    assert keys(1)[0] not in store()


def test_a_damaged_part_does_not_hide_the_same_map_in_another() -> None:
    kept = store()
    kept.add(keys(1, 2), maps(2))
    first = part(".npy")
    kept.add(keys(1), maps(1))
    flip(first, -1)  # of the second map
    again = store()
    assert keys(2)[0] not in again
    assert keys(1)[0] in again
    assert torch.equal(again[keys(1)[0]], maps(1)[0].to(torch.float16))


def test_all_maps_of_a_store_can_be_checked() -> None:
    kept = store()
    kept.add(keys(1, 2), maps(2))
    assert MapStore("trunk").verify() == []
    flip(part(".npy"), -1)
    assert len(MapStore("trunk").verify()) == 1
    assert MapStore("trunk").verify() == []


def test_maps_that_were_found_in_a_damaged_part_are_missing_too() -> None:
    store().add(keys(1, 2, 3), maps(3))
    content = bytearray(part(".npy").read_bytes())
    content[-1] ^= 1  # of the third
    part(".npy").write_bytes(content)
    assert uncached([pa.array(keys(1, 2, 3))], store()).tolist() == [[0, 0], [1, 0], [2, 0]]


def test_files_that_cannot_be_opened_are_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Too many open files, or another user's: what is in them is as good as it was."""
    store().add(keys(1, 2), maps(2))
    folder = store().folder
    files = sorted(folder.iterdir())

    def refuse(number: int) -> None:
        def load(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(np, "load", load)

    refuse(errno.EACCES)
    assert keys(1)[0] not in store()
    assert "cannot be read (Permission denied): its maps are computed again" in caplog.text
    refuse(errno.EMFILE)
    with pytest.raises(DataError, match=r"Too many open files: raise the limit, as with ulimit -n"):
        store()
    assert sorted(folder.iterdir()) == files


def test_more_files_than_a_shell_allows() -> None:
    def keep_many() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = set(map(int, os.listdir("/proc/self/fd")))
        free = [number for number in range(len(taken) + 20) if number not in taken]  # the next files get these numbers
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[19] + 1, hard))
        with contextlib.ExitStack() as files, pytest.raises(OSError, match="Too many open files"):  # as a store would
            _ = [files.enter_context(open(os.devnull)) for _ in range(60)]
        kept = store()
        for number in range(60):  # a chunk each
            kept.add(keys(number), maps(1))
        assert all(key in store() for key in keys(0, 30, 59))

    assert exit_code(forked(keep_many)) == 0


def test_a_map_that_is_gone_is_named() -> None:
    with pytest.raises(DataError, match="has lost a map that it was given: continue with --resume"):
        store()[keys(1)[0]]
