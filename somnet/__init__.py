"""somnet trains image classifiers on noisy web images, and shows which images and which regions are noise."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from somnet.system.cores import share_the_machine
from somnet.system.progress import show_log
from somnet.system.version import VERSION

share_the_machine()  # here, as it has to come before torch

__version__ = VERSION

if TYPE_CHECKING:
    from somnet.cleaning.clean import Cleaned, CleaningRules, clean
    from somnet.config import Config, load_config
    from somnet.errors import SomnetError
    from somnet.exports.network import export
    from somnet.runs.prediction import Prediction
    from somnet.runs.run import Evaluation
    from somnet.training.finished_run import Run
    from somnet.training.train import train

_PLACES = {
    "Cleaned": "somnet.cleaning.clean",
    "CleaningRules": "somnet.cleaning.clean",
    "Config": "somnet.config",
    "Evaluation": "somnet.runs.run",
    "Prediction": "somnet.runs.prediction",
    "Run": "somnet.training.finished_run",
    "SomnetError": "somnet.errors",
    "clean": "somnet.cleaning.clean",
    "export": "somnet.exports.network",
    "load_config": "somnet.config",
    "train": "somnet.training.train",
}

__all__ = [
    "Cleaned",
    "CleaningRules",
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
        show_log()
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'somnet' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What completion offers: the names that are promised."""
    return sorted(["__version__", *__all__])
