"""The training loop: the only one, and the only backward()."""

import contextlib
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from somnet.config import Config, mistakes
from somnet.core.losses import total_loss
from somnet.core.types import Bag, Losses, Phase
from somnet.data.bags import BagBatches, Boxes, DrawnInputs, Inputs, count_bags, draw_bags, each_image_once, load
from somnet.errors import RunError, SomnetError, TrainingStopped
from somnet.methods.base import Method
from somnet.runs.checkpoint import LAST, load_checkpoint, restore_method, save_checkpoint
from somnet.system.files import write_text
from somnet.system.progress import track
from somnet.system.ranks import ALONE, Ranks
from somnet.system.signals import StopFlag, deferred_signals, stopping_signals
from somnet.training.optim import (
    enter_phase,
    gradient_norm,
    learning_rates,
    make_optimizer,
    momentum_tensors,
    restore_momentum,
    running_statistics,
    set_rates,
)
from somnet.training.watch import Watch

log = logging.getLogger("somnet")

COUNT = "steps"  # beside the sums of the losses: how many steps they are of
MOST_BAD_STEPS = 3  # losses in a row that are no numbers before the run gives up


Place = Annotated[int, Field(ge=0)]


@dataclass
class Position:
    """Where the run stands, and what it has logged. All randomness follows from the seed and this place."""

    phase: Place = 0
    epoch: Place = 0
    step: Place = 0
    seconds: float = 0.0
    bad_steps: Place = 0
    sums: dict[str, float] = field(default_factory=dict)  # of the losses in this epoch
    history: list[dict[str, Any]] = field(default_factory=list)


_POSITION = TypeAdapter(Position)


class Trainer:
    """Trains a method on the images of a training set, and leaves checkpoints in the run folder."""

    def __init__(
        self,
        method: Method,
        config: Config,
        labels: NDArray[np.int64],
        inputs: Inputs,
        boxes: Boxes,
        out: Path,
        *,
        device: str = "cpu",
        workers: int = 0,
        evaluate: Callable[[], float | None] = lambda: None,
        look_again: Callable[[NDArray[np.float32]], Inputs] | None = None,
        groups: NDArray[np.int64] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.method, self.config, self.labels, self.inputs, self.boxes = method, config, labels, inputs, boxes
        self.out, self.device, self.workers, self.evaluate = out, device, workers, evaluate
        self.look_again = look_again  # inputs that show only a part (n, 4) of each image
        self.groups = groups  # (n,) of duplicates, which never share a bag
        self.ranks = ranks  # the processes that share each batch
        self.phase_inputs: Inputs = inputs
        self.plan = method.plan()
        self.optimizer = make_optimizer(method, config.train)
        self.scaler = torch.amp.GradScaler(torch.device(device).type, enabled=config.train.precision == "fp16")
        method.network.precision = config.train.precision
        self.at = Position()
        self.watch = Watch(len(labels))
        self.saved_at = time.monotonic()
        self.earlier_seconds = 0.0  # of training before this session

    def run(self, resume: bool = False) -> Position:
        """Train from the start or from the last checkpoint to the end of the plan."""
        tensors = self._load() if resume and (self.out / LAST).exists() else None
        expected = [phase.epochs * self._steps(phase) for phase in self.plan]
        with deferred_signals() as stop, self._told_by_others(stop), track("training", sum(expected)) as advance:
            advance(self._steps_done())
            while self.at.phase < len(self.plan):
                self._check(stop)
                phase = self.plan[self.at.phase]
                self._enter(phase, tensors)
                tensors = None
                while self.at.epoch < phase.epochs:
                    self._epoch(phase, stop, advance)
                self._check(stop)
                self._leave(phase)
                advance(expected[self.at.phase] - phase.epochs * self._steps(phase))  # a phase may leave out images
                self.at.phase, self.at.epoch = self.at.phase + 1, 0
                self._save()
            self._check(stop)
        return self.at

    def _check(self, stop: StopFlag) -> None:
        """Stop if a signal came to any rank: all of them stop at the same place."""
        stop.signal_number = self.ranks.largest(stop.signal_number or 0) or None
        stop.check()

    @contextlib.contextmanager
    def _told_by_others(self, stop: StopFlag) -> Iterator[None]:
        """A rank that obeys a signal a moment earlier is missed by this one: the signal is the reason to tell."""
        try:
            yield
        except RunError:
            stop.check("what is done is kept")
            raise

    @stopping_signals()  # the place is saved, so nothing is lost however long this takes
    def _enter(self, phase: Phase, resumed: dict[str, Tensor] | None) -> None:
        enter_phase(self.optimizer, phase)
        if phase.epochs == 0:
            return
        if phase.fresh and not self._inside():
            self.optimizer.state.clear()
        if self.at.phase and self.plan[self.at.phase - 1].name != phase.name and not self._inside():
            self.watch.forget_scores()
        generator = torch.Generator().manual_seed(self._seed())
        self.method.eval()
        with torch.no_grad():
            self.method.prepare(phase, self._bag_pass, generator)
        self.ranks.follow_first(self.method.state_dict().values())
        if resumed is not None and self._inside():  # what prepare() started anew had moved on
            self._restore(resumed)
        views = self.method.views(phase)
        if views is None or self.look_again is None:
            self.phase_inputs = self.inputs
        else:
            self.phase_inputs = DrawnInputs([self.look_again(views[:, part]) for part in range(views.shape[1])])

    @stopping_signals()
    def _leave(self, phase: Phase) -> None:
        if phase.epochs == 0:
            return
        self.method.eval()
        with torch.no_grad():
            self.method.leave(phase, self._bag_pass)
        self.ranks.follow_first(self.method.state_dict().values())

    def _inside(self) -> bool:
        """Whether the phase has begun."""
        return bool(self.at.epoch or self.at.step)

    def _epoch(self, phase: Phase, stop: StopFlag, advance: Callable[..., None]) -> None:
        began = time.monotonic() - self.at.seconds
        self.method.train()
        rows = self._rows(phase)
        bags = draw_bags(self.labels, phase.images_per_bag, np.random.default_rng(self._seed()), rows, self.groups)
        boxes = None if phase.needs_images else self.boxes
        whose = (self.ranks.rank, self.ranks.world)
        batches = BagBatches(bags, self._batch_bags(phase), self.phase_inputs, boxes, self._seed(), *whose)
        workers = self.workers if phase.needs_images else 0
        for bag in load(batches, workers, skip=self.at.step):
            progress = (self.at.epoch + self.at.step / len(batches)) / phase.epochs
            losses = self._step(bag.to(self.device), phase, progress, taking_part=bool(batches.share(self.at.step)))
            for name, loss in {**losses, COUNT: float(bool(losses))}.items():
                self.at.sums[name] = self.at.sums.get(name, 0.0) + loss
            self.at.step += 1
            self.at.seconds = time.monotonic() - began
            advance(1, note=f"{phase.name} " + " ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))
            due = time.monotonic() - self.saved_at > self.config.train.save_minutes * 60
            stop.signal_number = self.ranks.largest(stop.signal_number or 0) or None
            if stop.signal_number is not None or due:
                self._save()
                stop.check()
        self._close_epoch(phase, len(batches))

    def _step(self, bag: Bag, phase: Phase, progress: float, *, taking_part: bool) -> dict[str, float]:
        set_rates(self.optimizer, learning_rates(phase, progress))
        torch.manual_seed(self._seed(self.at.step) + self.ranks.rank)
        self.method.sighting = None
        statistics = running_statistics(self.method)
        before = [tensor.clone() for tensor in statistics]
        losses: Losses = self.method.step(bag, phase)
        values, share = self._of_whole_batch(losses, self.method.count(bag) if taking_part else 0)
        self.optimizer.zero_grad(set_to_none=True)
        sound = math.isfinite(sum(values.values()))
        if sound:
            sums = self.method.summed if share else ()  # they count whole, whatever the share of the means
            total = total_loss({name: loss / share if name in sums else loss for name, loss in losses.items()})
            self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
            self.ranks.average_gradients(self._parameters(), share)
            sound = self.scaler.is_enabled() or math.isfinite(gradient_norm(self.optimizer))  # a scaler looks itself
        if not sound:
            for tensor, old in zip(statistics, before, strict=True):
                tensor.copy_(old)
            return self._skip_step(values)
        self.ranks.average([tensor for tensor in statistics if tensor.is_floating_point()], share)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.method.of_all = self.ranks.gather if taking_part else lambda rows: self.ranks.gather(rows[:0])
        self.method.after_step()
        if self.method.sighting is not None:
            self.watch.add(self.method.sighting.of_all(self.method.of_all))
        self.at.bad_steps = 0
        return values

    def _of_whole_batch(self, losses: Losses, count: int) -> tuple[dict[str, float], float]:
        """The losses of the batch that the ranks share, and the share of this rank's `count` in its means."""
        values = {name: float(loss.detach()) for name, loss in losses.items()}
        if self.ranks.world == 1:
            return values, 1.0
        sums = self.method.summed
        parts = [value * (1 if name in sums else count) if count else 0.0 for name, value in values.items()]
        counted, *totals = self.ranks.total([count, *parts])
        both = zip(values, totals, strict=True)
        return {name: total if name in sums else total / counted for name, total in both}, count / counted

    def _parameters(self) -> Iterator[nn.Parameter]:
        yield from (parameter for group in self.optimizer.param_groups for parameter in group["params"])

    def _skip_step(self, values: dict[str, float]) -> dict[str, float]:
        self.at.bad_steps += 1
        where = f"step {self.at.step} of epoch {self.at.epoch}"
        log.warning("%s skipped, its loss or gradient is no number: %s", where, values)
        if self.at.bad_steps >= MOST_BAD_STEPS:
            raise SomnetError(
                f"the loss or its gradient was no number {MOST_BAD_STEPS} times in a row ({values}): "
                "lower train.lr and train again"
            )
        return {}

    def _evaluate(self) -> float | None:
        """A signal stops the evaluation at once: it changes nothing, and can be done again."""
        self.method.eval()
        try:
            with stopping_signals():
                return self.evaluate()
        except (TrainingStopped, RunError):  # a signal, or another rank that obeyed one
            self._save()
            raise

    def _close_epoch(self, phase: Phase, steps: int) -> None:
        accuracy = self._evaluate() if phase.passes else None
        row: dict[str, Any] = {"phase": phase.name, "epoch": self.at.epoch, "epochs": phase.epochs, "steps": steps}
        counted = self.at.sums.pop(COUNT, 0.0) or 1.0
        row |= {f"loss/{name}": value / counted for name, value in sorted(self.at.sums.items())}
        row |= {f"lr/{name}": rate for name, rate in learning_rates(phase, (self.at.epoch + 1) / phase.epochs).items()}
        if phase.keep is not None:
            row["keep"] = phase.keep
        self.method.eval()
        row |= self.watch.close_epoch() | self.method.metrics()
        if accuracy is not None:
            row["test/top1"] = accuracy
        row["seconds"] = round(self.at.seconds, 3)
        self.at.history.append(row)
        self.at.epoch, self.at.step, self.at.sums, self.at.seconds = self.at.epoch + 1, 0, {}, 0.0
        self._save()

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        if not self.ranks.first:
            return
        tensors = {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        tensors |= {f"momentum.{name}": tensor for name, tensor in momentum_tensors(self.optimizer).items()}
        tensors |= {f"watch.{name}": tensor for name, tensor in self.watch.state().items()}
        state = {"position": asdict(self.at), "config": self.config.hash(), "scaler": self.scaler.state_dict()}
        save_checkpoint(self.out / LAST, tensors, state)
        write_text(self.out / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in self.at.history))

    def _load(self) -> dict[str, Tensor]:
        tensors, state = load_checkpoint(self.out / LAST)
        try:
            self.at = _POSITION.validate_python(state["position"])
            self.scaler.load_state_dict(state.get("scaler", {}))
            self._restore(tensors)
            self.earlier_seconds = self.at.seconds + sum(row["seconds"] for row in self.at.history)
            if self.at.phase > len(self.plan):
                raise ValueError(f"phase {self.at.phase} of {len(self.plan)}")
        except (LookupError, TypeError, ValueError) as error:
            reason = mistakes(error) if isinstance(error, ValidationError) else error
            raise RunError(
                f"{self.out / LAST} does not fit this run ({reason}): train again with --overwrite"
            ) from None
        return tensors

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor
        restore_method(self.method, tensors)
        restore_momentum(self.optimizer, parts["momentum"])
        self.watch.restore(parts["watch"])

    def _bag_pass(self, images_per_bag: int) -> Iterator[Bag]:
        if images_per_bag == 1:
            bags = each_image_once(self.labels)
        else:
            rng = np.random.default_rng(self._seed())
            bags = draw_bags(self.labels, images_per_bag, rng, groups=self.groups)
        batches = BagBatches(bags, max(1, self.config.train.batch_size // images_per_bag), self.inputs, None, seed=None)
        for bag in load(batches, self.workers):
            yield bag.to(self.device)

    def _seed(self, *more: int) -> int:
        place = (self.config.seed, self.at.phase, self.at.epoch, *more)
        return int(np.random.SeedSequence(place).generate_state(1)[0])

    def _rows(self, phase: Phase) -> NDArray[np.int64]:
        rows = self.method.rows(phase)
        return np.arange(len(self.labels)) if rows is None else rows

    def _batch_bags(self, phase: Phase) -> int:
        return max(1, self.config.train.batch_size // phase.images_per_bag)

    def _steps(self, phase: Phase) -> int:
        bags = count_bags(self.labels, phase.images_per_bag, self._rows(phase), self.groups)
        return -(-bags // self._batch_bags(phase))

    def _steps_done(self) -> int:
        before = sum(phase.epochs * self._steps(phase) for phase in self.plan[: self.at.phase])
        here = self.at.epoch * self._steps(self.plan[self.at.phase]) if self.at.phase < len(self.plan) else 0
        return before + here + self.at.step
