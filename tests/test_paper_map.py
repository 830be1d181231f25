"""docs/paper-map.md names what exists, and leaves no equation out."""

import re
from importlib import import_module
from pathlib import Path

import pytest

MAP = Path(__file__).parent.parent / "docs" / "paper-map.md"
ROWS = [line for line in MAP.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`(somnet(?:\.\w+)+)`", row)})


def is_setting(name: str) -> bool:
    """`somnet.memory.detach` is a setting, not code."""
    return name.split(".")[1] in ("memory", "weighting", "images_per_bag")


@pytest.mark.parametrize("name", [name for name in NAMES if not is_setting(name)])
def test_each_name_of_the_map_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(import_module(module), attribute)


@pytest.mark.parametrize("part", [*(f"Eq. {number}" for number in range(1, 12)), "Algorithm 1"])
def test_each_equation_has_a_row_that_names_code(part: str) -> None:
    rows = [row for row in ROWS if row.startswith(f"| {part} |")]
    assert rows
    assert all(re.search(r"`somnet\.\w+\.", row) for row in rows)
