"""A frozen trunk in onnxruntime: the same maps as torch's, whatever is in the cache, or torch itself."""

import logging
import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from somnet.config import ModelConfig
from somnet.nn import engine
from somnet.nn.backbones import Network
from somnet.nn.engine import TOLERANCE, Trunk, open_trunk
from somnet.system.files import cache_folder, is_leftover
from tests.children import exit_code, forked

SIDE = 64


def network(name: str = "test_resnet", freeze: str = "trunk", imgsz: int = SIDE) -> Network:
    torch.manual_seed(0)
    config = {"name": name, "freeze": freeze, "imgsz": imgsz, "pretrained": name.startswith("tf_")}
    return Network(ModelConfig.model_validate(config), classes=4)


def pictures(count: int, side: int = SIDE) -> Tensor:
    return torch.randint(256, (count, 3, side, side), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def graphs() -> list[Path]:
    return [file for file in (cache_folder() / "trunks").rglob("*") if file.is_file()]


@pytest.fixture(autouse=True)
def _nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_opened", {})


def opened_anew(model: Network) -> Trunk:
    """As in a new process."""
    engine._opened.clear()
    return open_trunk(model)


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet18", "test_resnet", "mobilenetv3_small_050"])
def test_maps_are_those_of_torch(name: str) -> None:
    model = network(name)
    trunk = open_trunk(model)
    assert "onnxruntime" in trunk.fingerprint
    with torch.no_grad():
        expected = model.prepare(pictures(3))
    assert trunk.maps(pictures(3)).shape == expected.shape
    assert float((trunk.maps(pictures(3)) - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())
    assert float(expected.std()) > 0


def test_a_map_depends_neither_on_its_batch_nor_on_threads() -> None:
    trunk = open_trunk(network("tf_efficientnet_lite0"))
    together = trunk.maps(pictures(5))
    try:
        torch.set_num_threads(3)
        assert torch.equal(trunk.maps(pictures(5)), together)
    finally:
        torch.set_num_threads(1)
    for number, picture in enumerate(pictures(5)):
        assert torch.equal(trunk.maps(picture[None])[0], together[number])


def test_the_graph_is_written_once_and_used_again() -> None:
    model = network()
    maps = open_trunk(model).maps(pictures(2))
    [file] = graphs()
    before = file.stat()
    assert torch.equal(opened_anew(model).maps(pictures(2)), maps)
    assert file.stat().st_ino == before.st_ino
    assert file.stat().st_mtime_ns >= before.st_mtime_ns  # when it was last of use


def test_other_weights_and_sizes_have_other_graphs_and_fingerprints() -> None:
    model = network()
    names = {open_trunk(model).fingerprint, open_trunk(network(imgsz=SIDE - 4)).fingerprint}
    assert network(imgsz=SIDE - 4).input_shape == model.input_shape  # the size alone tells them apart
    with torch.no_grad():
        next(model.trunk.parameters()).view(-1)[0].add_(1)
    names.add(open_trunk(model).fingerprint)
    assert len(names) == 3
    assert {file.stem for file in graphs()} == names


@pytest.mark.parametrize("damage", ["empty", "cut off", "other weights"])
def test_a_damaged_graph_is_written_again(damage: str) -> None:
    model = network()
    maps = open_trunk(model).maps(pictures(2))
    [file] = graphs()
    good = file.read_bytes()
    with torch.no_grad():
        for values in model.trunk.parameters():
            values.mul_(1.1)
    open_trunk(model)
    [other] = set(graphs()) - {file}
    file.write_bytes({"empty": b"", "cut off": good[:-1000], "other weights": other.read_bytes()}[damage])
    assert torch.equal(opened_anew(network()).maps(pictures(2)), maps)
    assert file.read_bytes() == good


def test_the_network_stays_as_it_was() -> None:
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    open_trunk(model)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_cache_that_cannot_be_written_costs_no_more_than_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / "file"))
    assert "onnxruntime" in open_trunk(network()).fingerprint


class Unknown(nn.Module):
    """What no graph can say."""

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = torch.special.bessel_j0(maps)
        return found


class Fickle(nn.Module):
    """What a graph that was written for one image does not do for others."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps * float(maps.abs().sum())


@pytest.mark.parametrize("strange", [Unknown, Fickle])
def test_torch_stands_in_and_a_line_says_so(strange: type[nn.Module], caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    model.trunk = nn.Sequential(model.trunk, strange()).eval()
    with caplog.at_level(logging.WARNING, "somnet"), torch.no_grad():
        first, again = open_trunk(model), open_trunk(model)
        assert torch.equal(first.maps(pictures(2)), model.prepare(pictures(2)))
    assert first.fingerprint == again.fingerprint == model.trunk_fingerprint()
    assert [record.message.partition(",")[0] for record in caplog.records] == ["the frozen trunk stays in torch"]
    assert len(caplog.text.splitlines()) == 1


def test_a_network_that_is_trained_whole_has_no_engine() -> None:
    model = network(freeze="none")
    assert torch.equal(open_trunk(model).maps(pictures(2)), pictures(2))
    assert graphs() == []


def test_a_kill_while_the_graph_is_written_leaves_nothing_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()

    def die() -> None:
        """When all is written but nothing is in its place."""
        monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        open_trunk(model)

    assert exit_code(forked(die)) == -signal.SIGKILL
    assert [is_leftover(file) for file in graphs()] == [True]
    assert "onnxruntime" in open_trunk(model).fingerprint
    assert sorted(is_leftover(file) for file in graphs()) == [False, True]
