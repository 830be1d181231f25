"""One step of the optimiser, whatever the precision, and however many ranks share the batch."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from somnet.config import TrainConfig
from somnet.core.losses import total_loss
from somnet.core.types import BagBatch, Losses, Phase
from somnet.errors import RunError
from somnet.methods.base import Method, Observation, Step
from somnet.nn.backbones import compile_networks, set_precision
from somnet.nn.batch_statistics import WholeBatch
from somnet.system.compute import Compute, choose_precision
from somnet.system.gradient_sums import PIECES, GradientSums
from somnet.system.transfer import fetch, send
from somnet.training.optim import copy_all, gradient_norm, make_optimizer, running_statistics

LOSS, NORM, SEEN, PENDING = "loss of ", "norm", "seen ", "pending "  # names of what a step says, or how they begin
SHARE, ROWS, VALUES = "share", "rows of ", "values of "
COMPILERS = ("torch._dynamo", "torch._inductor")  # whose errors tell that a network cannot be compiled


@dataclass(frozen=True)
class Outcome:
    """What became of a step: the losses of the whole batch, and what all ranks saw if the step was taken."""

    losses: dict[str, float]
    taken: bool
    observed: Observation = field(default_factory=Observation)
    finite: bool = True  # False: its loss or gradient was NaN or infinite
    signal: int = 0  # that some rank was sent


class NoRoom(RunError):
    """A device had no room for a step, which has changed nothing."""

    def __init__(self, images: int, error: Exception) -> None:
        said = str(error).partition("Tried to")[0].strip(" .") or "out of memory"
        super().__init__(
            f"a step on {images} images does not fit on the device ({said}): start over with a smaller --batch-size "
            "and --overwrite, or, if others were using the device, continue with --resume"
        )


class Stepper:
    """Takes steps. One whose loss or gradient is NaN or infinite changes nothing.

    Ranks meet up to four times in a step: for gradients, which travel in two pieces while the backward pass goes on,
    for how much each has to say, and for all of that in one piece.
    """

    def __init__(self, method: Method, config: TrainConfig, compute: Compute) -> None:
        self.method, self.ranks, self.sync_bn = method, compute.ranks, config.sync_bn
        self.optimizer = make_optimizer(method, config)
        precision = choose_precision(config.precision, compute.device)
        self.scaler = torch.amp.GradScaler(torch.device(compute.device).type, enabled=precision == "fp16")
        set_precision(method, precision)
        if config.compile:
            compile_networks(method)
        pieces = PIECES if method.counts_bags() else PIECES - 1  # as it has met already to count
        self.sums = GradientSums(self.ranks, self._parameters(), pieces)

    def take(
        self, batch: BagBatch, phase: Phase, *, taking_part: bool, signal: Callable[[], int] = lambda: 0
    ) -> Outcome:
        """Take a step on this rank's share of a batch; a rank without a share comes along, and counts for nothing.

        A GPU is waited for once, when all is said that a step has to say.
        """
        statistics = running_statistics(self.method, phase)
        before = [torch.empty_like(tensor) for tensor in statistics]
        copy_all(before, statistics)
        share = self._share(batch, taking_part=taking_part)
        self.optimizer.zero_grad(set_to_none=True)
        try:
            with self._normalising(share) if statistics else nullcontext():
                step = self.method.step(batch, phase)
            self._backward(step.losses, share, () if self.sync_bn else statistics)
            told, noted = self._told(step, share, taking_part=taking_part, signal=signal)
        except torch.OutOfMemoryError as error:
            copy_all(statistics, before)
            raise NoRoom(len(batch.images), error) from error
        except Exception as error:
            if not type(error).__module__.startswith(COMPILERS):
                raise
            what = str(error).strip().partition("\n")[0]
            raise RunError(f"torch cannot compile the network here ({what}): leave out --compile") from error
        values = {name: self._of_whole_batch(name, told) for name in step.losses}
        has_loss, has_gradient = math.isfinite(sum(values.values())), math.isfinite(float(told[NORM]))
        taken = has_loss and has_gradient
        if taken:
            self.scaler.step(self.optimizer)
        self.scaler.update()  # lowers its scale after an overflow
        if not taken:
            copy_all(statistics, before)
            finite = has_loss and (has_gradient or self.scaler.is_enabled())
            return Outcome(values, taken=False, finite=finite, signal=noted)
        self.method.after_step({name: told[PENDING + name] for name in step.pending})
        seen = {name: told[SEEN + name] for name in step.observed.tensors()}
        return Outcome(values, taken=True, observed=step.observed.with_tensors(seen), signal=noted)

    def _told(
        self, step: Step, share: float, *, taking_part: bool, signal: Callable[[], int]
    ) -> tuple[dict[str, Tensor], int]:
        """All that is asked of a step, of all ranks, in main memory; and the signal that some rank was sent."""
        device = next(iter(step.losses.values())).device
        said = {LOSS + name: loss.detach().reshape(1) for name, loss in step.losses.items()}
        said[SHARE] = torch.tensor([share], dtype=torch.float64)
        rows = None if taking_part else 0
        said |= {SEEN + name: tensor[:rows] for name, tensor in step.observed.tensors().items()}
        said |= {PENDING + name: tensor[:rows] for name, tensor in step.pending.items()}
        if self.ranks.world == 1:
            self.scaler.unscale_(self.optimizer)
            return fetch(said | {NORM: gradient_norm(self.optimizer)}), signal()
        sparse = self._sparse()
        for number, parameter in sparse.items():
            assert parameter.grad is not None
            said[f"{ROWS}{number}"] = parameter.grad._indices()[0]
            said[f"{VALUES}{number}"] = parameter.grad._values() * share
        told, noted = self.ranks.gather_all({name: send(value, device) for name, value in said.items()}, signal())
        for number, parameter in sparse.items():
            places, values = told.pop(f"{ROWS}{number}"), told.pop(f"{VALUES}{number}")
            parameter.grad = torch.sparse_coo_tensor(places[None], values, parameter.shape, check_invariants=False)
        self.sums.finish()
        self.scaler.unscale_(self.optimizer)
        return fetch(told | {NORM: gradient_norm(self.optimizer)}), noted

    def _sparse(self) -> dict[int, nn.Parameter]:
        """The parameters that a step changes in a few rows alone; those of all ranks are brought together."""
        numbered = enumerate(self._parameters())
        return {number: one for number, one in numbered if one.grad is not None and one.grad.is_sparse}

    def _backward(self, losses: Losses, share: float, statistics: Sequence[Tensor]) -> None:
        """Gradients of the whole batch, which are on their way between the ranks when this ends."""
        sums = self.method.summed if share else ()  # they count whole, whatever the share of the means
        total = total_loss({name: loss / share if name in sums else loss for name, loss in losses.items()})
        self.sums.begin(share, [tensor for tensor in statistics if tensor.is_floating_point()])
        self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]

    def _normalising(self, share: float) -> AbstractContextManager[object]:
        """Batch normalisation by the images of all ranks, unless each is to take its own."""
        return WholeBatch(self.ranks, share) if self.ranks.world > 1 and self.sync_bn else nullcontext()

    def _share(self, batch: BagBatch, *, taking_part: bool) -> float:
        """Of this rank in the means over the batch."""
        if self.ranks.world == 1:
            return 1.0
        if self.method.counts_bags():
            return len(batch.label) / batch.whole if taking_part else 0.0
        count = self.method.count(batch.in_memory) if taking_part else 0
        return count / self.ranks.total([count])[0]

    def _of_whole_batch(self, name: str, told: Mapping[str, Tensor]) -> float:
        """A loss of the batch that the ranks share."""
        shares = told[SHARE].tolist()
        weights = [float(bool(share)) for share in shares] if name in self.method.summed else shares
        pairs = zip(told[LOSS + name].tolist(), weights, strict=True)
        return float(sum(value * weight for value, weight in pairs if weight))

    def _parameters(self) -> Iterator[nn.Parameter]:
        yield from (parameter for group in self.optimizer.param_groups for parameter in group["params"])
