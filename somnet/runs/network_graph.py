"""The trained network of a run as one graph for onnxruntime: predictions that begin at once, without torch.

The first prediction on a CPU writes it into the cache, by the content of the checkpoint, together with what torch makes
of some made-up images. Whoever opens it tries it on them first; one that gives something else is written again.
"""

import hashlib
import io
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from somnet.nn.graphs import run_graph, start_graph
from somnet.runs.prediction import Logits
from somnet.runs.run_folder import RunFolder
from somnet.system.files import atomic_path, cache_folder, touch
from somnet.system.folders import LAST

GRAPH = 1  # raise it when the way that a graph is written changes, so that older ones are left behind
TRIED = 3  # made-up images that torch has seen too
TOLERANCE = 1e-4  # of the largest logit, between torch and the engine


def open_network(run: RunFolder) -> Logits | None:
    """The network of a run, from the cache; None where it is not there, or not to be trusted."""
    try:
        file = network_file(run)
        with np.load(file, allow_pickle=False) as content:
            session, expected = start_graph(content["graph"].tobytes()), content["expected"]
        touch(file)
        if expected.shape != (TRIED, len(run.classes)) or not is_near(session, run.config.model.imgsz, expected):
            return None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    except Exception as error:  # an engine has its own, of no common kind
        if type(error).__module__.partition(".")[0] != "onnxruntime":
            raise
        return None
    return partial(run_graph, session)


def keep_network(run: RunFolder, graph: bytes, expected: NDArray[np.float32]) -> None:
    """Put a graph into the cache, with the logits (TRIED, C) that torch has for the made-up images."""
    stream = io.BytesIO()
    np.savez(stream, graph=np.frombuffer(graph, np.uint8), expected=expected)
    with atomic_path(network_file(run)) as temporary:
        temporary.write_bytes(stream.getvalue())


def made_up_images(side: int) -> NDArray[np.uint8]:
    """Images (TRIED, 3, side, side) to try a graph on."""
    return np.random.default_rng(0).integers(0, 256, (TRIED, 3, side, side), np.uint8)


def is_near(session: Any, side: int, expected: NDArray[np.float32]) -> bool:
    """Whether a graph gives what torch gives."""
    found = run_graph(session, made_up_images(side))
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max())


def network_file(run: RunFolder) -> Path:
    """Where the graph of a run is kept: by all that it is made from."""
    digest = hashlib.sha256(repr((run.config.method, run.config.model, run.classes)).encode())
    with (run.path / LAST).open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return cache_folder() / "networks" / f"{digest.hexdigest()[:16]}-onnxruntime-{version('onnxruntime')}-{GRAPH}.npz"
