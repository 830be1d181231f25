"""One step of the optimiser, whatever the precision, and however many ranks share the batch."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from somnet.config import TrainConfig
from somnet.core.losses import total_loss
from somnet.core.types import BagBatch, Losses, Phase
from somnet.errors import RunError
from somnet.methods.base import Method, Observation, Step
from somnet.nn.backbones import set_precision
from somnet.nn.batch_statistics import WholeBatch
from somnet.system.compute import Compute, choose_precision
from somnet.system.transfer import fetch
from somnet.training.optim import copy_all, gradient_norm, make_optimizer, running_statistics

LOSS, NORM, SEEN, PENDING = "loss of ", "norm", "seen ", "pending "  # names of what a step says, or how they begin


@dataclass(frozen=True)
class Outcome:
    """What became of a step: the losses of the whole batch, and what all ranks saw if the step was taken."""

    losses: dict[str, float]
    taken: bool
    observed: Observation = field(default_factory=Observation)
    finite: bool = True  # False: its loss or gradient was NaN or infinite


class NoRoom(RunError):
    """A device had no room for a step, which has changed nothing."""

    def __init__(self, images: int, error: Exception) -> None:
        said = str(error).partition("Tried to")[0].strip(" .") or "out of memory"
        super().__init__(
            f"a step on {images} images does not fit on the device ({said}): start over with a smaller --batch-size "
            "and --overwrite, or, if others were using the device, continue with --resume"
        )


class Stepper:
    """Takes steps. One whose loss or gradient is NaN or infinite changes nothing."""

    def __init__(self, method: Method, config: TrainConfig, compute: Compute) -> None:
        self.method, self.ranks = method, compute.ranks
        self.optimizer = make_optimizer(method, config)
        precision = choose_precision(config.precision, compute.device)
        self.scaler = torch.amp.GradScaler(torch.device(compute.device).type, enabled=precision == "fp16")
        set_precision(method, precision)

    def take(self, batch: BagBatch, phase: Phase, *, taking_part: bool) -> Outcome:
        """Take a step on this rank's share of a batch; a rank without a share comes along, and counts for nothing.

        A GPU is waited for once, when all is said that a step has to say.
        """
        statistics = running_statistics(self.method, phase)
        before = [torch.empty_like(tensor) for tensor in statistics]
        copy_all(before, statistics)
        share = self._share(batch, taking_part=taking_part)
        self.optimizer.zero_grad(set_to_none=True)
        together = WholeBatch(self.ranks, share) if self.ranks.world > 1 and statistics else nullcontext()
        try:
            with together:
                step = self.method.step(batch, phase)
            self._backward(step.losses, share)
            told = self._told(step)
        except torch.OutOfMemoryError as error:
            copy_all(statistics, before)
            raise NoRoom(len(batch.images), error) from error
        values = self._of_whole_batch({name: float(told[LOSS + name]) for name in step.losses}, share)
        has_loss, has_gradient = math.isfinite(sum(values.values())), math.isfinite(float(told[NORM]))
        taken = has_loss and has_gradient
        if taken:
            self.scaler.step(self.optimizer)
        self.scaler.update()  # lowers its scale after an overflow
        if not taken:
            copy_all(statistics, before)
            return Outcome(values, taken=False, finite=has_loss and (has_gradient or self.scaler.is_enabled()))
        self.ranks.average([tensor for tensor in statistics if tensor.is_floating_point()], share)
        seen, pending = (
            {name: self.ranks.gather(told[of + name][: None if taking_part else 0]) for name in names}
            for of, names in ((SEEN, step.observed.tensors()), (PENDING, step.pending))
        )
        self.method.after_step(pending)
        return Outcome(values, taken=True, observed=step.observed.with_tensors(seen))

    def _told(self, step: Step) -> dict[str, Tensor]:
        """All that is asked of a step, in main memory."""
        said = {NORM: gradient_norm(self.optimizer)}
        said |= {LOSS + name: loss for name, loss in step.losses.items()}
        said |= {SEEN + name: tensor for name, tensor in step.observed.tensors().items()}
        return fetch(said | {PENDING + name: tensor for name, tensor in step.pending.items()})

    def _backward(self, losses: Losses, share: float) -> None:
        """Gradients of the whole batch, on all ranks."""
        sums = self.method.summed if share else ()  # they count whole, whatever the share of the means
        total = total_loss({name: loss / share if name in sums else loss for name, loss in losses.items()})
        self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
        self.ranks.average_gradients(self._parameters(), share)
        self.scaler.unscale_(self.optimizer)

    def _share(self, batch: BagBatch, *, taking_part: bool) -> float:
        """Of this rank in the means over the batch."""
        if self.ranks.world == 1:
            return 1.0
        count = self.method.count(batch.in_memory) if taking_part else 0
        return count / self.ranks.total([count])[0]

    def _of_whole_batch(self, losses: dict[str, float], share: float) -> dict[str, float]:
        """The losses of the batch that the ranks share."""
        if self.ranks.world == 1:
            return losses
        sums = self.method.summed
        mine = [value * (1 if name in sums else share) if share else 0.0 for name, value in losses.items()]
        return dict(zip(losses, self.ranks.total(mine), strict=True))

    def _parameters(self) -> Iterator[nn.Parameter]:
        yield from (parameter for group in self.optimizer.param_groups for parameter in group["params"])
