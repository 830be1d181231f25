"""Gradients summed over ranks while the backward pass goes on: in a few large pieces, the last layers first."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from somnet.system.ranks import Ranks, named_loss

PIECES = 2  # more would overlap better on a slow network, but each costs a collective


class GradientSums:
    """The mean over the ranks of all dense gradients, in which each rank counts by its share; shares sum to 1.

    All ranks must have gradients of the same parameters.
    """

    def __init__(self, ranks: Ranks, parameters: Iterable[nn.Parameter], pieces: int = PIECES) -> None:
        self.ranks = ranks
        self.pieces = _cut([*parameters][::-1], pieces) if ranks.world > 1 else []
        self.place = {id(parameter): number for number, piece in enumerate(self.pieces) for parameter in piece}
        self.waiting: list[set[int]] = []  # of each piece, the parameters whose gradients are not there yet
        self.sent: list[_Sent] = []
        self.share, self.beside = 0.0, list[Tensor]()
        self.watched: set[int] = set()  # parameters that tell when their gradient is there

    def begin(self, share: float, beside: Sequence[Tensor] = ()) -> None:
        """Before the backward pass; `beside` are other tensors to be averaged with the first gradients."""
        self.share, self.beside, self.sent = share, list(beside), []
        trained = [[parameter for parameter in piece if parameter.requires_grad] for piece in self.pieces]
        for parameter in (one for piece in trained for one in piece if id(one) not in self.watched):
            parameter.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
            self.watched.add(id(parameter))
        self.waiting = [{id(parameter) for parameter in piece} for piece in trained]

    def finish(self) -> None:
        """After it: send what has not gone yet, and put the means in their places."""
        while len(self.sent) < len(self.pieces):
            self._send()
        for sent in self.sent:
            sent.settle()
        self.waiting, self.sent, self.beside = [], [], []

    def _arrived(self, parameter: Tensor) -> None:
        if not self.waiting:  # a backward pass that is no step
            return
        self.waiting[self.place[id(parameter)]].discard(id(parameter))
        while len(self.sent) < len(self.pieces) and not self.waiting[len(self.sent)]:
            self._send()  # in the same order on all ranks

    def _send(self) -> None:
        number = len(self.sent)
        gradients = [parameter.grad for parameter in self.pieces[number]]
        mine = [grad for grad in gradients if grad is not None and not grad.is_sparse]
        self.sent.append(_Sent([*mine, *(self.beside if number == 0 else ())], self.share))


class _Sent:
    """Tensors on their way."""

    def __init__(self, tensors: Sequence[Tensor], share: float) -> None:
        self.tensors = tensors
        if tensors:
            self.flat = torch.cat([tensor.detach().flatten() for tensor in tensors]) * share
            with named_loss():
                self.work = dist.all_reduce(self.flat, async_op=True)

    def settle(self) -> None:
        if not self.tensors:
            return
        with named_loss():
            self.work.wait()
        sizes = [tensor.numel() for tensor in self.tensors]
        for tensor, mean in zip(self.tensors, torch.split(self.flat, sizes), strict=True):
            tensor.detach().copy_(mean.view_as(tensor))


def _cut(parameters: Sequence[nn.Parameter], pieces: int) -> list[list[nn.Parameter]]:
    """In order, in so many pieces of about the same size."""
    whole, seen = sum(parameter.numel() for parameter in parameters), 0
    found: list[list[nn.Parameter]] = [[] for _ in range(pieces)]
    for parameter in parameters:
        found[min(pieces - 1, seen * pieces // max(1, whole))].append(parameter)
        seen += parameter.numel()
    return found
