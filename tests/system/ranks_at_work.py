"""What torchrun starts in test_ranks.py: DATA CONFIG OUT. Each rank leaves OUT/rank<N>.json."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from somnet.config import load_config
from somnet.data.dataset import scan_together
from somnet.data.sources import open_source
from somnet.errors import RunError
from somnet.methods.base import Method
from somnet.nn.batch_statistics import WholeBatch
from somnet.system.compute import Compute
from somnet.system.gradient_sums import GradientSums
from somnet.system.ranks import ALONE, Ranks, joined_ranks
from somnet.training.loop import Trainer
from somnet.training.step import Outcome
from somnet.training.train import train
from tests.conftest import make_toy

KMEANS = {"somnet.memory.kmeans": True, "somnet.memory.side": 2}
STATISTICS = "batch statistics"
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # 10 images of 5, 4 and 1: some batches are a single bag
    "plain": ("plain", {"train.batch_size": 9, "train.epochs": 10}),
    "plain-roi": ("plain-roi", {"train.batch_size": 4, "train.epochs": 7}),
    "sl": ("sl", {"train.batch_size": 4, "train.epochs": 7}),
    "elr": ("elr", {"train.batch_size": 9, "train.epochs": 10}),
    "pencil": ("pencil", {"train.batch_size": 9, "train.epochs": 10}),
    "somnet": ("somnet", {"train.batch_size": 10, "train.epochs": 10}),
    "somnet with K-means": ("somnet", {"train.batch_size": 10, "train.epochs": 10, **KMEANS}),
    "somnet+": ("somnet+", {"train.batch_size": 6, "train.epochs": 9}),
    "confident": ("confident", {"train.batch_size": 4, "train.epochs": 10}),
    "linear-probe": ("linear-probe", {"train.batch_size": 4}),
    "wann": ("wann", {"train.batch_size": 4}),
    "admil": ("admil", {"train.batch_size": 4, "train.epochs": 7}),
    "attend-groups": ("attend-groups", {"train.batch_size": 10, "train.epochs": 20}),
    "curriculumnet": ("curriculumnet", {"train.batch_size": 4, "train.epochs": 7}),
    "drae": ("drae", {"train.batch_size": 4, "train.epochs": 7}),
    "sukhbaatar": ("sukhbaatar", {"train.batch_size": 4, "train.epochs": 7}),
    "memory that trains the CNN": (
        "somnet",
        {"train.batch_size": 10, "train.epochs": 10, "somnet.memory.detach": False},
    ),
    STATISTICS: ("plain", {"train.batch_size": 9, "train.epochs": 4, "model.freeze": "none"}),
}
FITTED_FIRST = ("linear-probe", "wann")  # whose steps, a single epoch of them, change nothing


def fingerprint(method: Method) -> str:
    """Of weights, memory and all that a method knows of single images."""
    digest = hashlib.sha256()
    for tensor in method.state_dict().values():
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def work(case: str, out: Path, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Train, and tell the losses and the state after each step, and what was logged."""
    name, settings = CASES[case]
    made = make_toy(name, **settings)
    trainer = Trainer(made.method, made.config, made.images(), out, compute=Compute(workers=0, ranks=ranks))
    steps = []
    step = trainer._step

    def recorded(*args: Any, **more: Any) -> Outcome:
        outcome = step(*args, **more)
        steps.append({"losses": outcome.losses, "state": fingerprint(made.method)})
        return outcome

    trainer._step = recorded  # type: ignore[method-assign]
    history = trainer.run().history
    return {"steps": steps, "history": [{**row, "seconds": 0} for row in history]}


def normalised(ranks: Ranks) -> float:
    """How far gradients and statistics of all layers are from those of one rank; in double precision, as in single one
    rounding switches activations on and off.
    """
    tail = make_toy("plain", **{"model.freeze": "none"}).method.network.tail.double().train()
    pixels = torch.randn(8, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = {name: tensor.clone() for name, tensor in tail.state_dict().items()}
    tail(pixels).square().mean().backward()
    alone = [parameter.grad for parameter in tail.parameters()], [tensor.clone() for tensor in tail.buffers()]
    tail.load_state_dict(before)
    tail.zero_grad()
    mine, share = (pixels[:5], 5 / 8) if ranks.first else (pixels[5:], 3 / 8)
    sums = GradientSums(ranks, tail.parameters())
    with WholeBatch(ranks, share):
        loss = tail(mine).square().mean()
    sums.begin(share)
    loss.backward()
    sums.finish()
    shared = [parameter.grad for parameter in tail.parameters()], list(tail.buffers())
    pairs = zip((*alone[0], *alone[1]), (*shared[0], *shared[1]), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs if one is not None and other is not None)


def gathered(ranks: Ranks) -> Iterator[list[Any]]:
    """Rows of different number and kind, as all ranks get them."""
    for kind in (torch.float32, torch.int64):
        yield ranks.gather(torch.full((2 * ranks.rank, 3), ranks.rank, dtype=kind)).tolist()


def main(data: Path, config: Path, out: Path) -> None:
    settings = load_config(config)
    with joined_ranks() as ranks:
        found = scan_together(open_source(data), settings.proposals, Compute(workers=1, ranks=ranks))
        report: dict[str, Any] = {case: work(case, out / case / str(ranks.rank), ranks) for case in CASES}
        report["normalised"] = normalised(ranks)
        report["gathered"] = list(gathered(ranks))
        report["boxes"] = found.boxes.tolist()
        report["total"] = ranks.total([ranks.rank + 1, 0.5])
        report["signal"] = ranks.largest(15 * ranks.rank)
    for case, change in (("refused", {"method": "mopro"}), ("small", {"train.batch_size": 1})):
        try:
            train(data, settings.with_settings(change), out=out / case, workers=0)
        except RunError as error:
            report[case] = str(error)
    train(data, settings, out=out / "run", workers=0)
    (out / f"rank{ranks.rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
