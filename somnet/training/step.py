"""One step of the optimiser, whatever the precision, and however many ranks share the batch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from somnet.config import TrainConfig
from somnet.core.losses import total_loss
from somnet.core.types import BagBatch, Losses, Phase
from somnet.methods.base import Method, Observation
from somnet.system.compute import Compute
from somnet.training.optim import gradient_norm, make_optimizer, running_statistics


@dataclass(frozen=True)
class Outcome:
    """What became of a step: the losses of the whole batch, and what all ranks saw if the step was taken."""

    losses: dict[str, float]
    taken: bool
    observed: Observation = field(default_factory=Observation)
    finite: bool = True  # False: its loss or gradient was NaN or infinite


class Stepper:
    """Takes steps. One whose loss or gradient is NaN or infinite changes nothing."""

    def __init__(self, method: Method, config: TrainConfig, compute: Compute) -> None:
        self.method, self.ranks = method, compute.ranks
        self.optimizer = make_optimizer(method, config)
        self.scaler = torch.amp.GradScaler(torch.device(compute.device).type, enabled=config.precision == "fp16")
        method.network.precision = config.precision

    def take(self, batch: BagBatch, phase: Phase, *, taking_part: bool) -> Outcome:
        """Take a step on this rank's share of a batch; a rank without a share comes along, and counts for nothing."""
        statistics = running_statistics(self.method)
        before = [tensor.clone() for tensor in statistics]
        step = self.method.step(batch, phase)
        values, share = self._of_whole_batch(step.losses, self.method.count(batch) if taking_part else 0)
        self.optimizer.zero_grad(set_to_none=True)
        finite = math.isfinite(sum(values.values())) and self._has_gradient(step.losses, share)
        if not finite or not self._optimizer_steps():
            for tensor, old in zip(statistics, before, strict=True):
                tensor.copy_(old)
            return Outcome(values, taken=False, finite=finite)
        self.ranks.average([tensor for tensor in statistics if tensor.is_floating_point()], share)

        def of_all(rows: Tensor) -> Tensor:
            return self.ranks.gather(rows if taking_part else rows[:0])

        self.method.after_step({name: of_all(rows) for name, rows in step.pending.items()})
        return Outcome(values, taken=True, observed=step.observed.of_all(of_all))

    def _has_gradient(self, losses: Losses, share: float) -> bool:
        """Backward on all ranks; whether the gradient is finite. A scaler looks itself."""
        sums = self.method.summed if share else ()  # they count whole, whatever the share of the means
        total = total_loss({name: loss / share if name in sums else loss for name, loss in losses.items()})
        self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
        self.ranks.average_gradients(self._parameters(), share)
        return self.scaler.is_enabled() or math.isfinite(gradient_norm(self.optimizer))

    def _optimizer_steps(self) -> bool:
        """Change the parameters; False where a scaler saw an overflow, left them alone and has lowered its scale."""
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale() >= scale

    def _of_whole_batch(self, losses: Losses, count: int) -> tuple[dict[str, float], float]:
        """The losses of the batch that the ranks share, and the share of this rank's `count` in its means."""
        values = {name: float(loss.detach()) for name, loss in losses.items()}
        if self.ranks.world == 1:
            return values, 1.0
        sums = self.method.summed
        weighted = [value * (1 if name in sums else count) if count else 0.0 for name, value in values.items()]
        counted, *totals = self.ranks.total([count, *weighted])
        both = zip(values, totals, strict=True)
        return {name: total if name in sums else total / counted for name, total in both}, count / counted

    def _parameters(self) -> Iterator[nn.Parameter]:
        yield from (parameter for group in self.optimizer.param_groups for parameter in group["params"])
