"""The training loop: the only one."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from somnet.config import Config
from somnet.core.types import BagBatch, Phase
from somnet.data.bags import (
    BagBatches,
    Boxes,
    DrawnInputs,
    Inputs,
    RegionInputs,
    count_bags,
    draw_bags,
    draw_epoch,
    each_image_once,
)
from somnet.data.loading import Loader, load
from somnet.errors import RunError, SomnetError, TrainingStopped
from somnet.methods.base import UNCHOSEN, Method
from somnet.report.training_curves import in_words
from somnet.system.compute import Compute
from somnet.system.folders import LAST
from somnet.system.progress import track
from somnet.system.signals import StopFlag, deferred_signals, stopping_signals, told_by_others
from somnet.training.decay import choose_decay, sample_rows
from somnet.training.optim import enter_phase, learning_rates, rate_name, set_classifier_decay, set_rates
from somnet.training.state import Position, TrainingState
from somnet.training.step import NoRoom, Outcome, Stepper
from somnet.training.tensorboard import EventFiles
from somnet.training.watch import Watch

log = logging.getLogger("somnet")

COUNT = "steps"  # beside the sums of the losses: how many steps they are of
DIVERGED = "the loss or its gradient was NaN or infinite"  # so begins the message of a run that gives up
MOST_BAD_STEPS = 3  # skipped in a row before the run gives up


@dataclass(frozen=True)
class TrainingImages:
    """What the bags of a training are drawn from."""

    labels: NDArray[np.int64]  # (n,)
    inputs: Inputs
    boxes: Boxes
    groups: NDArray[np.int64] | None = None  # (n,) of duplicates, which never share a bag
    weights: NDArray[np.float32] | None = None  # (n,) how much each image counts in the losses; None: all the same
    views: Callable[[], Sequence[Inputs]] | None = None  # to draw from; first the image, then its proposals

    def drawn(self, views: int, shares: NDArray[np.float32] | None = None) -> Inputs:
        """So many views of an image at once, drawn anew whenever it is used; each as often as `shares` (n, V) say."""
        choices = self._all_views()
        return DrawnInputs(choices, views, None if shares is None else shares[:, : len(choices)])

    def regions(self, proposals: int) -> Inputs:
        """The image and its first proposals, each at full size."""
        return RegionInputs(self._all_views()[: 1 + proposals], self.boxes)

    def shown_to(self, method: Method) -> Inputs:
        """What passes and inspections show a method of each image."""
        return self.regions(method.config.views.proposals) if method.full_size else self.inputs

    def _all_views(self) -> Sequence[Inputs]:
        return [self.inputs] if self.views is None else self.views()


class Trainer:
    """Trains a method on the images of a training set, and leaves checkpoints in the run folder."""

    def __init__(
        self,
        method: Method,
        config: Config,
        images: TrainingImages,
        out: Path,
        *,
        compute: Compute | None = None,
        evaluate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.method, self.config, self.images, self.out, self.evaluate = method, config, images, out, evaluate
        self.compute = Compute(workers=0) if compute is None else compute
        self.ranks = self.compute.ranks  # the processes that share each batch
        self.phase_inputs: Inputs = images.inputs
        self.loader = Loader(0, self.compute.device)  # of the epochs of a phase
        self.plan = method.plan()
        self.stepper = Stepper(method, config.train, self.compute)
        self.watch = Watch(len(images.labels))
        self.state = TrainingState(method, self.stepper.optimizer, self.stepper.scaler, self.watch)
        self.saved_at = time.monotonic()
        self.earlier_seconds = 0.0  # of training before this session
        self.events: EventFiles | None = None  # for TensorBoard, if they are asked for

    @property
    def at(self) -> Position:
        """Where the run stands."""
        return self.state.at

    def run(self, resume: bool = False) -> Position:
        """Train from the start or from the last checkpoint to the end of the plan."""
        tensors = self._load() if resume and (self.out / LAST).exists() else None
        if self.config.tensorboard and self.ranks.first:
            self.events = EventFiles(self.out, len(self.at.history))
        expected = [phase.epochs * self._steps(phase) for phase in self.plan]
        with deferred_signals() as stop, told_by_others(stop), track("training", sum(expected)) as advance:
            advance(self._steps_done())
            while self.at.phase < len(self.plan):
                self.ranks.check_together(stop)
                phase = self.plan[self.at.phase]
                self._enter(phase, tensors)
                tensors = None
                while self.at.epoch < phase.epochs:
                    self._epoch(phase, stop, advance)
                self.ranks.check_together(stop)
                self._leave(phase)
                advance(expected[self.at.phase] - phase.epochs * self._steps(phase))  # a phase may leave out images
                self.at.phase, self.at.epoch = self.at.phase + 1, 0
                self._save()
            self.ranks.check_together(stop)
        return self.at

    @stopping_signals()  # the place is saved, so nothing is lost however long this takes
    def _enter(self, phase: Phase, resumed: dict[str, Tensor] | None) -> None:
        enter_phase(self.stepper.optimizer, phase)
        if phase.epochs == 0:
            return
        if phase.fresh and not self.at.inside_phase:
            self.stepper.optimizer.state.clear()
        if self.at.phase and self.plan[self.at.phase - 1].name != phase.name and not self.at.inside_phase:
            self.watch.forget_scores()
        generator = torch.Generator().manual_seed(self._seed())
        self.method.eval()
        with torch.no_grad():
            self._choose_decay(phase)
            self.method.prepare(phase, self.bag_pass, generator)
        self.ranks.follow_first(self.method.state_dict().values())
        if resumed is not None and self.at.inside_phase:  # what prepare() reset had moved on
            self.state.restore(resumed)
        if self.method.classifier_decay != UNCHOSEN:
            set_classifier_decay(self.stepper.optimizer, float(self.method.classifier_decay))
        self.phase_inputs = self._inputs_of(phase)

    def _choose_decay(self, phase: Phase) -> None:
        """Before the first phase that trains a classifier, unless the config tells its weight decay."""
        names = {group["name"] for group in self.stepper.optimizer.param_groups}
        trained = any(name != rate_name(name) and rate_name(name) in phase.lr for name in names)
        if not trained or self.method.classifier_decay != UNCHOSEN:
            return
        labels = self.images.labels
        rows = sample_rows(labels, self.config.seed, self.images.groups)
        batches = BagBatches(each_image_once(labels, rows), self._batch_bags(1), self.images.inputs, None, seed=None)
        workers = self.compute.loaders_of(cached=self.method.network.frozen_trunk)
        seen = load(batches, workers, device=self.compute.device)
        features = torch.cat([self.method.first_features(batch.images).half().cpu() for batch in seen])
        chosen = choose_decay(features.numpy(), labels[rows], len(labels), self.config.seed)
        self.method.classifier_decay.fill_(max(chosen, self.config.train.weight_decay))
        log.info("weight decay of the classifier: %.3g", float(self.method.classifier_decay))

    @stopping_signals()
    def _leave(self, phase: Phase) -> None:
        if phase.epochs == 0:
            return
        self.loader.close()
        self.method.eval()
        with torch.no_grad():
            self.method.leave(phase, self.bag_pass)
        self.ranks.follow_first(self.method.state_dict().values())

    def _epoch(self, phase: Phase, stop: StopFlag, advance: Callable[..., None]) -> None:
        began = time.monotonic() - self.at.seconds
        self.method.train()
        batches = self._batches(phase)
        workers = self.compute.loaders_of(cached=self.method.network.frozen_trunk or not phase.needs_images)
        if self.loader.workers != workers:
            self.loader = Loader(workers, self.compute.device)
        for batch in self.loader.load(batches, skip=self.at.step):
            try:
                outcome = self._step(batch, phase, batches, stop)
            except NoRoom:
                self._save()
                raise
            losses = outcome.losses if outcome.taken else {}
            for name, loss in {**losses, COUNT: float(bool(losses))}.items():
                self.at.sums[name] = self.at.sums.get(name, 0.0) + loss
            self.at.step += 1
            self.at.seconds = time.monotonic() - began
            advance(1, note=f"{phase.name}: {in_words(losses)}")
            due = time.monotonic() - self.saved_at > self.config.train.save_minutes * 60
            if outcome.signal or due:
                self._save()
            if outcome.signal:  # which all ranks know of at the same place
                stop.signal_number = outcome.signal
                stop.check()
        self._close_epoch(phase, len(batches))

    def _step(self, batch: BagBatch, phase: Phase, batches: BagBatches, stop: StopFlag) -> Outcome:
        """Take a step at its learning rates and with its random numbers."""
        progress = (self.at.epoch + self.at.step / len(batches)) / phase.epochs
        set_rates(self.stepper.optimizer, learning_rates(phase, progress))
        torch.manual_seed(self._seed(self.at.step) + self.ranks.rank)
        taking_part = bool(batches.share(self.at.step))
        outcome = self.stepper.take(batch, phase, taking_part=taking_part, signal=lambda: stop.signal_number or 0)
        if not outcome.finite:
            self._count_bad_step(outcome.losses)
        if outcome.taken:
            self.watch.add(outcome.observed)
            self.at.bad_steps = 0
        return outcome

    def _count_bad_step(self, losses: dict[str, float]) -> None:
        self.at.bad_steps += 1
        where = f"step {self.at.step} of epoch {self.at.epoch}"
        log.warning("%s skipped, its loss or gradient is NaN or infinite: %s", where, losses)
        if self.at.bad_steps >= MOST_BAD_STEPS:
            raise SomnetError(f"{DIVERGED} {MOST_BAD_STEPS} times in a row ({losses}): lower train.lr and train again")

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

    def _evaluate(self) -> float | None:
        """A signal stops the evaluation at once: it changes nothing, and can be done again."""
        self.method.eval()
        try:
            with stopping_signals():
                return self.evaluate()
        except (TrainingStopped, RunError):  # a signal, or another rank that obeyed one
            self._save()
            raise

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        if self.ranks.first:
            self.state.save(self.out, self.config)
            if self.events is not None:
                self.events.write(self.at.history)

    def _load(self) -> dict[str, Tensor]:
        tensors = self.state.load(self.out, len(self.plan))
        self.earlier_seconds = self.at.total_seconds()
        return tensors

    def _inputs_of(self, phase: Phase) -> Inputs:
        if not phase.needs_images:
            return self.images.inputs
        if phase.regions:
            return self.images.regions(self.config.views.proposals)
        return self.images.drawn(phase.views, self.method.view_shares(phase))

    def _batches(self, phase: Phase) -> BagBatches:
        """The batches of this epoch, of which each rank gets its share."""
        rng = np.random.default_rng(self._seed())
        drawn = draw_epoch(self.images.labels, phase.images_per_bag, rng, self._rows(phase), self.images.groups)
        bags = drawn.weighted(self.images.weights)
        boxes = None if phase.needs_images else self.images.boxes
        whose = (self.ranks.rank, self.ranks.world)
        return BagBatches(bags, self._batch_bags(phase.images_per_bag), self.phase_inputs, boxes, self._seed(), *whose)

    def bag_pass(self, images_per_bag: int) -> Iterator[BagBatch]:
        """Go once over the training images, unaugmented; 1: in order, one image per bag."""
        if images_per_bag == 1:
            bags = each_image_once(self.images.labels)
        else:
            rng = np.random.default_rng(self._seed())
            bags = draw_bags(self.images.labels, images_per_bag, rng, groups=self.images.groups)
        inputs = self.images.shown_to(self.method)
        batches = BagBatches(bags, self._batch_bags(images_per_bag), inputs, None, seed=None)
        workers = self.compute.loaders_of(cached=self.method.network.frozen_trunk)
        yield from load(batches, workers, device=self.compute.device)

    def _seed(self, *more: int) -> int:
        place = (self.config.seed, self.at.phase, self.at.epoch, *more)
        return int(np.random.SeedSequence(place).generate_state(1)[0])

    def _rows(self, phase: Phase) -> NDArray[np.int64]:
        rows = self.method.rows(phase)
        return np.arange(len(self.images.labels)) if rows is None else rows

    def _batch_bags(self, images_per_bag: int) -> int:
        return max(1, self.config.train.batch_size // images_per_bag)

    def _steps(self, phase: Phase) -> int:
        images = self.images
        bags = count_bags(images.labels, phase.images_per_bag, np.arange(len(images.labels)), images.groups)
        return -(-bags // self._batch_bags(phase.images_per_bag))

    def _steps_done(self) -> int:
        before = sum(phase.epochs * self._steps(phase) for phase in self.plan[: self.at.phase])
        here = self.at.epoch * self._steps(self.plan[self.at.phase]) if self.at.phase < len(self.plan) else 0
        return before + here + self.at.step
