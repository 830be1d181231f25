"""Proposals hold the object, stay inside the image, and cost a bounded amount on any image."""

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from somnet.data import edgeboxes
from somnet.data.edgeboxes import MAX_EDGE_SHARE, edge_boxes, thinned_edges
from somnet.errors import SomnetError


def propose(
    image: Image.Image, max_boxes: int = 20, min_area: float = 0.03, edge_side: int = 128
) -> NDArray[np.float32]:
    return edge_boxes(image, max_boxes=max_boxes, min_area=min_area, edge_side=edge_side)


def square_on_grey(box: tuple[int, int, int, int], size: tuple[int, int] = (500, 375)) -> Image.Image:
    image = Image.new("RGB", size, (120, 120, 120))
    ImageDraw.Draw(image).rectangle(box, fill=(250, 240, 60))
    return image


def noise(height: int = 375, width: int = 500) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def checkerboard(cell: int) -> Image.Image:
    rows, columns = np.indices((375, 500)) // cell  # (H, W), (H, W)
    return Image.fromarray(((rows + columns) % 2 * 255).astype(np.uint8)).convert("RGB")


def text_page() -> Image.Image:
    page = Image.new("RGB", (500, 375), "white")
    for y in range(0, 375, 12):
        ImageDraw.Draw(page).text((2, y), "the quick brown fox jumps over the lazy dog " * 3, fill="black")
    return page


def overlaps(boxes: NDArray[np.float32], truth: tuple[int, int, int, int]) -> NDArray[np.float32]:
    x1, y1, x2, y2 = boxes[:, :4].T  # each (n,)
    across = np.clip(np.minimum(x2, truth[2]) - np.maximum(x1, truth[0]), 0, None)  # (n,)
    down = np.clip(np.minimum(y2, truth[3]) - np.maximum(y1, truth[1]), 0, None)  # (n,)
    union = (x2 - x1) * (y2 - y1) + (truth[2] - truth[0]) * (truth[3] - truth[1]) - across * down
    shares: NDArray[np.float32] = across * down / union  # (n,)
    return shares


CROWDED = [noise(), checkerboard(2), checkerboard(16), checkerboard(40), text_page()]


@pytest.mark.parametrize("box", [(60, 80, 220, 240), (250, 120, 450, 300), (150, 40, 250, 340)])
def test_a_square_is_among_the_first_boxes(box: tuple[int, int, int, int]) -> None:
    boxes = propose(square_on_grey(box))
    assert overlaps(boxes[:3], box).max() > 0.7


def test_any_mode_will_do() -> None:
    box = (60, 80, 220, 240)
    assert overlaps(propose(square_on_grey(box).convert("L"))[:3], box).max() > 0.7


def test_colour_alone_makes_an_edge() -> None:
    image = Image.new("RGB", (200, 150), (200, 0, 0))
    ImageDraw.Draw(image).rectangle((50, 40, 120, 110), fill=(0, 102, 0))  # the same grey
    assert overlaps(propose(image)[:3], (50, 40, 120, 110)).max() > 0.7


@pytest.mark.parametrize("colour", ["white", "black", (10, 200, 30)])
def test_blank_image_has_no_boxes(colour: str) -> None:
    boxes = propose(Image.new("RGB", (300, 200), colour))
    assert boxes.shape == (0, 5)
    assert boxes.dtype == np.float32


def test_faint_noise_of_a_flat_area_is_no_edge() -> None:
    faint = np.random.default_rng(0).integers(127, 129, (96, 128, 3), dtype=np.uint8)  # (H, W, 3)
    assert not thinned_edges(faint)[0].any()


@pytest.mark.parametrize("image", CROWDED)
def test_edge_pixels_are_bounded(image: Image.Image) -> None:
    edges, _ = thinned_edges(np.asarray(image))
    assert np.count_nonzero(edges) <= MAX_EDGE_SHARE * edges.size


@pytest.mark.parametrize("image", CROWDED)
def test_edges_are_found_at_a_bounded_size(image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(rgb: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        seen.append(rgb.shape)
        return thinned_edges(rgb)

    monkeypatch.setattr(edgeboxes, "thinned_edges", spy)
    propose(image)
    assert seen == [(96, 128, 3)]


@pytest.mark.parametrize("image", [*CROWDED, square_on_grey((60, 80, 220, 240))])
@pytest.mark.parametrize("min_area", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("max_boxes", [1, 7, 20])
def test_boxes_keep_their_promises(image: Image.Image, min_area: float, max_boxes: int) -> None:
    boxes = propose(image, max_boxes, min_area)
    x1, y1, x2, y2, score = boxes.T  # each (n,)
    assert boxes.shape[1] == 5
    assert boxes.dtype == np.float32
    assert len(boxes) <= max_boxes
    assert ((x1 >= 0) & (x1 < x2) & (x2 <= image.width)).all()
    assert ((y1 >= 0) & (y1 < y2) & (y2 <= image.height)).all()
    assert ((x2 - x1) * (y2 - y1) >= 0.999 * min_area * image.width * image.height).all()
    assert (np.diff(score) <= 0).all()
    assert np.isfinite(boxes).all()


def test_no_boxes_wanted() -> None:
    assert propose(square_on_grey((60, 80, 220, 240)), max_boxes=0).shape == (0, 5)


def test_same_image_same_boxes() -> None:
    for image in (noise(), square_on_grey((60, 80, 220, 240))):
        np.testing.assert_array_equal(propose(image), propose(image))


def test_boxes_do_not_depend_on_the_image_before() -> None:
    alone = propose(square_on_grey((60, 80, 220, 240)))
    propose(noise(300, 300))
    np.testing.assert_array_equal(propose(square_on_grey((60, 80, 220, 240))), alone)


def test_size_of_the_image_hardly_matters() -> None:
    small = propose(square_on_grey((60, 80, 220, 240)))
    large = propose(square_on_grey((180, 240, 662, 722), (1500, 1125)))
    assert overlaps(large[:3] / np.float32(3), (60, 80, 220, 240)).max() > 0.7
    assert abs(len(small) - len(large)) <= 5


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (8, 4000), (4000, 8), (20, 20), (3, 3), (128, 9)])
@pytest.mark.parametrize("min_area", [0.0, 0.03])
def test_tiny_and_long_images(size: tuple[int, int], min_area: float) -> None:
    boxes = propose(noise(size[1], size[0]), min_area=min_area)
    assert boxes.shape[1] == 5
    assert (boxes[:, 2] <= size[0]).all()
    assert (boxes[:, 3] <= size[1]).all()


def test_small_images_are_not_enlarged() -> None:
    assert overlaps(propose(square_on_grey((15, 10, 39, 34), (64, 48)))[:3], (15, 10, 40, 35)).max() > 0.6


def test_edges_are_thin_and_their_normals_point_across() -> None:
    image = np.full((60, 80, 3), 50, np.uint8)  # (H, W, 3)
    image[:, 40:] = 200  # the normal of a vertical edge is horizontal
    edges, orientation = thinned_edges(image)
    assert edges.dtype == orientation.dtype == np.float32
    assert edges.max() == 1
    assert (np.count_nonzero(edges[5:-5], axis=1) == 1).all()
    np.testing.assert_allclose(np.sin(orientation[edges > 0]), 0, atol=1e-3)
    edges, orientation = thinned_edges(np.ascontiguousarray(image.transpose(1, 0, 2)))
    np.testing.assert_allclose(np.sin(orientation[edges > 0]), 1, atol=1e-3)


def test_orientation_stays_in_half_a_turn() -> None:
    _, orientation = thinned_edges(np.asarray(noise()))
    assert orientation.min() >= 0
    assert orientation.max() <= np.float32(np.pi)


def test_opencv_without_ximgproc_tells_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2, "ximgproc")
    with pytest.raises(SomnetError, match="pip install --force-reinstall opencv-contrib-python-headless"):
        propose(noise())
