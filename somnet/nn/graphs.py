"""Networks written as graphs, computed by onnxruntime: here nothing needs torch, which takes seconds to load.

Images go through a graph one by one, each in one thread. So a result does not depend on how many threads there are, nor
on which images were computed together, and nothing is lost: larger batches are no faster.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from somnet.system.parallel import in_threads

INPUT = "pixels"


def start_graph(graph: bytes) -> Any:
    """A session of onnxruntime."""
    import onnxruntime  # here, as most commands do without

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # there is a thread per image instead
    options.log_severity_level = 3  # errors alone
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def run_graph(session: Any, pixels: NDArray[np.uint8], threads: int | None = None) -> NDArray[np.float32]:
    """What a graph makes (I, ...) of images (I, 3, H, W); by default on one thread per core."""

    def one(image: NDArray[np.uint8]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = session.run(None, {INPUT: image[None]})[0][0]
        return found

    return np.stack(list(in_threads(one, pixels, ahead=len(pixels), threads=threads)))
