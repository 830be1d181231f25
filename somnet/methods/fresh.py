"""For methods that train more than one network, one after the other."""

import copy

from torch import nn

from somnet.nn.backbones import Network


class FreshStart(nn.Module):
    """Remembers the weights that a network starts with, as a part of the state, and gives them back."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.parts = copy.deepcopy(nn.ModuleList([network.tail, network.classifier])).requires_grad_(False)
        self.train(False)

    def train(self, mode: bool = True) -> "FreshStart":
        """Nothing runs here, so nothing is ever in training."""
        return super().train(False)

    def restart(self, network: Network) -> None:
        """Undo all training of a network."""
        for old, module in zip(self.parts, (network.tail, network.classifier), strict=True):
            module.load_state_dict(old.state_dict())
