"""A cleaned copy of a run's data: an ImageFolder of what stays, a manifest, lists of what went or is in doubt."""

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from somnet.cleaning.lists import staying, write_changed, write_in_doubt, write_removed
from somnet.cleaning.names import Names
from somnet.cleaning.verdicts import POLICIES, Policy, Verdicts, judge
from somnet.data.decisions import DROP, KEEP, RELABEL, Decision, check_decisions, read_decisions
from somnet.data.decode import read_picture
from somnet.data.index import Index
from somnet.data.location import Location, bring
from somnet.data.sources import open_source, split_name
from somnet.errors import ConfigError, RunError, did_you_mean
from somnet.exports.huggingface import write_huggingface
from somnet.exports.label_formats import ANNOTATIONS, Box, Labelled, write_cleanlab
from somnet.runs.data_changes import find_changes
from somnet.runs.limits import read_run_table
from somnet.runs.notebook import html_table
from somnet.runs.run_folder import RunFolder
from somnet.system.files import display_name
from somnet.system.folders import DECISIONS, REGIONS, USED_DECISIONS, refuse_inside
from somnet.system.progress import Advance, track
from somnet.system.replacing import replaced_folder
from somnet.system.signals import AGAIN, stopping_signals

log = logging.getLogger("somnet")

METADATA, REMOVED, CHANGED, IN_DOUBT = "metadata.parquet", "removed.csv", "changed.csv", "kept_in_doubt.csv"
FORMATS = ("imagefolder", *ANNOTATIONS, "cleanlab", "huggingface")
CROP_QUALITY = 95
MARGIN = 0.15  # around a crop, as a share of its sides: what is at the edge of a box is often part of the thing

SCHEMA = pa.schema(
    [
        ("file_name", pa.string()),
        ("label", pa.string()),
        ("split", pa.string()),
        ("weight", pa.float32()),
        ("box", pa.list_(pa.float32())),  # x1 y1 x2 y2, pixels of the file here, upright
        ("label_score", pa.float32()),
        ("background_score", pa.float32()),
        ("original_path", pa.string()),
        ("original_label", pa.string()),
    ]
)


@dataclass(frozen=True)
class CleaningRules:
    """What is removed and what stays."""

    policy: Policy = "drop"  # or crop, reweight, relabel
    threshold: float | None = None  # a label_score below it is a wrong label; None: chosen from the scores
    max_drop_per_class: float = 0.5  # share of a class that may go for its labels; the best-scored stay
    decisions: Path | str | None = None  # decisions.csv of the report, which overrides the scores; None: the run's own
    drop_poor: bool = False  # whether all poor pictures go; else only blank ones

    def check(self) -> None:
        """Refuse rules that mean nothing."""
        if self.policy not in POLICIES:
            near = did_you_mean(self.policy, POLICIES)
            raise ConfigError(f"there is no policy '{self.policy}':{near} choose one of {', '.join(POLICIES)}")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ConfigError(f"the threshold {self.threshold} is not a score: give a number from 0 to 1")
        if not 0 <= self.max_drop_per_class <= 1:
            raise ConfigError(f"max-drop-per-class {self.max_drop_per_class} is not a share: give a number from 0 to 1")


@dataclass(frozen=True)
class Cleaned:
    """What cleaning did, or with a dry run would do."""

    out: Path
    threshold: float  # a label_score below it is doubted
    kept: dict[str, int]  # training images by class
    removed: dict[str, dict[str, int]]  # by class and reason: one of somnet.runs.kinds, or decision
    relabelled: int
    cropped: int
    in_doubt: int  # images that were kept all the same

    def _repr_html_(self) -> str:
        reasons = sorted({reason for counts in self.removed.values() for reason in counts})
        names = sorted({*self.kept, *self.removed})
        gone = [[self.removed.get(name, {}).get(reason, 0) for reason in reasons] for name in names]
        rows = [(name, self.kept.get(name, 0), *counts) for name, counts in zip(names, gone, strict=True)]
        return html_table(f"Cleaned: {self.out}", ("class", "kept", *reasons), rows)


def clean(
    run: RunFolder | Path | str,
    out: Path | str,
    rules: CleaningRules | None = None,
    *,
    formats: Sequence[str] = ("imagefolder",),
    data: Path | str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
) -> Cleaned:
    """Write a cleaned copy of the data that a run was trained on; the data themselves are never changed.

    `rules` say what is removed. `data` says where the data are now, if they have moved.
    """
    run, rules = run if isinstance(run, RunFolder) else RunFolder(run), rules or CleaningRules()
    out, source = Path(out), Path(run.data["path"] if data is None else data)
    rules.check()
    if unknown := [name for name in formats if name not in FORMATS]:
        near = did_you_mean(unknown[0], FORMATS)
        raise ConfigError(f"there is no format '{unknown[0]}':{near} choose from {', '.join(FORMATS)}")
    scores = run.scores()
    decided = _decisions(run, rules)
    check_decisions(decided, scores["file_name"].to_pylist(), run.classes)
    verdicts = judge(
        scores,
        rules.policy,
        threshold=rules.threshold,
        max_drop_per_class=rules.max_drop_per_class,
        drop_poor=rules.drop_poor,
        decisions=decided,
    )
    result = _count(out, scores, verdicts)
    if dry_run:
        return result
    _, place = split_name(source)
    if not place.exists():
        moved = "" if data is not None else " say where they are now with --data"
        raise RunError(f"{place} is not there:{moved or ' give the place of the data that were trained on'}")
    index = open_source(source, follow_links=run.config.follow_links)
    _check_place(out, run.path, place if place.is_dir() else place.parent)
    with stopping_signals(AGAIN), replaced_folder(out, "cleaned data set", overwrite=overwrite) as building:
        _check_images(run, index)
        _write(building, _Job(run, index, scores, verdicts), formats)
        run.refuse_rewritten()
    return result


def _decisions(run: RunFolder, rules: CleaningRules) -> dict[str, Decision]:
    """What a person decided about the run's images: before the training, and since then.

    The latter is in the file that was given, or else that of `somnet review`, and counts more.
    """
    used = _used_decisions(run)
    dropped = {name for name, one in used.items() if one.action == DROP}
    kept = {name: Decision(KEEP) for name, one in used.items() if one.action in (KEEP, RELABEL)}  # with its new label
    file = run.path / DECISIONS if rules.decisions is None else Path(rules.decisions)
    if rules.decisions is None and not file.is_file():
        return kept
    decided = read_decisions(file)
    if rules.decisions is None:
        log.info("%s: what was decided there is followed", file)
    if wanted := [name for name, one in decided.items() if name in dropped and one.action in (KEEP, RELABEL)]:
        raise ConfigError(
            f"{wanted[0]} was dropped before {run.path} was trained, so nothing is known of it there: train again with "
            f"--decisions {run.path / USED_DECISIONS} --decisions {file}, and clean that run"
        )
    return kept | {name: one for name, one in decided.items() if name not in dropped}


def _dropped_labels(job: "_Job") -> dict[str, str]:
    """The images that a person had dropped before the training, and their labels, as far as they are still there."""
    gone, index = [name for name, one in _used_decisions(job.run).items() if one.action == DROP], job.index
    known = dict(zip(map(display_name, index.column("file_name")), index.labels(), strict=True)) if gone else {}
    return {name: index.classes[known[name]] if known.get(name, -1) >= 0 else "" for name in gone}


def _used_decisions(run: RunFolder) -> dict[str, Decision]:
    """What a person had decided before the training."""
    file = run.path / USED_DECISIONS
    return read_decisions(file) if file.is_file() else {}


def _check_images(run: RunFolder, index: Index) -> None:
    """Refuse to judge pictures by the scores of others."""
    changes = find_changes(run.path, index)
    if changes.replaced:
        raise RunError(
            f"images have changed since {run.path} was trained ({changes}), so its scores are not about them: restore "
            "them, or train again"
        )
    if changes:
        log.warning("the training images have changed since %s was trained: %s", run.path, changes)


def _check_place(out: Path, run: Path, data: Path) -> None:
    refuse_inside(out, data)
    if data.resolve().is_relative_to(out.resolve()):
        raise RunError(f"the data {data} lie inside {out}, which would be replaced: give another --out")
    if out.resolve().is_relative_to(run.resolve()):
        raise RunError(f"{out} lies inside the run {run}, which may be deleted with it: give another --out")


def _count(out: Path, scores: pa.Table, verdicts: Verdicts) -> Cleaned:
    given = scores["given_label"].to_pylist()
    removed: dict[str, Counter[str]] = defaultdict(Counter)
    kept: Counter[str] = Counter({label: 0 for label in given if label is not None})
    for old, new, reason in zip(given, verdicts.labels, verdicts.reasons, strict=True):
        if reason is None:
            kept[str(new)] += 1
        else:
            removed[old or ""][reason] += 1
    relabelled = sum(
        reason is None and old != new for old, new, reason in zip(given, verdicts.labels, verdicts.reasons, strict=True)
    )
    by_class = {label: dict(counts) for label, counts in sorted(removed.items())}
    cropped, doubtful = int(verdicts.crops.sum()), sum(doubt is not None for doubt in verdicts.doubts)
    return Cleaned(out, verdicts.threshold, dict(sorted(kept.items())), by_class, relabelled, cropped, doubtful)


def _write(folder: Path, job: "_Job", formats: Sequence[str]) -> None:
    """The cleaned data set: images, what is known of them, what was removed and why, and labels for other programs."""
    others = [row for row in range(len(job.index)) if _is_other(job.index, row)]
    with track("cleaned images", job.scores.num_rows + len(others)) as advance:
        names = Names()
        images, listed = _write_training_images(folder, job, names, advance)
        listed += _write_other_images(folder, job.index, others, names, advance)
    pq.write_table(pa.Table.from_pylist(listed, schema=SCHEMA), folder / METADATA, compression="zstd")
    write_removed(folder / REMOVED, job.scores, job.verdicts, _dropped_labels(job))
    stay = list(zip(images, staying(job.verdicts), strict=True))
    write_changed(folder / CHANGED, stay, job.scores, job.verdicts)
    write_in_doubt(folder / IN_DOUBT, stay, job.scores, job.verdicts)
    for name in dict.fromkeys(formats):
        if name in ANNOTATIONS:
            ANNOTATIONS[name](folder, images, job.run.classes)
        elif name == "cleanlab":
            write_cleanlab(folder, job.scores)
        elif name == "huggingface":
            write_huggingface(folder, listed, job.run.classes)


@dataclass(frozen=True)
class _Job:
    """What is written, from what."""

    run: RunFolder
    index: Index
    scores: pa.Table
    verdicts: Verdicts


def _write_training_images(
    folder: Path, job: _Job, names: Names, advance: Advance
) -> tuple[list[Labelled], list[dict[str, Any]]]:
    """Bring the training images that stay; their labels for other programs, and their rows of the manifest."""
    index, scores, verdicts = job.index, job.scores, job.verdicts
    rows, sizes, boxes = (
        _rows_of(scores["file_name"].to_pylist(), index, verdicts),
        _sizes(job.run, scores),
        scores["clean_box"].to_pylist(),
    )
    images, listed = [], []
    for place, row in enumerate(rows):
        advance(1)
        label = verdicts.labels[place]
        if verdicts.reasons[place] is not None or label is None or row is None:
            continue
        original, source = _original(index, row), index.location(row)
        box: Box = tuple(boxes[place])
        width, height = sizes[place]
        if verdicts.crops[place]:
            name = names.new("train", label, os.path.splitext(os.path.basename(original))[0] + ".jpg")
            cut = with_margin(box, width, height)
            box = (box[0] - cut[0], box[1] - cut[1], box[2] - cut[0], box[3] - cut[1])
            width, height = _crop(source, cut, folder / name)
        else:
            name = names.new("train", label, os.path.basename(original))
            bring(source, folder / name)
        score = scores["label_score"][place].as_py()
        images.append(Labelled(name, label, width, height, box, score))
        listed.append(
            {
                "file_name": name,
                "label": label,
                "split": "train",
                "weight": verdicts.weights[place],
                "box": box,
                "label_score": score,
                "background_score": scores["background_score"][place].as_py(),
                "original_path": display_name(os.fsencode(os.path.abspath(original))),
                "original_label": scores["given_label"][place].as_py(),
            }
        )
    return images, listed


def _write_other_images(
    folder: Path, index: Index, rows: list[int], names: Names, advance: Advance
) -> list[dict[str, Any]]:
    """Bring the images of splits that were not trained on, as they are; their rows of the manifest."""
    listed = []
    for row in rows:
        advance(1)
        original, split = _original(index, row), index.table["split"][row].as_py()
        label = index.classes[index.table["label"][row].as_py()]
        name = names.new(split, label, os.path.basename(original))
        bring(index.location(row), folder / name)
        path = display_name(os.fsencode(os.path.abspath(original)))
        known = {"file_name": name, "label": label, "split": split, "weight": 1.0}
        listed.append({**known, "original_path": path, "original_label": label})
    return listed


def _rows_of(names: list[str], index: Index, verdicts: Verdicts) -> list[int | None]:
    """The row of the index for each image of the scores: by name, and in order where a name occurs twice.

    None: it is not there any more, but it would not stay either.
    """
    places: dict[str, list[int]] = defaultdict(list)
    splits = index.column("split")
    for row, name in reversed(list(enumerate(index.column("file_name")))):
        if splits[row] == "train":
            places[display_name(name)].append(row)
    rows: list[int | None] = []
    for name, reason in zip(names, verdicts.reasons, strict=True):
        if not places[name] and reason is None:
            raise RunError(
                f"{name} is not in {index.root} any more: restore the data, or say where they are now with --data"
            )
        rows.append(places[name].pop() if places[name] else None)
    return rows


def _is_other(index: Index, row: int) -> bool:
    """Whether a row is a usable file of a split that was not trained on."""
    table = index.table
    if table["split"][row].as_py() == "train" or table["problem"][row].as_py() is not None:
        return False
    return os.path.isfile(index.path(row))


def _sizes(run: RunFolder, scores: pa.Table) -> list[tuple[int, int]]:
    """Width and height of each image: its region 0 is the image itself; (0, 0) where it is unreadable."""
    try:
        regions = read_run_table(run.path / REGIONS, ["region", "box"])
    except (OSError, pa.ArrowException):
        raise RunError(f"{run.path} has no regions.parquet: continue with somnet train --resume") from None
    whole = regions.filter(pc.equal(regions["region"], 0))["box"].to_pylist()  # in the order of the scores
    sizes = [(round(box[2]), round(box[3])) for box in whole]
    return sizes + [(0, 0)] * (scores.num_rows - len(sizes))


def _original(index: Index, row: int) -> str:
    """How an image is called in its data: a path that exists, unless it lies in an archive."""
    return os.path.join(index.root, os.fsdecode(index.table["file_name"][row].as_py()))


def with_margin(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """A box and what is around it, in whole pixels, within an image of this size."""
    x, y = MARGIN * (box[2] - box[0]), MARGIN * (box[3] - box[1])
    x1, y1 = max(0, int(box[0] - x)), max(0, int(box[1] - y))
    return x1, y1, min(width, max(x1 + 1, round(box[2] + x))), min(height, max(y1 + 1, round(box[3] + y)))


def _crop(source: Location, cut: tuple[int, int, int, int], target: Path) -> tuple[int, int]:
    """Write a crop of an image, upright, and return its size."""
    crop = read_picture(source).image.crop(cut)
    target.parent.mkdir(parents=True, exist_ok=True)
    crop.save(target, "JPEG", quality=CROP_QUALITY, subsampling=0)
    return crop.size
