"""Writes the tables of settings into docs/configuration.md: `make docs`. A test notices when they are out of date."""

from pathlib import Path

from somnet.cli.settings import all_method_settings, markdown, shared_settings

PAGE = Path(__file__).with_name("configuration.md")
MARK = "<!-- the tables below are written by make docs -->\n"


def tables() -> str:
    """All settings, section by section."""
    methods = [f"\n### `[{name}]`\n\n{markdown(lines)}" for name, lines in all_method_settings().items()]
    return "\n## Every run\n\n" + markdown(shared_settings()) + "\n## One method each\n" + "".join(methods)


def page(text: str) -> str:
    """The page with its tables as they should be."""
    return text.partition(MARK)[0] + MARK + tables()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
