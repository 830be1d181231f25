"""What all pages of a report share: the templates, the navigation, and the way data reaches a page."""

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

NAVIGATION = (
    ("Overview", "index.html"),
    ("Issues", "list.html"),
    ("Classes", "class.html"),
    ("Map", "map.html"),
    ("Memory", "memory.html"),
    ("Training", "training.html"),
    ("Decisions", "decisions.html"),
)
POLICY = (  # of what a page may load: files of the report alone, and no script or style within the page
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


class Frame:
    """The frame around every page of one report."""

    def __init__(self, run_name: str) -> None:
        self.environment = Environment(
            loader=PackageLoader("somnet", "report/pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals.update(run_name=run_name, navigation=NAVIGATION, policy=POLICY)

    def render(self, template: str, *, page: str, root: str = "", **values: Any) -> str:
        """A page from its template; `page` is its name in the navigation, `root` leads to the report's folder."""
        return self.environment.get_template(template).render(page=page, root=root, **values)

    def write_page(self, folder: Path, file: str, template: str, *, page: str, **values: Any) -> None:
        """Render a page that lies at the top of the report."""
        text = self.render(template, page=page, **values)
        (folder / file).write_text(text, encoding="utf-8", errors="backslashreplace")

    def write_static(self, folder: Path) -> None:
        """Copy styles, scripts and the icon into a report."""
        (folder / "data").mkdir(exist_ok=True)
        with as_file(files("somnet") / "report" / "pages") as pages:
            (folder / "data" / "icon.svg").write_bytes((pages / "icon.svg").read_bytes())
            for file in sorted(pages.iterdir()):
                if file.suffix in (".css", ".js"):
                    (folder / file.name).write_bytes(file.read_bytes())


def write_data(folder: Path, name: str, value: Any) -> None:
    """data/NAME.js: a script that hands a value to the page, which asks for it with `somnet.load(NAME)`."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / f"{name}.js").write_text(script_data(name, value), encoding="ascii")


def script_data(name: str, value: Any) -> str:
    """The content of data/NAME.js."""
    return f"somnet.data({script_json(name)}, {script_json(value)});\n"


def script_json(value: Any) -> str:
    """JSON in ASCII that cannot end the script or the line it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)
