"""Algorithm 1 as data: initialise the CNN, initialise the memory, train both while p grows."""

from collections.abc import Mapping
from dataclasses import dataclass

from somnet.core.types import Phase

INIT_CNN, INIT_MEMORY, JOINT = "init-cnn", "init-memory", "joint"  # names of its phases


@dataclass(frozen=True)
class Stage:
    """How long a part of Algorithm 1 takes, and the learning rate of each parameter group that it trains."""

    epochs: int
    lr: Mapping[str, float]


def curriculum(first: float, last: float, step: float, epochs: int) -> tuple[float, ...]:
    """p of each joint epoch: from `first` to `last` in steps, spread evenly over the epochs."""
    steps = max(1, round((last - first) / step)) if last > first else 0
    values = [min(first + step * i, last) for i in range(steps)] + [last]
    if epochs == 1:
        return (values[0],)
    return tuple(values[round(epoch * (len(values) - 1) / (epochs - 1))] for epoch in range(epochs))


def algorithm_1(
    cnn: Stage, memory: Stage, joint: Stage, *, keep: tuple[float, ...], images_per_bag: int, regions: int = 0
) -> tuple[Phase, ...]:
    """The training process of the paper: one phase per line of its Algorithm 1, the loop unrolled by epochs.

    `regions` of an image are seen at full size in the joint phase, the image included; 0: all are cut from one map.
    """
    settle = (0.0, 1.0)  # each initialisation ends at a rate of 0: the map settles, as that of a SOM must
    first = Phase(INIT_CNN, cnn.epochs, cnn.lr, settle, images_per_bag=images_per_bag)
    second = Phase(
        INIT_MEMORY, memory.epochs, memory.lr, settle, images_per_bag=images_per_bag, needs_images=False, passes=0.0
    )
    stretches = [(epoch / joint.epochs, (epoch + 1) / joint.epochs) for epoch in range(joint.epochs)]
    both = (
        Phase(JOINT, 1, joint.lr, stretch, p, images_per_bag, regions=regions > 0, passes=max(1, regions))
        for stretch, p in zip(stretches, keep, strict=True)
    )
    return (first, second, *both)
