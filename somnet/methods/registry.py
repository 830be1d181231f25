"""All methods by name. A line each, imported when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from somnet.errors import ConfigError

if TYPE_CHECKING:  # the names alone must not wait for torch
    from somnet.methods.base import Method

METHODS = {
    "admil": "somnet.methods.admil:Admil",
    "attend-groups": "somnet.methods.attend_groups:AttendGroups",
    "confident": "somnet.methods.confident:Confident",
    "curriculumnet": "somnet.methods.curriculumnet:CurriculumNet",
    "divide-mix": "somnet.methods.divide_mix:DivideMix",
    "drae": "somnet.methods.drae:Drae",
    "elr": "somnet.methods.elr:EarlyLearning",
    "mlnt": "somnet.methods.mlnt:Mlnt",
    "mopro": "somnet.methods.mopro:MoPro",
    "pencil": "somnet.methods.pencil:Pencil",
    "plain": "somnet.methods.plain:Plain",
    "plain-roi": "somnet.methods.plain:PlainRoi",
    "sl": "somnet.methods.sl:SymmetricCrossEntropy",
    "somnet": "somnet.methods.somnet:SomNet",
    "somnet+": "somnet.methods.somnet_plus:SomNetPlus",
    "sukhbaatar": "somnet.methods.sukhbaatar:Sukhbaatar",
    "tanaka": "somnet.methods.tanaka:Tanaka",
}


def find_method(name: str) -> "type[Method]":
    """The class of a method."""
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}': choose one of {', '.join(sorted(METHODS))}")
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method] = getattr(import_module(module), attribute)
    return found
