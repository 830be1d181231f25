"""Algorithm 1: the phases and the growing p."""

import pytest

from somnet.core.schedule import Stage, algorithm_1, curriculum
from somnet.core.types import Phase


def phases(joint_epochs: int = 2, keep: tuple[float, ...] = (0.1, 0.4)) -> tuple[Phase, ...]:
    return algorithm_1(
        Stage(5, {"cnn": 0.1}),
        Stage(3, {"memory": 0.2}),
        Stage(joint_epochs, {"cnn": 0.05, "memory": 0.2}),
        keep=keep,
        images_per_bag=2,
    )


def test_seven_epochs_have_the_papers_seven_shares() -> None:
    assert curriculum(0.10, 0.40, 0.05, 7) == pytest.approx((0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40), abs=1e-12)


@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_equal_ends_fix_the_share(epochs: int) -> None:
    assert curriculum(0.4, 0.4, 0.05, epochs) == (0.4,) * epochs


@pytest.mark.parametrize("epochs", [2, 3, 14])
def test_share_grows_to_the_last(epochs: int) -> None:
    shares = curriculum(0.10, 0.40, 0.05, epochs)
    assert len(shares) == epochs
    assert list(shares) == sorted(shares)
    assert min(shares) >= 0.10
    assert shares[-1] == 0.40


@pytest.mark.parametrize("epochs", [1, 3, 14])
def test_share_starts_at_the_first(epochs: int) -> None:
    assert curriculum(0.10, 0.40, 0.05, epochs)[0] == 0.10


def test_more_epochs_than_steps_use_every_share() -> None:
    assert len({round(share, 9) for share in curriculum(0.10, 0.40, 0.05, 14)}) == 7


def test_a_step_that_does_not_fit_ends_at_the_last() -> None:
    assert curriculum(0.1, 0.4, 0.2, 3) == pytest.approx((0.1, 0.3, 0.4))


def test_no_epochs_need_no_share() -> None:
    assert curriculum(0.1, 0.4, 0.05, 0) == ()


def test_cnn_then_memory_then_both() -> None:
    assert [(phase.name, phase.epochs) for phase in phases()] == [
        ("init-cnn", 5),
        ("init-memory", 3),
        ("joint", 1),
        ("joint", 1),
    ]


def test_only_the_joint_phase_selects_rois() -> None:
    assert [phase.keep for phase in phases()] == [None, None, 0.1, 0.4]


def test_each_phase_trains_its_own_parameters() -> None:
    assert [set(phase.lr) for phase in phases()] == [{"cnn"}, {"memory"}, {"cnn", "memory"}, {"cnn", "memory"}]


def test_memory_phase_needs_no_images_and_counts_no_passes() -> None:
    cnn, memory, first, second = phases()
    assert (memory.needs_images, memory.passes) == (False, 0)
    assert all(phase.needs_images and phase.passes == 1 for phase in (cnn, first, second))


def test_joint_epochs_cover_the_annealing_without_gaps() -> None:
    joint = [phase.anneal for phase in phases(4, (0.1, 0.2, 0.3, 0.4)) if phase.name == "joint"]
    assert joint == [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]


def test_every_phase_has_full_bags() -> None:
    assert {phase.images_per_bag for phase in phases()} == {2}
