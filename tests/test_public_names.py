"""The names that the package promises."""

import subprocess
import sys

import pytest

import somnet


def test_the_names_are_sorted_and_can_be_imported() -> None:
    assert somnet.__all__ == sorted(somnet.__all__)
    for name in somnet.__all__:
        assert getattr(somnet, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = somnet.nope


def test_completion_offers_the_names() -> None:
    assert dir(somnet) == sorted(["__version__", *somnet.__all__])


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", True),
        ("import logging; logging.basicConfig(level=logging.WARNING, format='mine %(message)s')", False),
        ("import logging; logging.getLogger('somnet').setLevel(logging.WARNING)", False),
    ],
)
def test_a_program_sees_the_lines_of_the_command_line_unless_it_says_otherwise(before: str, shown: bool) -> None:
    script = f"""
{before}
import logging, somnet
somnet.Config
logging.getLogger("somnet").info("a line")
logging.getLogger("somnet").warning("a warning")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    lines = done.stderr.splitlines()
    assert lines.count("a line") == int(shown)
    assert len([line for line in lines if line.endswith("a warning")]) == 1  # never twice


@pytest.mark.parametrize("code", ["import somnet", "from somnet import Config, SomnetError", "import somnet.cli.main"])
def test_torch_is_not_loaded_before_it_is_needed(code: str) -> None:
    script = f"{code}; import sys; print(*[name for name in ('torch', 'timm', 'cv2') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == ""
