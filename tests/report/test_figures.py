"""Pictures: right numbers, right places, and no label that breaks them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from somnet.report import figures
from somnet.report.figures import BagView, Prototype, Tile, class_colours, heat_map

ODD_LABELS = ("x" * 200, "שלום עולם", "🎈👩‍👩‍👧", "<img src=x>", "", "a\nb\0\ud800\u202ec", "日本語")


def plain(width: int = 40, height: int = 30, colour: str = "#3060c0") -> Image.Image:
    return Image.new("RGB", (width, height), colour)


def pixels(image: Image.Image) -> NDArray[np.int64]:
    return np.asarray(image).astype(np.int64)  # (H, W, 3)


def near(image: Image.Image, colour: tuple[int, int, int], within: int = 40) -> NDArray[np.bool_]:
    return np.asarray(np.abs(pixels(image) - colour).max(axis=-1) <= within)  # (H, W)


def memory(
    side: int, classes: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(1.0, (side * side, classes)) + 1
    d = counts / counts.sum(axis=1, keepdims=True)  # (L, C)
    r = (counts / counts.sum(axis=0)).T  # (C, L)
    return counts, d, r


# --- the heat map


def test_heat_map_sums_the_weights_of_the_boxes_over_a_pixel() -> None:
    boxes = np.array([[0, 0, 4, 3], [1, 1, 3, 3], [2, 0, 4, 2]], float)
    weights = np.array([0.5, 0.3, 0.2])
    expected = [[0.5, 0.5, 0.7, 0.7], [0.5, 0.8, 1.0, 0.7], [0.5, 0.8, 0.8, 0.5]]
    np.testing.assert_allclose(heat_map(boxes, weights, 4, 3), expected)


def test_heat_map_counts_a_pixel_by_its_centre() -> None:
    boxes = np.array([[0.4, 0.0, 2.6, 1.0], [0.6, 0.0, 2.5, 1.0]])
    np.testing.assert_allclose(heat_map(boxes, np.array([1.0, 10.0]), 4, 1), [[1, 11, 1, 0]])


def test_heat_map_of_boxes_that_reach_out_or_are_padding() -> None:
    boxes = np.array([[-5, -5, 1, 9], [0, 0, 0, 0]], float)
    np.testing.assert_allclose(heat_map(boxes, np.array([0.6, 0.4]), 2, 2), [[0.6, 0], [0.6, 0]])
    assert heat_map(np.zeros((0, 4)), np.zeros(0), 3, 2).tolist() == [[0, 0, 0], [0, 0, 0]]


# --- colours


@pytest.mark.parametrize("count", [1, 8, 9, 14, 101, 1000])
def test_class_colours_are_distinct(count: int) -> None:
    colours = class_colours(count)
    assert len(colours) == len(set(colours)) == count
    assert figures.WHITE not in colours


def test_a_few_class_colours_are_far_apart_and_stay_when_classes_are_added() -> None:
    lab = figures._oklab(np.array(class_colours(14)))  # (C, 3)
    distance = np.linalg.norm(lab[:, None] - lab, axis=-1) + np.eye(14)  # (C, C)
    assert distance.min() > 0.1
    assert class_colours(30)[:14] == class_colours(14)


def test_oklab_of_white_and_of_greys() -> None:
    lab = figures._oklab(np.array([[255, 255, 255], [0, 0, 0], [99, 99, 99]]))
    np.testing.assert_allclose(lab[:2], [[1, 0, 0], [0, 0, 0]], atol=1e-4)
    np.testing.assert_allclose(lab[2, 1:], 0, atol=1e-4)


def test_heat_colours_get_lighter_all_the_way() -> None:
    lightness = figures._oklab(figures._inferno(np.linspace(0, 1, 50)))[:, 0]
    assert (np.diff(lightness) > 0).all()


# --- contact sheets


def test_contact_sheet_has_a_cell_for_each_tile() -> None:
    def size(tiles: int, caption: str = "", columns: int = 10) -> tuple[int, int]:
        return figures.contact_sheet([("t", [Tile(plain(), caption)] * tiles)], tile=50, columns=columns).size

    assert size(5)[0] == 2 * figures.MARGIN + 5 * 50 + 4 * 14
    assert size(25)[0] == size(10)[0]
    assert size(20)[1] - size(10)[1] == 50 + 14
    assert size(10, "caption")[1] == size(10)[1] + 16
    assert size(3, columns=1)[0] < size(3, columns=2)[0]


@pytest.mark.parametrize(("width", "height", "left", "top", "scale"), [(200, 100, 0, 25, 0.5), (50, 100, 25, 0, 1.0)])
def test_contact_sheet_draws_the_box_where_it_lies_on_the_letterboxed_image(
    width: int, height: int, left: int, top: int, scale: float
) -> None:
    box = (0.2 * width, 0.3 * height, 0.8 * width, 0.6 * height)
    sheet = figures.contact_sheet([("t", [Tile(plain(width, height), box=box)])], tile=100)
    x, y = figures.MARGIN, figures.MARGIN + 36
    cell = sheet.crop((x, y, x + 100, y + 100))
    ring = near(cell, figures.WHITE, 12)
    inside = np.zeros_like(ring)
    inside[top + 8 : 92 - top, left + 8 : 92 - left] = True  # without the frame and its rounded corners
    ring &= inside
    rows, columns = np.nonzero(ring)
    found = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
    expected = np.array(box) * scale + [left, top, left, top]
    np.testing.assert_allclose(found, expected, atol=1.5)
    assert not ring[(rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2]


def test_contact_sheet_marks_noise_in_red() -> None:
    clean = figures.contact_sheet([("t", [Tile(plain())])])
    noise = figures.contact_sheet([("t", [Tile(plain(), flag=True)])])
    assert not near(clean, figures.RED).any()
    red = near(noise, figures.RED)
    x, y = figures.MARGIN, figures.MARGIN + 36
    assert red[y + 5, x + 112 - 8]  # the corner
    assert red[y + 56, x + 1]  # the border
    assert red[y + 56, x + 111]
    assert not red[y + 56, x + 56]


@pytest.mark.parametrize("box", [(-50, -50, 500, 500), (10, 10, 10, 20), (30, 20, 5, 5), (100, 100, 120, 120)])
def test_contact_sheet_survives_boxes_outside_the_image(box: figures.Box) -> None:
    figures.contact_sheet([("t", [Tile(plain(), box=box)])])


def test_contact_sheet_of_nothing_and_of_odd_images() -> None:
    assert min(figures.contact_sheet([]).size) > 0
    tiles = [
        Tile(plain(2000, 3)),
        Tile(Image.new("P", (9, 9))),
        Tile(Image.new("RGBA", (5, 8))),
        Tile(plain().crop((3, 3, 3, 9))),
    ]
    figures.contact_sheet([("none", []), ("odd", tiles)])


# --- the memory


@pytest.mark.parametrize("side", [1, 4, 12, 40])
def test_memory_grid_is_bounded(side: int) -> None:
    counts, d, r = memory(side, 5)
    image = figures.memory_grid(side, counts, d, r, {0: [plain()]}, list("abcde"))
    assert max(image.size) <= figures.MOST_PIXELS
    assert np.asarray(image)[0, 0].tolist() == [255, 255, 255]


def test_memory_grid_has_room_for_the_largest_memory_and_many_classes() -> None:
    counts, d, r = np.zeros((10_000, 200), np.int64), np.full((10_000, 200), 0.005), np.full((200, 10_000), 1e-4)
    counts[:50, 3] = 7
    image = figures.memory_grid(100, counts, d, r, {}, [f"class {i}" for i in range(200)])
    assert max(image.size) <= figures.MOST_PIXELS


@pytest.mark.parametrize("side", [2, 13])
def test_memory_grid_shows_colours_of_live_slots_only(side: int) -> None:
    slots = side * side
    d = np.tile([0.1, 0.9], (slots, 1))  # (L, C)
    r = np.full((2, slots), 1 / slots)  # (C, L)
    crops = {slot: [plain(colour="#808080")] for slot in range(slots)}
    alive, dead = np.zeros((slots, 2), int), np.zeros((slots, 2), int)
    alive[0] = 3, 20
    count = [
        int(near(figures.memory_grid(side, counts, d, r, crops, ["a", "b"]), class_colours(2)[1]).sum())
        for counts in (alive, dead)
    ]
    assert count[0] > count[1] + 100


def test_memory_grid_border_is_stronger_where_more_was_won() -> None:
    counts, d, r = np.array([[1], [0], [3], [400]]), np.ones((4, 1)), np.full((1, 4), 0.25)
    image = pixels(figures.memory_grid(2, counts, d, r, {}, ["a"]))
    left, first, second = figures.MARGIN + 2, figures.MARGIN + figures.HEADING + 80, 160 + figures.CARD_TEXT
    red = [image[first, left, 0], image[first + second, left, 0], image[first + second, left + 176, 0]]
    assert red[0] > red[1] > red[2] == class_colours(1)[0][0]


def test_memory_grid_survives_scores_that_are_no_numbers() -> None:
    figures.memory_grid(1, np.ones((1, 3)), np.full((1, 3), np.nan), np.zeros((3, 1)), {0: []}, list("abc"))


def test_pie_slices_are_in_proportion() -> None:
    canvas = figures._Canvas(100, 100)
    colours = class_colours(3)
    canvas.pie(50, 50, 40, np.array([0.25, 0.7, 0.01]), colours)
    image = canvas.finish()
    area = np.array([near(image, colour, 10).sum() for colour in colours])
    np.testing.assert_allclose(area / (np.pi * 40**2), [0.25 / 0.96, 0.7 / 0.96, 0], atol=0.05)
    assert near(image, colours[1], 10)[50, 80]  # the largest comes first, clockwise from the top


# --- prototypes


def test_prototypes_has_a_row_for_each_slot_and_a_column_for_each_crop() -> None:
    rows = [Prototype(slot, 0.9, 0.1, np.array([0.9, 0.1]), [plain()] * 5) for slot in range(3)]
    one, three = figures.prototypes("suit", rows[:1]), figures.prototypes("suit", rows)
    assert three.width == one.width
    assert three.height - one.height == 2 * 148
    assert figures.prototypes("suit", rows, ["suit", "coat"]).height == three.height + 22  # a legend
    wide = Prototype(0, 0.9, 0.1, np.array([1.0]), [plain()] * 7)
    assert figures.prototypes("suit", [wide]).width == one.width + 2 * 136


def test_prototypes_without_slots_or_crops() -> None:
    figures.prototypes("suit", [])
    figures.prototypes("suit", [Prototype(0, 0.0, 0.0, np.zeros(3), [])], ["a", "b", "c"])


# --- bags


def bag(label: str = "suit", notes: tuple[str, ...] = ("one", "two")) -> BagView:
    boxes = np.array([[0, 0, 40, 30], [10, 5, 30, 25]], float)
    weights = [np.array([0.0, 1.0]), np.array([0.0, 0.0])]
    return BagView(label, [plain(), plain()], [boxes, boxes], weights, 0.3, notes)


def test_bag_figure_draws_kept_rois_and_greys_out_what_is_removed() -> None:
    image = figures.bag_figure([bag()])
    top = figures.MARGIN + figures.HEADING + 30
    row = 236 * 30 // 40 + 46
    columns = [figures.MARGIN + i * (236 + 26) for i in range(4)]
    blue = near(image, (0x30, 0x60, 0xC0), 6)
    middles = [[bool(blue[top + i * row + 20, x + 20]) for x in columns] for i in range(2)]
    assert middles == [[True, True, False, False], [True, False, False, False]]
    warmth = pixels(image)[..., 0] - pixels(image)[..., 2]  # (H, W)
    assert warmth[top + 88, columns[2] + 118] > 40
    assert warmth[top + 88 + row, columns[2] + 118] <= 0


def test_bag_figure_histogram_has_the_shares_of_the_pixels() -> None:
    canvas = figures._Canvas(320, 124)
    shade = np.array([[0.0, 0.0, 1.0, 0.5]])
    figures._histogram(canvas, 0, 0, 320, 124, shade, 0.8)
    drawn = ~near(canvas.finish(), figures.WHITE, 20)[17:114]  # between label and axis
    heights = drawn[:, [4, 4 + 310, 4 + 160, 100]].sum(axis=0)
    np.testing.assert_allclose(heights, [97, 48, 48, 0], atol=3)


def test_bag_figure_with_all_zero_weights_and_missing_notes() -> None:
    view = bag(notes=())
    nothing = BagView("x", view.images, view.boxes, [np.zeros(2), np.zeros(2)], 0.1)
    assert figures.bag_figure([nothing, view]).size[0] == figures.bag_figure([view]).size[0]
    assert min(figures.bag_figure([]).size) > 0
    figures.bag_figure([BagView("x", [plain(5, 900)], [np.zeros((0, 4))], [np.zeros(0)], 0.1)])


# --- evidence


@pytest.mark.parametrize("size", [(300, 200), (60, 400)])
def test_evidence_is_bright_where_it_is(size: tuple[int, int]) -> None:
    evidence = np.full((4, 4), -3.0)
    evidence[3, 0] = 5.0  # bottom left
    figure = figures.evidence_figure(plain(*size), evidence, "ash", 0.875, side=240)
    light = pixels(figure).sum(axis=2)  # (H, W)
    width, height = (round(length) for length in figures._fit(plain(*size), 240, 240))
    left, top = 20 + max(width, 200) + 20, 20 + figures.HEADING
    overlay = light[top : top + height, left : left + width]
    below, beside = overlay[int(0.85 * height), int(0.15 * width)], overlay[int(0.15 * height), int(0.85 * width)]
    assert below > beside + 150
    figures.evidence_figure(plain(8, 900), -np.ones((2, 3)), "ash", 0.1, side=240)  # none at all


# --- text


@pytest.mark.parametrize("label", ODD_LABELS)
def test_odd_labels(label: str) -> None:
    counts, d, r = memory(2, 2)
    usual = figures.memory_grid(2, counts, d, r, {}, ["a", "b"]).size
    assert figures.memory_grid(2, counts, d, r, {}, [label, label]).size == usual
    assert figures.contact_sheet([(label, [Tile(plain(), label)])]).width == 2 * figures.MARGIN + 4 * 126 - 14
    figures.prototypes(label, [Prototype(1, 0.5, 0.5, d[0], [plain()])], [label, label])
    assert figures.bag_figure([bag(label, (label, label))]).size == figures.bag_figure([bag()]).size
    figures.evidence_figure(plain(), np.ones((2, 2)), label, 0.5, side=100)


def test_long_text_ends_with_an_ellipsis_and_stays_inside() -> None:
    canvas = figures._Canvas(200, 40)
    canvas.text(10, 10, "w" * 200, 16, width=100)
    drawn = np.flatnonzero((~near(canvas.finish(), figures.WHITE)).any(axis=0))
    assert 80 < drawn.max() <= 111
    font = figures._font_for("w", 16)
    assert figures._shortened("w" * 200, font, 100).endswith("w…")
    assert figures._shortened("short", font, 100) == "short"


def test_text_is_one_line_without_control_characters() -> None:
    assert figures.one_line("a\n b\tc\0\u202ed\ud800") == "a b c d"
