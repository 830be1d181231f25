"""Features of the training images, and the images of a class."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from somnet.methods.features import members, training_features

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def test_members_are_the_rows_of_each_class_that_has_any() -> None:
    labels = torch.tensor([3, 0, 3, 1, 0])
    assert [rows.tolist() for rows in members(labels)] == [[1, 4], [3], [0, 2]]


def test_features_are_those_of_whole_images_in_order(toy: "MakeToy") -> None:
    made = toy("plain")
    made.method.eval()
    with torch.no_grad():
        seen, expected = (
            training_features(made.method.network, made.bag_pass),
            made.method.network.image_features(made.maps),
        )
    assert seen.dtype == torch.float16
    assert torch.equal(seen, expected.half())
