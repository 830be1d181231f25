"""The cache as a whole, through the command line."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.data.cache import clear_cache, sizes
from somnet.data.checked_tables import write_checked
from somnet.data.maps import MapStore
from somnet.data.proposals import FILES_SCHEMA
from somnet.errors import ConfigError
from somnet.system.files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Outcome

    Cli = Callable[..., Outcome]

OWN = (
    "files/thesis.table",
    "maps/world/europe.npy",
    "maps/world/md5.sums",
    "shards/web-0.tar",
    "shards/a.parquet",
)
CHUNK = 1000 * 200 * 2 + 128 + 1000 * 24  # numbers, numpy's header, keys and checksums


@pytest.fixture
def filled() -> Path:
    """Three chunks of maps, the second the oldest; a table; a file and a link that are not of the cache."""
    for number, age in enumerate((20, 30, 10)):
        store = MapStore(f"trunk{number}", (200,))
        store.add([row.to_bytes(16, "little") for row in range(1000)], torch.ones(1000, 200))
        for file in store.folder.iterdir():
            os.utime(file, (10_000 - age, 10_000 - age))
    write_checked(cache_folder() / "files" / "0123456789abcdef.table", FILES_SCHEMA.empty_table())
    (cache_folder() / "thesis.txt").write_text("mine")
    for name in OWN:  # where SOMNET_CACHE is a folder that had some like ours
        (cache_folder() / name).parent.mkdir(parents=True, exist_ok=True)
        (cache_folder() / name).write_text("mine")
    (cache_folder() / "maps" / "trunk0" / "link").symlink_to(cache_folder() / "thesis.txt")
    return cache_folder()


def test_size(filled: Path, cli: "Cli") -> None:
    assert sizes()["maps"] == (3, 3 * CHUNK)
    done = cli("cache")
    assert done.code == 0
    assert "maps" in done.out
    assert str(filled) in done.out


def test_verify_finds_deletes_and_names_what_is_damaged(filled: Path, cli: "Cli") -> None:
    assert cli("cache", "--verify").code == 0
    array = next((filled / "maps" / "trunk1").glob("*.npy"))
    array.write_bytes(array.read_bytes()[:-1] + b"?")
    (filled / "files" / "0123456789abcdef.table").write_bytes(b"?" * 100)
    done = cli("cache", "--verify")
    assert done.code == 1
    assert "2 damaged entries" in done.out
    assert not array.exists()
    assert cli("cache", "--verify").code == 0
    assert sizes()["maps"] == (2, 2 * CHUNK)


def test_prune_begins_with_what_was_not_used_for_longest(filled: Path, cli: "Cli") -> None:
    assert "MB deleted" in cli("cache", "--prune", 2.5 * CHUNK / 1e9).out
    assert [any((filled / "maps" / f"trunk{n}").glob("*.npy")) for n in range(3)] == [True, False, True]
    store = MapStore("trunk0", (200,))
    assert bytes(16) in store  # of use now
    cli("cache", "--prune", 1.5 * CHUNK / 1e9)
    assert [any((filled / "maps" / f"trunk{n}").glob("*.npy")) for n in range(3)] == [True, False, False]
    assert torch.equal(store[bytes(16)], torch.ones(200, dtype=torch.float16))
    cli("cache", "--prune", 0)
    assert sum(count for count, _ in sizes().values()) == 0
    for name in ("thesis.txt", *OWN):
        assert (filled / name).read_text() == "mine"


def test_a_limit_holds_whenever_a_run_begins(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_cache()
    assert sizes()["maps"][0] == 3
    monkeypatch.setenv("SOMNET_CACHE_GB", str(1.5 * CHUNK / 1e9))
    clear_cache()
    assert sizes()["maps"][0] == 1
    monkeypatch.setenv("SOMNET_CACHE_GB", "much")
    with pytest.raises(ConfigError, match="SOMNET_CACHE_GB=much is not a size"):
        clear_cache()
    assert (filled / "thesis.txt").exists()
