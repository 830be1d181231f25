"""Colours that can be told apart, however many."""

import numpy as np
import pytest

from somnet.report.figures.colours import WHITE, class_colours, inferno, oklab


@pytest.mark.parametrize("count", [1, 8, 9, 14, 101, 1000])
def test_class_colours_are_distinct(count: int) -> None:
    colours = class_colours(count)
    assert len(colours) == len(set(colours)) == count
    assert WHITE not in colours


def test_a_few_class_colours_are_far_apart_and_stay_when_classes_are_added() -> None:
    lab = oklab(np.array(class_colours(14)))  # (C, 3)
    distance = np.linalg.norm(lab[:, None] - lab, axis=-1) + np.eye(14)  # (C, C)
    assert distance.min() > 0.1
    assert class_colours(30)[:14] == class_colours(14)


def test_oklab_of_white_and_of_greys() -> None:
    lab = oklab(np.array([[255, 255, 255], [0, 0, 0], [99, 99, 99]]))
    np.testing.assert_allclose(lab[:2], [[1, 0, 0], [0, 0, 0]], atol=1e-4)
    np.testing.assert_allclose(lab[2, 1:], 0, atol=1e-4)


def test_heat_colours_get_lighter_all_the_way() -> None:
    lightness = oklab(inferno(np.linspace(0, 1, 50)))[:, 0]
    assert (np.diff(lightness) > 0).all()
