"""A frozen trunk in onnxruntime, which computes it up to 2.5 times as fast on a CPU as torch does.

The trunk is written as a graph once and kept in the cache. Whenever it is opened it is tried beside torch: a graph that
gives something else is written again, and if that does not help torch computes the maps, and a line says so.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from somnet.errors import SomnetError
from somnet.nn.backbones import Network
from somnet.nn.graphs import INPUT, run_graph, start_graph
from somnet.system.files import atomic_path, cache_folder, touch

log = logging.getLogger("somnet")

GRAPH = 1  # raise it when the way that a trunk is written changes, so that older graphs are left behind
TRIED = 3  # images that torch computes too before a graph is used
TOLERANCE = 1e-4  # of the largest value, between torch and the engine; 3e-6 is usual


@dataclass(frozen=True)
class Trunk:
    """A frozen trunk, ready to compute."""

    fingerprint: str  # of its outputs, to the last bit: weights, size of the input, and who computes them
    maps: Callable[[Tensor], Tensor]  # uint8 pixels (I, 3, H, W) to the inputs of the tail (I, ...)


_opened: dict[str, Any] = {}  # the session of the last trunk by its name, or None where there is none to trust


def open_trunk(network: Network) -> Trunk:
    """The trunk of a network: in onnxruntime if it is frozen and on the CPU, else in torch."""
    weights = network.trunk_fingerprint()
    if network.frozen_trunk and network.mean.device.type == "cpu":
        import onnxruntime  # here, as most commands do without

        name = f"{weights}-torch-{torch.__version__}-onnxruntime-{onnxruntime.__version__}-{GRAPH}"
        if name not in _opened:
            _opened.clear()
            _opened[name] = _session(network, name)
        if (session := _opened[name]) is not None:
            return Trunk(name, partial(_maps, session))
    return Trunk(weights, network.prepare)


def _maps(session: Any, pixels: Tensor) -> Tensor:
    """Maps (I, ...) of images (I, 3, H, W), on as many threads as torch has."""
    return torch.from_numpy(run_graph(session, pixels.numpy(), torch.get_num_threads()))


@torch.no_grad()
def _session(network: Network, name: str) -> Any:
    """The trunk in onnxruntime: from the cache, else written now; None, and a warning, if it is not torch's."""
    side = network.imgsz
    pixels = torch.randint(256, (TRIED, 3, side, side), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    expected = network.prepare(pixels)
    file = cache_folder() / "trunks" / f"{name}.onnx"
    problem = ""
    for graph in (file.read_bytes, partial(_written, network, pixels[:1], file)):
        try:
            session = start_graph(graph())
            difference = float((_maps(session, pixels) - expected).abs().max() / expected.abs().max())
        except FileNotFoundError:
            continue
        except Exception as error:  # exporters and engines raise all kinds, and torch can always do it
            problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            continue
        if difference <= TOLERANCE:
            touch(file)
            return session
        problem = f"what it computes is {difference:.1g} away"
    log.warning("the frozen trunk stays in torch, which is slower, as onnxruntime cannot do it (%s)", problem)
    return None


def write_graph(module: nn.Module, pixels: Tensor) -> bytes:
    """The graph of a module for inputs such as these."""
    stream: Any = io.BytesIO()  # of which torch's types do not tell that it may be given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter, which it recommends, takes ten times as long
        torch.onnx.export(module, (pixels,), stream, input_names=[INPUT], dynamo=False)
    graph: bytes = stream.getvalue()
    return graph


class _FromPixels(nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.network.prepare(pixels)


def _written(network: Network, pixels: Tensor, file: Path) -> bytes:
    """The graph of a trunk for inputs such as these, kept in a file of the cache if that can be written."""
    training = network.training
    graph = write_graph(_FromPixels(network).eval(), pixels)
    network.train(training)
    with contextlib.suppress(SomnetError), atomic_path(file) as temporary:
        temporary.write_bytes(graph)
    return graph
