"""The report of a run: a static site that opens from disk, with no server and no network."""

import os
import shutil
from pathlib import Path

from somnet.errors import RunError
from somnet.report.frame import Frame, write_data
from somnet.run import Run

REPORT = "report"
_OURS = Path("data") / "run.js"  # only a report has it


def write_report(run: Run, out: Path | None = None) -> Path:
    """Write the report of a finished run to `out`, by default RUN/report, and return its index.html.

    An older report there is replaced at the end, so that a kill leaves the old one or the new one.
    """
    out = run.path / REPORT if out is None else out
    if out.exists() and not (out / _OURS).is_file():
        raise RunError(f"{out} exists and is no report: give another folder, or move it away")
    building = out.with_name(f".{out.name}.part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    write_pages(run, building)
    if out.exists():
        old = out.with_name(f".{out.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(out, old)
        os.replace(building, out)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(building, out)
    return out / "index.html"


def write_pages(run: Run, folder: Path) -> None:
    """All pages of a report into an empty folder."""
    frame = Frame(run.path.resolve().name)
    frame.write_static(folder)
    write_data(folder, "run", {"fingerprint": run.data["fingerprint"], "classes": list(run.classes)})
