"""The network of a run as a graph in the cache: what torch gives, or torch itself."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from somnet.nn.graphs import start_graph
from somnet.runs import network_graph, predictions
from somnet.runs.network_graph import made_up_images, network_file, open_network
from somnet.runs.prediction import Prediction
from somnet.runs.predictions import predict_files
from somnet.runs.run import Run
from somnet.runs.run_folder import RunFolder
from tests.conftest import Photos


@pytest.fixture
def files(photos: Photos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SOMNET_CACHE", str(tmp_path / "cache"))
    for number in range(5):
        photos.picture(number, number).save(tmp_path / f"{number}.png")
    return [str(tmp_path / f"{number}.png") for number in range(5)]


def by_torch(run: Run, files: list[str]) -> list[Prediction]:
    """Without a graph."""
    return list(run.predict(files, device="cpu", evidence=True))


def near(found: list[Prediction], expected: list[Prediction]) -> bool:
    same = [row.labels for row in found] == [row.labels for row in expected]
    return same and np.allclose([r.probabilities for r in found], [r.probabilities for r in expected], atol=1e-5)


def test_a_graph_gives_what_torch_gives(trained: Path, files: list[str]) -> None:
    run = Run(trained)
    assert open_network(run) is None
    first = list(run.predict(files, device="cpu"))
    assert network_file(run).is_file()
    assert near(first, by_torch(run, files))
    assert list(Run(trained).predict(files, device="cpu", batch_size=2)) == first
    folder, asked = RunFolder(trained), {"device": "cpu", "top": 5, "batch_size": 3, "evidence": False}
    assert list(predict_files(folder, files, **asked)) == first  # type: ignore[arg-type]


def test_a_run_opens_its_graph_once(trained: Path, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[bytes]()

    def noted(graph: bytes) -> object:
        opened.append(graph)
        return start_graph(graph)

    monkeypatch.setattr(network_graph, "start_graph", noted)
    run = Run(trained)
    several = [list(run.predict(file, device="cpu", top=top)) for file in files for top in (1, 3)]
    assert [len(one[0].labels) for one in several[:2]] == [1, 3]
    assert len(opened) == 1


def test_a_gpu_or_a_heat_map_needs_torch(trained: Path, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list(Run(trained).predict(files, device="cpu"))
    asked = list[str]()

    def noted(self: Run, images: list[str], **how: object) -> Iterator[Prediction]:
        asked.append(str(how["device"]))
        return iter(())

    monkeypatch.setattr(Run, "predict", noted)
    folder = RunFolder(trained)
    monkeypatch.setattr(predictions, "GPUS", ("/",))  # which is there
    list(predict_files(folder, files, device="auto", top=1, batch_size=1, evidence=False))
    list(predict_files(folder, files, device="cpu", top=1, batch_size=1, evidence=True))
    monkeypatch.setattr(predictions, "GPUS", ("/no such file",))
    assert len(list(predict_files(folder, files, device="auto", top=1, batch_size=1, evidence=False))) == len(files)
    assert asked == ["auto", "cpu"]


@pytest.mark.parametrize("damage", ["empty", "cut off", "other weights", "no graph", "other classes"])
def test_a_graph_that_is_not_the_networks_is_not_used(trained: Path, files: list[str], damage: str) -> None:
    run = Run(trained)
    expected = list(run.predict(files, device="cpu"))
    file = network_file(run)
    good = file.read_bytes()
    with np.load(file) as content:
        graph, told = content["graph"], content["expected"]
    if damage == "empty":
        file.write_bytes(b"")
    elif damage == "cut off":
        file.write_bytes(good[:-100])
    else:
        graph = np.zeros(100, np.uint8) if damage == "no graph" else graph
        told = told[:, :-1] if damage == "other classes" else told * (1.1 if damage == "other weights" else 1.0)
        with file.open("wb") as stream:
            np.savez(stream, graph=graph, expected=told)
    assert open_network(run) is None
    assert near(list(Run(trained).predict(files, device="cpu")), expected)
    assert open_network(run) is not None  # written again


def test_what_no_graph_can_say_torch_does(trained: Path, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bytes:
        raise RuntimeError("no such operation")

    monkeypatch.setattr("somnet.runs.run.write_graph", refused)
    run = Run(trained)
    assert near(list(run.predict(files, device="cpu")), by_torch(run, files))
    assert not network_file(run).exists()


def test_another_checkpoint_has_another_graph(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = network_file(RunFolder(trained))
    (tmp_path / "last").write_bytes(b"other weights")
    monkeypatch.setattr(network_graph, "LAST", tmp_path / "last")
    assert network_file(RunFolder(trained)) != before


def test_the_check_sees_another_network() -> None:
    images = made_up_images(8)
    assert images.shape == (network_graph.TRIED, 3, 8, 8)
    assert images.std() > 50
    assert np.array_equal(images, made_up_images(8))
    from somnet.nn.engine import write_graph

    class Mean(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.float().mean(dim=(2, 3))

    session = start_graph(write_graph(Mean(), torch.from_numpy(images[:1])))
    expected = images.astype(np.float32).mean(axis=(2, 3))
    assert network_graph.is_near(session, 8, expected)
    assert not network_graph.is_near(session, 8, expected + 0.1)
