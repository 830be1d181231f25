"""Is this machine ready? Each check says what it found and, if it is not good, what to do."""

import importlib.metadata
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from somnet.errors import OPENCV_FIX, SomnetError
from somnet.system.cores import cores_here
from somnet.system.files import cache_folder

PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "onnxruntime",
    "opencv-contrib-python-headless",
    "pillow",
    "pyarrow",
    "scikit-learn",
)
LEAST_FREE_GB = 5


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; without a needed one nothing works."""

    name: str
    good: bool
    result: str
    fix: str = ""
    needed: bool = True


def checks() -> list[Check]:
    """All checks, in the order they are shown."""
    return [_python(), *map(_package, PACKAGES), _edge_boxes(), _offline_weights(), _gpu(), _disk()]


def _python() -> Check:
    version = platform.python_version_tuple()
    return Check(
        "python", tuple(map(int, version[:2])) >= (3, 11), platform.python_version(), "install Python 3.11 or newer"
    )


def _package(name: str) -> Check:
    try:
        return Check(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "missing", f"pip install {name}")


def _edge_boxes() -> Check:
    try:
        import cv2

        present = hasattr(cv2, "ximgproc") and hasattr(cv2.ximgproc, "createEdgeBoxes")
    except ImportError as error:
        return Check("EdgeBoxes (cv2.ximgproc)", False, str(error), OPENCV_FIX)
    return Check(
        "EdgeBoxes (cv2.ximgproc)", present, "present" if present else "another opencv wheel hides it", OPENCV_FIX
    )


def _offline_weights() -> Check:
    from somnet.nn.weights import OFFLINE_MODEL, offline_weights_file

    try:
        return Check("offline weights", True, f"{OFFLINE_MODEL}: {offline_weights_file().stat().st_size / 1e6:.0f} MB")
    except SomnetError as error:
        return Check("offline weights", False, "missing", error.typed)


def _gpu() -> Check:
    import torch

    cores = cores_here()
    fix = "none needed for --freeze trunk; for --freeze none use a machine with an NVIDIA GPU and its driver"
    if not torch.cuda.is_available():
        return Check("GPU", False, f"none; {cores} CPU cores", fix, needed=False)
    return Check("GPU", True, torch.cuda.get_device_name(0), needed=False)


def _disk() -> Check:
    folder = cache_folder()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / 1e9
    result = f"{free:.0f} GB free for the cache {folder}"
    return Check(
        "disk", free >= LEAST_FREE_GB, result, "free some space, or set SOMNET_CACHE to another disk", needed=False
    )


def gpu_lines(device: str = "cuda") -> Iterator[str]:
    """A table to send back: does the GPU do what the CPU does, and how fast."""
    import torch

    from somnet.config import Config
    from somnet.methods.registry import METHODS
    from somnet.system.compute import choose_device, choose_precision
    from somnet.training.gpu_check import compare_method, measure_speed

    device = choose_device(device)
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    yield f"{name}, torch {torch.__version__}, --precision auto is {choose_precision('auto', device)}"
    yield "| method | phase | losses differ by | waits in a step | MB |"
    yield "|---|---|---:|---:|---:|"
    for method in METHODS:
        for row in compare_method(method, device):
            figures = f"{row.difference:.1e} | {_known(row.waits)} | {_known(row.megabytes)}"
            yield f"| {row.method} | {row.phase} | {figures} |"
    yield ""
    yield "| training steps | images/s | MB |"
    yield "|---|---:|---:|"
    for speed in measure_speed(Config(), device):
        yield f"| {speed.name} | {speed.images_per_second:.0f} | {_known(speed.megabytes)} |"


def _known(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
