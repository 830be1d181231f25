"""Algorithm 1 as data: initialise the CNN, initialise the memory, train both while p grows."""

from collections.abc import Mapping

from somnet.core.types import Phase


def curriculum(first: float, last: float, step: float, epochs: int) -> tuple[float, ...]:
    """p of each joint epoch: from `first` to `last` in steps, spread evenly over the epochs."""
    steps = max(1, round((last - first) / step)) if last > first else 0
    values = [min(first + step * i, last) for i in range(steps)] + [last]
    if epochs == 1:
        return (values[0],)
    return tuple(values[round(epoch * (len(values) - 1) / (epochs - 1))] for epoch in range(epochs))


def algorithm_1(
    *,
    init_epochs: int,
    memory_epochs: int,
    joint_epochs: int,
    keep: tuple[float, ...],
    init_lr: Mapping[str, float],
    memory_lr: Mapping[str, float],
    joint_lr: Mapping[str, float],
    images_per_bag: int,
) -> tuple[Phase, ...]:
    """The training process of the paper: one phase a line of its Algorithm 1, the loop unrolled by epochs."""
    initialise_cnn = Phase("init-cnn", init_epochs, init_lr, anneal=(0.0, 1.0), images_per_bag=images_per_bag)
    initialise_memory = Phase(
        "init-memory",
        memory_epochs,
        memory_lr,
        anneal=(0.0, 1.0),  # the map settles, as that of a SOM must
        images_per_bag=images_per_bag,
        needs_images=False,
        passes=0.0,
    )
    joint = (
        Phase(
            "joint",
            1,
            joint_lr,
            anneal=(epoch / joint_epochs, (epoch + 1) / joint_epochs),
            keep=keep[epoch],
            images_per_bag=images_per_bag,
        )
        for epoch in range(joint_epochs)
    )
    return (initialise_cnn, initialise_memory, *joint)
