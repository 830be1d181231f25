"""What test_pretended_gpu.py starts in a process of its own: CASES OUT. A case is some work, a method and settings."""

import json
import logging
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from somnet.core.types import BagBatch, Phase
from somnet.errors import TrainingStopped
from somnet.methods import curriculumnet
from somnet.methods.base import Step
from somnet.runs.checkpoint import load_checkpoint
from somnet.system.compute import Compute
from somnet.system.folders import LAST
from somnet.training.gpu_check import compare_method
from somnet.training.loop import Trainer
from somnet.training.step import NoRoom, Outcome
from tests.conftest import Toy, make_toy
from tests.gpu.pretended import NAME, PretendedGpu, pretended_gpu, without_cuda_kernel

curriculumnet.LEAST = 4  # as few images as the classes of a toy have, which it would leave undivided
SHORT = {"train.batch_size": 4, "somnet.memory.side": 2, "train.epochs": 5}


def trainer_of(made: Toy, out: Path, device: str) -> Trainer:
    made.method.to(device)
    return Trainer(made.method, made.config, made.images(), out, compute=Compute(device, workers=0))


def final_state(made: Toy, trainer: Trainer) -> dict[str, Tensor]:
    """All that a run has come to, and what it thinks of the images."""
    device = trainer.compute.device
    with torch.no_grad():
        seen = made.method.eval().inspect(made.batches(1)[0].to(device))
    state = {name: tensor.clone() for name, tensor in load_checkpoint(trainer.out / LAST)[0].items()}
    return state | {"label_score": seen.label_score.cpu(), "probabilities": seen.probabilities.cpu()}


def watch_steps(trainer: Trainer, gpu: PretendedGpu) -> list[Counter[str]]:
    """What each step waits for, from now on."""
    step, seen = trainer._step, list[Counter[str]]()

    def watched(*args: Any) -> Outcome:
        before = Counter(gpu.waits)
        outcome = step(*args)
        seen.append(gpu.waits - before)
        return outcome

    trainer._step = watched  # type: ignore[method-assign,assignment]
    return seen


def most_of(waits: list[Counter[str]]) -> dict[str, int]:
    """What the step waits for that waits most."""
    most = max(waits, key=lambda each: each.total())
    return dict(most)


def stop_in_the_middle(made: Toy, steps: int) -> None:
    step, done = made.method.step, list[Phase]()

    def wrapped(batch: BagBatch, phase: Phase) -> Step:
        done.append(phase)
        if len(done) == steps // 2:
            signal.raise_signal(signal.SIGTERM)
        return step(batch, phase)

    made.method.step = wrapped  # type: ignore[method-assign]


def compare(make: Callable[[], Toy]) -> dict[str, Any]:
    """A training on the CPU, on the GPU, and on the GPU with an interruption."""
    outs = [Path(tempfile.mkdtemp()) for _ in range(3)]
    made = make()
    trainer = trainer_of(made, outs[0], "cpu")
    trainer.run()
    expected = final_state(made, trainer)
    with pretended_gpu() as gpu:
        made = make()
        trainer = trainer_of(made, outs[1], NAME)
        waits = watch_steps(trainer, gpu)
        trainer.run()
        peak = gpu.peak  # of this training alone: what follows is held beside it
        found = final_state(made, trainer)
        stopped = make()
        stop_in_the_middle(stopped, len(waits))
        try:
            trainer_of(stopped, outs[2], NAME).run()
        except TrainingStopped:
            made = make()
            trainer = trainer_of(made, outs[2], NAME)
            trainer.run(resume=True)
            resumed = final_state(made, trainer)
    return {
        "differs": [name for name in expected if not torch.equal(expected[name], found[name])],
        "differs after a resume": [name for name in expected if not torch.equal(expected[name], resumed[name])],
        "tensors": len(expected),
        "steps": len(waits),
        "waits": most_of(waits),
        "waits in all": dict(gpu.waits.most_common(12)),
        "peak": peak,
        "ops": dict(gpu.ops),
        "without a kernel": without_cuda_kernel(list(gpu.ops)),
    }


def lowered(make: Callable[[], Toy]) -> dict[str, Any]:
    """A training in half the bits: what ran on the GPU, and what its steps wait for."""
    with pretended_gpu() as gpu:
        trainer = trainer_of(make(), Path(tempfile.mkdtemp()), NAME)
        waits = watch_steps(trainer, gpu)
        trainer.run()
    heavy = {op: count for op, count in gpu.ops.items() if " of " in op}
    return {"heavy": heavy, "steps": len(waits), "waits": most_of(waits)}


def overflowing(make: Callable[[], Toy]) -> dict[str, Any]:
    """A training in fp16 all of whose steps overflow: what they have changed."""
    with pretended_gpu() as gpu:
        made = make()
        trainer = trainer_of(made, Path(tempfile.mkdtemp()), NAME)
        waits = watch_steps(trainer, gpu)
        take, changed = trainer.stepper.take, list[str]()

        def watched(*args: Any, **more: Any) -> Any:
            before = {name: tensor.clone() for name, tensor in made.method.state_dict().items()}
            outcome = take(*args, **more)
            after = made.method.state_dict()
            changed.extend(name for name in before if not torch.equal(before[name], after[name]))
            assert not outcome.taken
            return outcome

        trainer.stepper.take = watched  # type: ignore[method-assign]
        weight = made.method.network.classifier.weight
        weight.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[no-untyped-call]
        trainer.run()
        halved = trainer.stepper.scaler.get_scale()
    return {"changed": changed, "scale": halved, "steps": len(waits), "bad steps": trainer.at.bad_steps}


def cramped(make: Callable[[], Toy]) -> dict[str, Any]:
    """A training that runs out of memory in its middle, and continues where there is more."""
    whole, cut = (Path(tempfile.mkdtemp()) for _ in range(2))
    with pretended_gpu():
        made = make()
        trainer = trainer_of(made, whole, NAME)
        trainer.run()
        expected = final_state(made, trainer)
    with pretended_gpu() as gpu:
        made = make()
        trainer, step, done = trainer_of(made, cut, NAME), made.method.step, list[Phase]()

        def growing(batch: BagBatch, phase: Phase) -> Step:
            done.append(phase)
            gpu.room = gpu.held if len(done) == 3 else None
            return step(batch, phase)

        made.method.step = growing  # type: ignore[method-assign]
        try:
            trainer.run()
        except NoRoom as error:
            told = str(error)
        gpu.room = None
        made = make()
        trainer = trainer_of(made, cut, NAME)
        trainer.run(resume=True)
        found = final_state(made, trainer)
    different = [name for name in expected if not torch.equal(expected[name], found[name])]
    return {"told": told, "differs": different}


def examined(make: "partial[Toy]") -> dict[str, Any]:
    """What somnet doctor --gpu finds of a method."""
    with pretended_gpu():
        rows = compare_method(make.args[0], NAME)
    return {"phases": [row.phase for row in rows], "differences": [row.difference for row in rows]}


WORK: dict[str, Callable[["partial[Toy]"], dict[str, Any]]] = {
    "examined": examined,
    "compare": compare,
    "lowered": lowered,
    "overflowing": overflowing,
    "cramped": cramped,
}


def main(cases: Path, out: Path) -> None:
    logging.disable(logging.CRITICAL)
    told: dict[str, Any] = {}
    for case, (work, method, settings) in json.loads(cases.read_text()).items():
        try:
            told[case] = WORK[work](partial(make_toy, method, **{**SHORT, **settings}))
        except Exception:  # one case must not hide the others
            told[case] = {"error": traceback.format_exc()}
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
