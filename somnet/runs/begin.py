"""Whether a run may be started in a folder, and its first files."""

import logging
import os
from pathlib import Path
from typing import Any

from somnet.config import Config, load_config
from somnet.data.cache import clear_cache
from somnet.data.dataset import DataSet
from somnet.data.decisions import read_rounds, write_decisions
from somnet.data.sources import absolute
from somnet.errors import RunError
from somnet.runs.data_changes import changes_of, write_images
from somnet.system.files import clear_leftovers, display_name, json_text, parse_json, write_text
from somnet.system.folders import (
    CONFIG,
    DATA,
    EXPORT,
    LAST,
    USED_DECISIONS,
    WRITTEN,
    refuse_strange_files,
    refuse_taken,
)

log = logging.getLogger("somnet")


def next_run_folder(base: Path = Path("runs")) -> Path:
    """The first of runs/1, runs/2, ... that is free."""
    number = 1
    while (base / str(number)).exists():
        number += 1
    return base / str(number)


def check_free(out: Path, config: Config, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that was not meant."""
    if resume and overwrite:
        raise RunError("--resume and --overwrite contradict each other: give one of them")
    refuse_strange_files(out)
    how = "--resume to continue, --overwrite to start over"
    refuse_taken(out, "a somnet run", ours=lambda: is_run(out), meant=resume or overwrite, how=how)
    if resume and is_run(out) and (out / CONFIG).is_file():  # without it, the run was killed before it started
        before = load_config(out / CONFIG)
        if before.hash() != config.hash():
            changed = _differences(before, config)
            raise RunError(f"{out} was started with other settings ({changed}): use the same ones, or add --overwrite")


def as_started(out: Path, config: Config, *, resume: bool) -> Config:
    """The config with the decisions, links, clean split and threads of the resumed run; others are refused."""
    if not resume or not is_run(out):
        return config
    before = load_config(out / CONFIG) if (out / CONFIG).is_file() else config
    for name in ("follow_links", "clean_val", "threads"):
        told, own = getattr(config, name), getattr(before, name)
        if told not in (Config.model_fields[name].default, own):
            raise RunError(f"{out} was started with {name} = {own}: leave out yours, or add --overwrite")
        config = config.model_copy(update={name: own})
    own = (str((out / USED_DECISIONS).resolve()),) if (out / USED_DECISIONS).is_file() else ()
    if config.decisions and read_rounds(config.decisions) != read_rounds(own):
        raise RunError(f"{out} was started with other decisions: give the same ones or none, or add --overwrite")
    return config.model_copy(update={"decisions": own})


def begin(out: Path, config: Config, data: DataSet, *, overwrite: bool) -> None:
    """Make the run folder ours, or find it as it was left. Only what training wrote is ever deleted."""
    decisions = read_rounds(config.decisions)
    if overwrite:
        for name in (*WRITTEN, str(LAST)):  # the summary first: it says that the run is finished
            (out / name).unlink(missing_ok=True)
        if (out / EXPORT).is_dir():
            log.warning("%s is still that of the training before: somnet export --overwrite", out / EXPORT)
    clear_leftovers(out)
    clear_cache()
    if (out / LAST).is_file() and (out / DATA).is_file():
        refuse_other_images(out, data)
        if has_other_tests(out, data):
            log.warning("the test images have changed since %s was started: its accuracies are of different ones", out)
    path, images = _place(data.path), len(data.train)
    prints = {"fingerprint": data.fingerprint(), "test_fingerprint": data.test_fingerprint()}
    about = {"path": path, "classes": data.classes, "images": images, **prints}
    _write_begin(out / DATA, json_text(about), anew=overwrite)  # first: it tells that the folder is a run's
    write_images(out, data)
    if decisions:
        write_decisions(out / USED_DECISIONS, decisions)
        config = config.model_copy(update={"decisions": (str((out / USED_DECISIONS).resolve()),)})
    _write_begin(out / CONFIG, config.to_toml(), anew=overwrite)


def _write_begin(file: Path, text: str, *, anew: bool) -> None:
    """Leave a file that says the same, unless all begins anew: readers of a run know by it whether it is the same."""
    if anew or not file.is_file() or file.read_bytes() != text.encode():
        write_text(file, text)


def is_of(out: Path, data: Path) -> bool:
    """Whether a run was started on the data of this place."""
    return bool(_about(out)["path"] == _place(data))


def refuse_other_images(out: Path, data: DataSet) -> None:
    """Refuse to continue a run with images that it was not started with."""
    if _about(out)["fingerprint"] != data.fingerprint():
        told = f" ({changes})" if (changes := changes_of(out, data)) else ""
        raise RunError(
            f"the training images of {data.path} are not those that {out} was started with, in "
            f"{_about(out)['path']}{told}: give these, restore what has changed, or --overwrite"
        )


def has_other_tests(out: Path, data: DataSet) -> bool:
    """Whether a run was started with other test images; older ones do not tell."""
    now = data.test_fingerprint()
    return bool(_about(out).get("test_fingerprint", now) != now)


def _about(out: Path) -> dict[str, Any]:
    return dict(parse_json((out / DATA).read_text(encoding="utf-8")))


def _place(data: Path) -> str:
    return display_name(os.fsencode(absolute(data)))


def is_run(folder: Path) -> bool:
    """Whether a folder is ours: it has the data.json that only a run has."""
    try:
        return "fingerprint" in parse_json((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _differences(old: Config, new: Config) -> str:
    before, now = (_flatten(config.model_dump()) for config in (old, new))
    known = before.keys() & now.keys() if old.method != new.method else before.keys() | now.keys()
    names = [name for name in {**before, **now} if name in known and before.get(name) != now.get(name)]
    return ", ".join(f"{name} was {before.get(name)}, now {now.get(name)}" for name in names)


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
