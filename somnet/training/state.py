"""All that a resume needs, in the last checkpoint of a run folder."""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from somnet.config import Config, mistakes
from somnet.errors import RunError
from somnet.methods.base import Method
from somnet.runs.checkpoint import load_checkpoint, restore_method, save_checkpoint
from somnet.system.files import write_text
from somnet.system.folders import LAST, METRICS
from somnet.training.optim import momentum_tensors, restore_momentum
from somnet.training.watch import Watch

Place = Annotated[int, Field(ge=0)]


@dataclass
class Position:
    """Where the run stands, and what it has logged. All randomness follows from the seed and this place."""

    phase: Place = 0
    epoch: Place = 0
    step: Place = 0
    seconds: float = 0.0  # of this epoch
    bad_steps: Place = 0  # in a row
    sums: dict[str, float] = field(default_factory=dict)  # of the losses in this epoch
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def inside_phase(self) -> bool:
        """Whether the phase has started."""
        return bool(self.epoch or self.step)

    def total_seconds(self) -> float:
        """Of training so far."""
        return self.seconds + sum(float(row["seconds"]) for row in self.history)


_POSITION = TypeAdapter(Position)


@dataclass
class TrainingState:
    """Method, optimiser, figures of the epoch and position, which are saved and restored together."""

    method: Method
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    watch: Watch
    at: Position = field(default_factory=Position)

    def save(self, out: Path, config: Config) -> None:
        """Write checkpoint and metrics."""
        tensors = {f"method.{name}": tensor for name, tensor in self.method.state_dict().items()}
        tensors |= {f"momentum.{name}": tensor for name, tensor in momentum_tensors(self.optimizer).items()}
        tensors |= {f"watch.{name}": tensor for name, tensor in self.watch.state().items()}
        state = {"position": asdict(self.at), "config": config.hash(), "scaler": self.scaler.state_dict()}
        save_checkpoint(out / LAST, tensors, state)
        write_text(out / METRICS, "".join(json.dumps(row) + "\n" for row in self.at.history))

    def load(self, out: Path, phases: int) -> dict[str, Tensor]:
        """Continue where the checkpoint was made; its tensors, to restore from once more."""
        tensors, state = load_checkpoint(out / LAST)
        self._refuse_another_trunk(out, tensors)
        try:
            self.at = _POSITION.validate_python(state["position"])
            self.at.total_seconds()  # a history without seconds is refused here
            self.scaler.load_state_dict(state.get("scaler", {}))
            self.restore(tensors)
            if self.at.phase > phases:
                raise ValueError(f"phase {self.at.phase} of {phases}")
        except (LookupError, TypeError, ValueError) as error:
            reason = mistakes(error) if isinstance(error, ValidationError) else error
            raise RunError(f"{out / LAST} does not match this run ({reason}): train again with --overwrite") from None
        return tensors

    def _refuse_another_trunk(self, out: Path, tensors: dict[str, Tensor]) -> None:
        """Features come from the trunk as it is now; what was trained on those of another one is no match for it."""
        if not self.method.network.frozen_trunk:
            return  # all of the network is in the checkpoint
        now = self.method.network.trunk.state_dict(prefix="method.network.trunk.")
        known = [(tensors[name], tensor.cpu()) for name, tensor in now.items() if name in tensors]
        if not all(one.dtype == other.dtype and torch.equal(one, other) for one, other in known):
            raise RunError(
                f"{out / LAST} was made with other pretrained weights than those that are found now: give the same "
                "ones again, or add --overwrite"
            )

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Give method, optimiser and figures the tensors that a checkpoint has of them."""
        by_owner: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            owner, _, rest = name.partition(".")
            by_owner[owner][rest] = tensor
        restore_method(self.method, tensors)
        restore_momentum(self.optimizer, by_owner["momentum"])
        self.watch.restore(by_owner["watch"])
