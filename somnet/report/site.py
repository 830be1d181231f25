"""The report of a run: a static site that opens from disk, with no server and no network."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from somnet.errors import RunError
from somnet.report.class_pages import IMAGES_PER_FILE, counts_below, write_class_pages
from somnet.report.frame import Frame, write_data
from somnet.report.memory_map import write_memory_pages
from somnet.report.overview import write_overview
from somnet.report.records import Records, read_records
from somnet.report.thumbnails import write_pictures
from somnet.report.training_curves import write_training_page
from somnet.runs.run import Run
from somnet.system.files import display_name, replace_folder
from somnet.system.folders import REPORT

PICTURES = 20_000  # at most, of all classes together
NAMES_PER_FILE = 5000
_OURS = Path("data") / "run.js"  # only a report has it
_FOLDERS = ("crops", "data", "pictures")
_PAGES = (".css", ".html", ".js")


def write_report(run: Run, out: Path | None = None, *, pictures: int = PICTURES) -> Path:
    """Write the report of a finished run to `out`, by default RUN/report, and return its index.html.

    Of more images than `pictures`, every class shows its worst and best. An older report there is replaced
    once the new one is complete; what somebody else has put beside its pages stays, as decisions.csv.
    """
    out = run.path / REPORT if out is None else out
    if out.exists() and not is_report(out):
        raise RunError(f"{out} exists and is not a report: give another folder, or move it away")
    building = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(building, ignore_errors=True)  # of a report that was killed
        building.mkdir(parents=True)
        have = write_pages(run, building, pictures)
        if pictures and not have.any() and (out / "pictures").is_dir():
            raise RunError(
                f"there are no images at {run.data['path']}, and {out} still has their pictures, so it stays as it is: "
                f"open {out / 'index.html'}, or bring the images back and write it again"
            )
        for file in _not_ours(out):
            _copy(file, building / file.name)
        replace_folder(building, out)
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror}: choose a writable place with free space") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # of Arrow's, too
        raise RunError(f"the files of {run.path} are damaged ({error!r}): train again with --overwrite") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return out / "index.html"


def is_report(folder: Path) -> bool:
    """Whether a folder is a report, which may be replaced."""
    return (folder / _OURS).is_file()


def is_whole_report(folder: Path) -> bool:
    """Whether a folder is a report that can be looked at."""
    return is_report(folder) and (folder / "index.html").is_file()


def remove_report(folder: Path) -> None:
    """Delete a report. What is not of it stays, in a folder that may be replaced by the next report."""
    if not _not_ours(folder):
        shutil.rmtree(folder)
        return
    for file in folder.iterdir():
        if file.suffix in _PAGES and file.is_file():
            file.unlink()


def _not_ours(folder: Path) -> list[Path]:
    """What lies beside the pages of a report and is none of them; nothing where there is no folder."""
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file for file in entries if file.name not in _FOLDERS and file.suffix not in _PAGES]


def _copy(source: Path, target: Path) -> None:
    """Not moved: whenever it is killed, the file is still in the one folder or in the other."""
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def write_pages(run: Run, folder: Path, pictures: int) -> NDArray[np.bool_]:
    """All pages of a report into an empty folder; (n,) which images have a picture."""
    frame = Frame(display_name(os.fsencode(run.path.resolve().name)))
    records = read_records(run)
    frame.write_static(folder)
    have = write_pictures(records, Path(run.data["path"]), folder, pictures)
    write_data(folder, "run", describe_run(run, records))
    write_names(records, have, folder)
    write_class_pages(frame, records, have, folder)
    write_memory_pages(frame, run, records, folder)
    write_training_page(frame, run, folder)
    frame.write_page(folder, "decisions.html", "decisions.html", page="Decisions", run_path=shlex.quote(str(run.path)))
    write_overview(frame, run, records, have, folder)
    return have


def describe_run(run: Run, records: Records) -> dict[str, Any]:
    """What every page may need of the run, for the scripts."""
    readable = ~records.unreadable & (records.label >= 0)
    counts = np.bincount(records.label[readable], minlength=len(records.classes))
    doubted = records.flags["label"] | records.flags["outlier"]
    issues = np.bincount(records.label[readable & doubted], minlength=len(records.classes))
    order = np.argsort(-issues / np.maximum(counts, 1), kind="stable")
    return {
        "fingerprint": run.data["fingerprint"],
        "classes": list(records.classes),
        "counts": counts.tolist(),
        "order": [number for number in order.tolist() if counts[number]],  # the noisiest class first
        "images": int(readable.sum()),
        "rows": len(records),
        "below": counts_below(records.label_score[readable]),
        "threshold": round(100 * records.threshold),  # where the slider starts, in percent
        "imagesPerFile": IMAGES_PER_FILE,
        "namesPerFile": NAMES_PER_FILE,
    }


def write_names(records: Records, pictures: NDArray[np.bool_], folder: Path) -> None:
    """data/names-K.js: which image a row is, for the list of decisions."""
    for number, first in enumerate(range(0, len(records), NAMES_PER_FILE)):
        rows = np.arange(first, min(first + NAMES_PER_FILE, len(records)))
        have = "".join("01"[one] for one in pictures[rows].astype(int))
        write_data(
            folder,
            f"names-{number}",
            {"name": records.names(rows), "label": records.label[rows].tolist(), "pictures": have},
        )
