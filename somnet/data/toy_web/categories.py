"""The categories of the toy web: how an object of each is painted, and which other one is found in its place."""

from collections.abc import Callable

from somnet.data.toy_web.animals import bee, butterfly, clownfish, ladybird, owl
from somnet.data.toy_web.brush import Brush
from somnet.data.toy_web.plants import cactus, lemon, mushroom, pear, strawberry
from somnet.data.toy_web.vehicles import balloon, sailboat

THINGS: dict[str, Callable[[Brush], None]] = {
    draw.__name__: draw
    for draw in (
        balloon,
        bee,
        butterfly,
        cactus,
        clownfish,
        ladybird,
        lemon,
        mushroom,
        owl,
        pear,
        sailboat,
        strawberry,
    )
}
CATEGORIES: tuple[str, ...] = tuple(sorted(THINGS))

# A search for one object finds its relative: what a swapped picture shows.
_RELATIVES = (
    ("bee", "ladybird"),
    ("butterfly", "owl"),
    ("lemon", "pear"),
    ("mushroom", "strawberry"),
    ("sailboat", "balloon"),
    ("cactus", "clownfish"),
)
RELATED = {a: b for pair in _RELATIVES for a, b in (pair, pair[::-1])}
