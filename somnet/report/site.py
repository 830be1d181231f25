"""The report of a run: a static site that opens from disk, with no server and no network."""

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from somnet.errors import RunError
from somnet.report.class_pages import IMAGES_PER_FILE, Beside, counts_below, seen, write_image_pages
from somnet.report.frame import Frame, script_data, write_data
from somnet.report.image_map import write_map_page
from somnet.report.memory_map import write_memory_pages
from somnet.report.originals import Originals
from somnet.report.overview import TITLES, read_duplicates, write_overview
from somnet.report.records import STATES, Records, read_records
from somnet.report.similar import find_similar, read_vectors
from somnet.report.thumbnails import write_pictures
from somnet.report.training_curves import write_training_page
from somnet.report.twins import write_twins
from somnet.runs.run_folder import PICTURES, RunFolder
from somnet.system.files import display_name
from somnet.system.folders import DECISIONS, DUPLICATES, ISSUES, REPORT, USED_DECISIONS
from somnet.system.replacing import clear_folder, is_written, replaced_folder, settle_folder
from somnet.system.version import VERSION

NAMES_PER_FILE = 5000
STORE = "store"  # data/store.js says where decisions are kept
_HERE = {"served": False, "version": VERSION}  # by the browser


def write_report(run: RunFolder, out: Path | None = None, *, pictures: int = PICTURES) -> Path:
    """Write the report of a finished run to `out`, by default RUN/report, and return its index.html.

    Of more images than `pictures`, every class shows its worst and best. An older report there is replaced
    once the new one is complete; what somnet did not write there stays, as decisions.csv.
    """
    out = run.path / REPORT if out is None else out
    try:
        with replaced_folder(out, REPORT, overwrite=True) as building:
            have = write_pages(run, building, pictures)
            run.refuse_rewritten()
            if pictures and not have.any() and (out / "pictures").is_dir():
                raise RunError(
                    f"there are no images at {run.data['path']}, and {out} still has their pictures, so it stays as it "
                    f"is: open {out / 'index.html'}, or bring the images back and write it again"
                )
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # of Arrow's, too
        run.refuse_rewritten()
        raise RunError(f"the files of {run.path} are damaged ({error!r}): train again with --overwrite") from error
    return out / "index.html"


def is_report(folder: Path) -> bool:
    """Whether a folder is a report, which may be replaced."""
    return is_written(folder, REPORT)


def is_whole_report(folder: Path) -> bool:
    """Whether a folder is a report that can be looked at. What a killed writer has left of one is put right."""
    settle_folder(folder)
    return is_written(folder, REPORT, whole=True) and (folder / "index.html").is_file()


def is_current(run: RunFolder) -> bool:
    """Whether a run has a report of its scores, written by this version."""
    folder = run.path / REPORT
    try:
        written = (folder / "data" / f"{STORE}.js").read_text(encoding="ascii")
        newer = (folder / "data" / "run.js").stat().st_mtime >= (run.path / ISSUES).stat().st_mtime
    except (OSError, ValueError):
        return False
    return is_whole_report(folder) and newer and written == script_data(STORE, _HERE)


def remove_report(folder: Path) -> None:
    """Delete a report. What is not of it stays, in a folder that may be replaced by the next report."""
    clear_folder(folder, REPORT)


def write_pages(run: RunFolder, folder: Path, pictures: int) -> NDArray[np.bool_]:
    """All pages of a report into an empty folder; (n,) which images have a picture."""
    frame = Frame(display_name(os.fsencode(run.path.resolve().name)))
    records = read_records(run)
    frame.write_static(folder)
    originals = Originals(run)
    have = write_pictures(records, originals, folder, pictures)
    write_data(folder, "run", describe_run(run, records))
    write_data(folder, STORE, _HERE)
    write_names(records, folder)
    groups = read_duplicates(run.path / DUPLICATES, len(records))
    twins = write_twins(records, groups, originals, folder)
    vectors = read_vectors(run, records)
    similar = None if vectors is None else find_similar(records, vectors, seen(records))
    write_image_pages(frame, records, have, Beside(twins, similar), folder)
    write_map_page(frame, vectors, ~records.unreadable, folder)
    write_memory_pages(frame, run, records, originals, folder)
    write_training_page(frame, run, folder)
    paths = {"run_path": run.path, "decisions_path": run.path / DECISIONS}
    typed = {name: shlex.quote(str(path)) for name, path in paths.items()}
    used = run.path / USED_DECISIONS
    typed["earlier"] = f" --decisions {shlex.quote(str(used))}" if used.is_file() else ""
    frame.write_page(folder, "decisions.html", "decisions.html", page="Decisions", **typed)
    write_overview(frame, run, records, have, folder)
    return have


def describe_run(run: RunFolder, records: Records) -> dict[str, Any]:
    """What every page may need of the run, for the scripts."""
    readable = ~records.unreadable & (records.label >= 0)
    counts = np.bincount(records.label[readable], minlength=len(records.classes))
    doubted = records.flags["label"] | records.flags["outlier"]
    issues = np.bincount(records.label[readable & doubted], minlength=len(records.classes))
    order = np.argsort(-issues / np.maximum(counts, 1), kind="stable")
    return {
        "fingerprint": run.data["fingerprint"],
        "classes": list(records.classes),
        "kinds": [{"name": state, "title": TITLES[state]} for state in STATES],  # by their bit in the flags of an image
        "counts": counts.tolist(),
        "order": [number for number in order.tolist() if counts[number]],  # the noisiest class first
        "images": int(readable.sum()),
        "rows": len(records),
        "below": counts_below(records.label_score[readable]),
        "threshold": round(100 * records.threshold),  # where the slider starts, in percent
        "imagesPerFile": IMAGES_PER_FILE,
        "namesPerFile": NAMES_PER_FILE,
    }


def write_names(records: Records, folder: Path) -> None:
    """data/names-K.js: how the images are called."""
    for number, first in enumerate(range(0, len(records), NAMES_PER_FILE)):
        rows = np.arange(first, min(first + NAMES_PER_FILE, len(records)))
        write_data(folder, f"names-{number}", records.names(rows))
