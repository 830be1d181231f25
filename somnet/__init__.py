"""somnet trains image classifiers on noisy web images, and shows which images and which regions are noise."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from somnet.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from somnet.cleaning import Cleaned, clean
    from somnet.config import Config, load_config
    from somnet.errors import SomnetError
    from somnet.exports import export
    from somnet.pipeline import train
    from somnet.run import Evaluation, Prediction, Run

_PLACES = {
    "Cleaned": "somnet.cleaning",
    "Config": "somnet.config",
    "Evaluation": "somnet.run",
    "Prediction": "somnet.run",
    "Run": "somnet.run",
    "SomnetError": "somnet.errors",
    "clean": "somnet.cleaning",
    "export": "somnet.exports",
    "load_config": "somnet.config",
    "train": "somnet.pipeline",
}

__all__ = [
    "Cleaned",
    "Config",
    "Evaluation",
    "Prediction",
    "Run",
    "SomnetError",
    "clean",
    "export",
    "load_config",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `somnet --help` need not wait for torch."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'somnet' has no attribute '{name}'")
