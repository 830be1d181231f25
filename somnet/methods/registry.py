"""All methods by name. A line each, imported when asked for."""

from importlib import import_module

from somnet.errors import ConfigError
from somnet.methods.base import Method

METHODS = {
    "elr": "somnet.methods.elr:EarlyLearning",
    "plain": "somnet.methods.plain:Plain",
    "plain-roi": "somnet.methods.plain:PlainRoi",
    "sl": "somnet.methods.sl:SymmetricCrossEntropy",
    "somnet": "somnet.methods.somnet:SomNet",
}


def find_method(name: str) -> type[Method]:
    """The class of a method."""
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}': choose one of {', '.join(sorted(METHODS))}")
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(import_module(module), attribute)
    return found
