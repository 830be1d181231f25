"""Whether a run may be started in a folder, and its first files."""

import os
from pathlib import Path
from typing import Any

from somnet.config import Config, load_config
from somnet.data.dataset import DataSet
from somnet.data.sources import absolute
from somnet.errors import RunError
from somnet.system.files import cache_folder, clear_leftovers, display_name, parse_json, write_json, write_text
from somnet.system.folders import CONFIG, DATA, LAST, WRITTEN, refuse_taken


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
    ours = is_run(out)
    how = "--resume to continue, --overwrite to start over"
    refuse_taken(out, "a somnet run", ours=ours, meant=resume or overwrite, how=how)
    if ours and resume and (out / CONFIG).is_file():  # without it, the run was killed before it started
        before = load_config(out / CONFIG)
        if before.hash() != config.hash():
            changed = _differences(before, config)
            raise RunError(f"{out} was started with other settings ({changed}): use the same ones, or add --overwrite")


def begin(out: Path, config: Config, data: DataSet, *, overwrite: bool) -> None:
    """Make the run folder ours, or find it as it was left. Only what training wrote is ever deleted."""
    if overwrite:
        for name in (*WRITTEN, str(LAST)):  # the summary first: it says that the run is finished
            (out / name).unlink(missing_ok=True)
    clear_leftovers(out)
    clear_leftovers(cache_folder(), hours=1)
    fingerprint = data.fingerprint()
    if (out / LAST).is_file() and (out / DATA).is_file():
        before = parse_json((out / DATA).read_text(encoding="utf-8"))
        if before["fingerprint"] != fingerprint:
            raise RunError(
                f"the training images of {data.path} have changed since {out} was started: restore them, or --overwrite"
            )
    path = display_name(os.fsencode(absolute(data.path)))
    about = {"path": path, "classes": data.classes, "images": len(data.train), "fingerprint": fingerprint}
    write_json(out / DATA, about)
    write_text(out / CONFIG, config.to_toml())


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
