"""Image and boxes move together."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from somnet.data.transforms import Augment, crop_shares, enough_for, to_square

WIDTH, HEIGHT, SIDE = 120, 80, 64
WHOLE = [0.0, 0.0, 1.0, 1.0]
SQUARE = (66, 12, 102, 48)  # off the centre, so that a forgotten flip shows


def picture() -> Image.Image:
    image = Image.new("RGB", (WIDTH, HEIGHT), "black")
    ImageDraw.Draw(image).rectangle((SQUARE[0], SQUARE[1], SQUARE[2] - 1, SQUARE[3] - 1), fill="white")
    return image


def shares(*boxes: tuple[float, float, float, float]) -> Tensor:
    """Box 0 and boxes given in pixels."""
    rows = [WHOLE] + [[x1 / WIDTH, y1 / HEIGHT, x2 / WIDTH, y2 / HEIGHT] for x1, y1, x2, y2 in boxes]
    return torch.tensor(rows)


def white_box(pixels: Tensor) -> tuple[Tensor, int] | None:
    """Bounds, in pixels, of what is brighter than the middle, and how many pixels that is."""
    grey = pixels.float().mean(dim=0)
    if float(grey.max() - grey.min()) < 32:
        return None
    y, x = (grey > (grey.max() + grey.min()) / 2).nonzero().T
    return torch.stack([x.min(), y.min(), x.max() + 1, y.max() + 1]).float(), len(x)


def test_square_keeps_shares() -> None:
    pixels = to_square(picture(), SIDE)
    assert pixels.shape == (3, SIDE, SIDE)
    assert pixels.dtype == torch.uint8
    found = white_box(pixels)
    assert found is not None
    assert torch.allclose(found[0], shares(SQUARE)[1] * SIDE, atol=1.0)


def test_the_moved_box_holds_the_white_pixels() -> None:
    augment = Augment(SIDE)
    seen = left = right = 0
    for seed in range(60):
        pixels, boxes, mask = augment(picture(), shares(SQUARE), torch.tensor([True, True]), seed)
        assert pixels.shape == (3, SIDE, SIDE)
        assert pixels.dtype == torch.uint8
        found = white_box(pixels)
        if not mask[1] or found is None:
            continue
        seen += 1
        box = boxes[1] * SIDE
        assert torch.allclose(found[0], box, atol=1.5), seed
        area = float((box[2] - box[0]) * (box[3] - box[1]))
        assert found[1] == pytest.approx(area, rel=0.1, abs=2 * SIDE), seed
        left += float(box[0] + box[2]) < SIDE
        right += float(box[0] + box[2]) > SIDE
    assert seen > 30
    assert left > 5  # flipped
    assert right > 5


def test_box_0_stays_the_whole_image() -> None:
    for seed in range(10):
        _, boxes, mask = Augment(SIDE)(picture(), shares(SQUARE), torch.tensor([True, True]), seed)
        assert boxes[0].tolist() == WHOLE
        assert mask[0]


def test_boxes_stay_inside_the_crop() -> None:
    many = shares(SQUARE, (0, 0, 30, 30), (90, 50, 120, 80), (0, 40, 120, 60))
    for seed in range(20):
        _, boxes, mask = Augment(SIDE)(picture(), many, torch.ones(5, dtype=torch.bool), seed)
        assert (boxes >= 0).all()
        assert (boxes <= 1).all()
        assert (boxes[mask][:, 2:] > boxes[mask][:, :2]).all()
        assert (boxes[~mask] == 0).all()


def test_padding_stays_padding() -> None:
    boxes, mask = torch.cat([shares(SQUARE), torch.zeros(2, 4)]), torch.tensor([True, True, False, False])
    for seed in range(10):
        _, moved, kept = Augment(SIDE)(picture(), boxes, mask, seed)
        assert kept[2:].tolist() == [False, False]
        assert (moved[2:] == 0).all()


def test_a_box_outside_of_the_crop_is_dropped() -> None:
    dropped = 0
    for seed in range(40):
        pixels, _, mask = Augment(SIDE)(picture(), shares(SQUARE), torch.tensor([True, True]), seed)
        if white_box(pixels) is None:
            dropped += 1
            assert not mask[1]
    corner = shares((0, 0, 12, 8))
    kept = [bool(Augment(SIDE)(picture(), corner, torch.tensor([True, True]), seed)[2][1]) for seed in range(40)]
    assert dropped < 40
    assert not all(kept)
    assert any(kept)


def test_dropping_a_box_does_not_depend_on_the_others() -> None:
    """A box of which a crop leaves less than a quarter is dropped, be it the only one or not."""
    grid = [(x, y, x + 6.0, y + 8.0) for x in range(0, WIDTH, 6) for y in range(0, HEIGHT, 8)]
    for seed in range(60):
        alone = Augment(SIDE)(picture(), shares(SQUARE), torch.ones(2, dtype=torch.bool), seed)[2]
        boxes = shares(SQUARE, *grid)
        among = Augment(SIDE)(picture(), boxes, torch.ones(len(boxes), dtype=torch.bool), seed)[2]
        assert bool(alone[1]) == bool(among[1]), seed


def test_the_seed_decides_all() -> None:
    torch.manual_seed(1)
    first = Augment(SIDE)(picture(), shares(SQUARE), torch.ones(2, dtype=torch.bool), 5)
    torch.manual_seed(2)
    second = Augment(SIDE)(picture(), shares(SQUARE), torch.ones(2, dtype=torch.bool), 5)
    third = Augment(SIDE)(picture(), shares(SQUARE), torch.ones(2, dtype=torch.bool), 6)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], third[0])


def test_the_random_numbers_of_others_are_left_alone() -> None:
    state = torch.get_rng_state()
    Augment(SIDE)(picture(), shares(SQUARE), torch.ones(2, dtype=torch.bool), 5)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_image_without_boxes_can_be_augmented() -> None:
    _, boxes, mask = Augment(SIDE)(picture(), shares(), torch.tensor([True]), 0)
    assert boxes.tolist() == [WHOLE]
    assert mask.tolist() == [True]


def test_the_given_mask_is_not_changed() -> None:
    mask = torch.ones(2, dtype=torch.bool)
    for seed in range(10):
        Augment(SIDE)(picture(), shares((0, 0, 12, 8)), mask, seed)
    assert mask.all()


@pytest.mark.parametrize(
    ("view", "size"),
    [
        ((0, 0, 1, 1), (100, 50)),
        ((0.25, 0.5, 0.75, 1), (50, 25)),
        ((0.999, 0.999, 1, 1), (1, 1)),
        ((1, 1, 1, 1), (1, 1)),  # never empty
        ((0.5, 0.5, 0.5, 0.5), (1, 1)),
    ],
)
def test_a_view_is_cut_by_shares(view: tuple[float, ...], size: tuple[int, int]) -> None:
    image = Image.new("RGB", (100, 50))
    assert crop_shares(image, np.array(view, np.float32)).size == size


def test_the_cut_is_where_the_box_is() -> None:
    image = Image.new("RGB", (10, 10))
    image.putpixel((7, 3), (255, 0, 0))
    assert crop_shares(image, np.array([0.7, 0.3, 0.8, 0.4], np.float32)).getpixel((0, 0)) == (255, 0, 0)


def test_a_small_view_asks_for_a_larger_image() -> None:
    assert enough_for(np.array([0, 0, 1, 1], np.float32), 224) == 224
    assert enough_for(np.array([0.25, 0, 0.75, 1], np.float32), 224) == 448
    assert enough_for(np.array([0.5, 0.5, 0.5, 0.5], np.float32), 224) == 22400  # a point: as large as there is
