"""What test_pretended_gpu.py has torchrun start, twice: CASES OUT. Each rank leaves OUT/rank<N>.json."""

import json
import logging
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from somnet.system.compute import Compute
from somnet.system.ranks import Ranks, joined_ranks
from somnet.training.loop import Trainer
from somnet.training.step import Outcome
from tests.conftest import make_toy
from tests.gpu.at_work import SHORT
from tests.gpu.pretended import NAME, PretendedGpu, pretended_gpu
from tests.system.ranks_at_work import fingerprint


def trainer_of(method: str, settings: dict[str, Any], device: str, ranks: Ranks) -> Trainer:
    made = make_toy(method, **{**SHORT, **settings})
    made.method.to(device)
    compute = Compute(device, workers=0, ranks=ranks)
    return Trainer(made.method, made.config, made.images(), Path(tempfile.mkdtemp()), compute=compute)


def watch(trainer: Trainer, gpu: PretendedGpu) -> list[tuple[Counter[str], Counter[str]]]:
    """What each step waits for and what it asks of other ranks, from now on."""
    step, seen = trainer._step, list[tuple[Counter[str], Counter[str]]]()

    def watched(*args: Any) -> Outcome:
        waits, collectives = Counter(gpu.waits), Counter(gpu.collectives)
        outcome = step(*args)
        seen.append((gpu.waits - waits, gpu.collectives - collectives))
        return outcome

    trainer._step = watched  # type: ignore[method-assign,assignment]
    return seen


def largest(counters: list[Counter[str]]) -> dict[str, int]:
    return dict(sorted(counters, key=lambda each: each.total())[-1])


def work(method: str, settings: dict[str, Any], ranks: Ranks) -> dict[str, Any]:
    """A training by two ranks on CPUs, and the same on two GPUs."""
    trainer = trainer_of(method, settings, "cpu", ranks)
    trainer.run()
    expected = trainer.method.state_dict()
    with pretended_gpu() as gpu:
        trainer = trainer_of(method, settings, NAME, ranks)
        steps = watch(trainer, gpu)
        trainer.run()
        found = {name: tensor.cpu() for name, tensor in trainer.method.state_dict().items()}
        trainer.method.zero_grad()  # sparse gradients cannot leave the device as they are
    return {
        "differs": [name for name in expected if not torch.equal(expected[name], found[name])],
        "tensors": len(expected),
        "state": fingerprint(trainer.method.cpu()),
        "steps": len(steps),
        "waits": largest([waits for waits, _ in steps]),
        "collectives": largest([together for _, together in steps]),
        "layers": sum(isinstance(layer, _BatchNorm) for layer in trainer.method.network.modules()),
        "peak": gpu.peak,
    }


def main(cases: Path, out: Path) -> None:
    logging.disable(logging.CRITICAL)
    told: dict[str, Any] = {}
    with joined_ranks() as ranks:
        for case, (method, settings) in json.loads(cases.read_text()).items():
            try:
                told[case] = work(method, settings, ranks)
            except Exception:
                told[case] = {"error": traceback.format_exc()}
                break  # the ranks may have parted
    (out / f"rank{ranks.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
