"""Drills, drawn at random: nothing of the user's is lost, and no result is wrong without a word."""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from time import sleep
from typing import TYPE_CHECKING

import pytest
import torch

from tests.faults.conftest import TABLES, Result
from tests.faults.disturbed import (
    BrokenImage,
    DamagedCache,
    DeletedCache,
    Ended,
    Fault,
    FullFiles,
    Moment,
    Signal,
    SwappedFiles,
    somnet_process,
)
from tests.faults.mutations import mutated
from tests.faults.test_strangers_runs import HARM, MEGABYTES

if TYPE_CHECKING:
    from tests.conftest import Photos, Tiny

SHORT, LONG = range(1), range(1, 7)  # of each kind: 9 drills, and 54
OWN = {".git/HEAD": "ref: main", "decisions.csv": "an evening's work", "notes/a.txt": "mine"}
DRAWN = ("config.toml", "data.json", "metrics.jsonl", "summary.json", "images.parquet", *TABLES)


@dataclass(frozen=True)
class Ground:
    """Data of its own, the run that is trained on it undisturbed, and room for drills."""

    place: Path
    data: Path
    words: tuple[object, ...]
    counts: dict[str, int]
    result: Result

    def somnet(
        self,
        *words: object,
        cache: Path,
        moment: Moment | None = None,
        fault: Fault | None = None,
        counted: bool = False,
        who: str = "",
    ) -> Ended:
        notes = self.place / f"notes{who}"
        return somnet_process(words, notes, cache=cache, moment=moment, fault=fault, counted=counted)

    def fresh(self, number: int) -> tuple[Path, Path]:
        """The run folder of a drill, which is not there yet, and a cache that has what the first run left."""
        drill = self.place / f"drill{number}"
        shutil.rmtree(drill, ignore_errors=True)
        return drill / "run", Path(shutil.copytree(self.place / "cache", drill / "cache"))

    def copy(self, number: int) -> Path:
        """The finished run in another place."""
        run, _ = self.fresh(number)
        return Path(shutil.copytree(self.place / "run", run))


@pytest.fixture(scope="module")
def ground(photos: "Photos", tiny: "Tiny", tmp_path_factory: pytest.TempPathFactory) -> Ground:
    place = tmp_path_factory.mktemp("drills")
    data = photos.fill(place / "web", names=("ash", "oak"), train=6, test=2)
    words = ("train", data, *tiny.flags(), "--method", "somnet", "--epochs", 3, "--workers", 0)
    ended = somnet_process([*words, "--out", place / "run"], place / "notes", cache=place / "cache")
    assert ended.code == 0, ended.text
    again = [*words, "--out", place / "again" / "run"]  # now with a cache, as the drills have it
    ended = somnet_process(again, place / "notes", cache=place / "cache", counted=True)
    result = Result.of(place / "again" / "run")
    result.must_equal(Result.of(place / "run"))
    return Ground(place, data, words, dict(ended.counts), result)


def drawn_moment(counts: dict[str, int], rng: random.Random) -> Moment:
    stage = rng.choice(sorted(counts))
    return Moment(stage, rng.randint(1, max(1, int(0.95 * counts[stage]))))


def must_end_well(ended: Ended) -> None:
    assert ended.code in (0, 2), ended.text
    assert "Traceback" not in ended.text, ended.text


def damaged_cache(ground: Ground, number: int) -> None:
    """Bits of the cache change at any moment: the same bytes come out, at once or when the run is resumed."""
    _, cache = ground.fresh(number)
    must_come_out_the_same(ground, number, DamagedCache(cache, number))


def deleted_cache(ground: Ground, number: int) -> None:
    """The same where files of the cache are deleted, as by `somnet cache --prune` of somebody else."""
    _, cache = ground.fresh(number)
    must_come_out_the_same(ground, number, DeletedCache(cache, number))


def must_come_out_the_same(ground: Ground, number: int, fault: Fault) -> None:
    run, cache = ground.place / f"drill{number}" / "run", ground.place / f"drill{number}" / "cache"
    moment = drawn_moment(ground.counts, random.Random(number))
    ended = ground.somnet(*ground.words, "--out", run, cache=cache, moment=moment, fault=fault)
    must_end_well(ended)
    if ended.code == 2:
        assert "train.lr" not in ended.text  # the learning rate is not to blame
        ended = ground.somnet(*ground.words, "--out", run, "--resume", cache=cache)
        assert ended.code == 0, ended.text
    Result.of(run).must_equal(ground.result)


def swapped_files(ground: Ground, number: int) -> None:
    """Two images change places under a run: it ends with the name of one, or has seen nothing of it."""
    rng = random.Random(number)
    run, cache = ground.fresh(number)
    if rng.random() < 0.5:
        shutil.rmtree(cache)  # then files are read while the run goes on
    images = [rng.choice(sorted((ground.data / "train" / name).iterdir())) for name in ("ash", "oak")]
    fault = SwappedFiles(*images)
    moment = drawn_moment(ground.counts, rng)
    ended = ground.somnet(*ground.words, "--out", run, cache=cache, moment=moment, fault=fault)
    must_end_well(ended)
    if ended.code == 0:
        found = Result.of(run)
        if any(found.files[name] != ground.result.files[name] for name in TABLES):  # swapped before any file was read
            other = run.with_name("other")
            assert ground.somnet(*ground.words, "--out", other, cache=cache).code == 0
            must_agree(found, Result.of(other))
        else:
            must_agree(found, ground.result)
    else:
        assert any(image.name in ended.text for image in images), ended.text
    if ended.seconds_left is not None:
        fault.strike()  # they are back
    if ended.code == 2:
        ended = ground.somnet(*ground.words, "--out", run, "--resume", cache=cache)
        assert ended.code == 0, ended.text
        Result.of(run).must_equal(ground.result)


def broken_image(ground: Ground, number: int) -> None:
    """An image is deleted, cut off or becomes a pipe under a run: it is named, or the run has seen nothing of it."""
    rng = random.Random(number)
    run, cache = ground.fresh(number)
    if rng.random() < 0.7:
        shutil.rmtree(cache)
    image = rng.choice(sorted((ground.data / "train" / "oak").iterdir()))
    content, status = image.read_bytes(), image.stat()
    moment, fault = drawn_moment(ground.counts, rng), BrokenImage(image, number)
    ended = ground.somnet(*ground.words, "--out", run, cache=cache, moment=moment, fault=fault)
    must_end_well(ended)
    if ended.code == 0 and any(
        (run / name).read_bytes() != ground.result.files[name] for name in TABLES
    ):  # broken before it was listed
        other = run.with_name("other")
        assert ground.somnet(*ground.words, "--out", other, cache=cache).code == 0
        must_agree(Result.of(run), Result.of(other))
    elif ended.code == 2:
        assert image.name in ended.text, ended.text
    if image.is_dir():
        image.rmdir()
    image.unlink(missing_ok=True)
    image.write_bytes(content)
    os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns))
    shutil.rmtree(run)
    ended = ground.somnet(*ground.words, "--out", run, cache=cache)  # what the cache was given is of the true image
    assert ended.code == 0, ended.text
    Result.of(run).must_equal(ground.result)


def full_disk(ground: Ground, number: int) -> None:
    """No space for a file that a verb writes anew: one line, and the earlier one is there with the user's files."""
    rng = random.Random(number)
    run = ground.copy(number)
    out, test = run.parent / "out", ground.data / "test"
    verbs: list[tuple[Path, tuple[object, ...]]] = [
        (run / "report", ("report", run)),
        (out, ("clean", run, "--out", out, "--format", "imagefolder,coco,huggingface")),
        (out, ("clean", run, "--out", out, "--policy", "crop")),
        (out, ("export", run, "--format", "timm", "--out", out)),
        (out, ("export", run, "--format", "onnx", "--out", out)),
        (out / "wrong.csv", ("eval", run, ground.data, "--out", out)),
        (out / "p.csv", ("predict", run, test, "--out", out / "p.csv")),
    ]
    target, words = verbs[number % len(verbs)]
    again = words if words[0] == "report" else (*words, "--overwrite")
    first = ground.somnet(*words, cache=ground.place / "cache")
    assert first.code == 0, first.text
    if target.is_dir():
        (target / "notes.txt").write_text("mine")
    before = files_of(run.parent)
    size = rng.choice((2000, 5000, 20_000, 100_000))
    ended = ground.somnet(*again, cache=ground.place / "cache", fault=FullFiles(size))
    must_end_well(ended)
    if ended.code == 2:
        assert "cannot write" in ended.text, ended.text
        assert files_of(run.parent) == before
    ended = ground.somnet(*again, cache=ground.place / "cache")
    assert ended.code == 0, ended.text
    assert files_of(run.parent).keys() == before.keys()


def must_agree(found: Result, expected: Result) -> None:
    """The same weights and scores; and pictures of the images that were trained on, or none."""
    assert [name for name, tensor in found.tensors.items() if not torch.equal(tensor, expected.tensors[name])] == []
    shown = [name for name in found.files if name in TABLES or name.startswith("report/pictures/")]
    assert [name for name in shown if found.files[name] != expected.files[name]] == []


def killed_replacement(ground: Ground, number: int) -> None:
    """`kill -9` while a folder is replaced that has files of the user's: all of them are there, before and after."""
    rng = random.Random(number)
    run, cache = ground.copy(number), ground.place / "cache"
    target, words = rng.choice(
        [
            (run / "report", ("report", run)),
            (run.parent / "cleaned", ("clean", run, "--out", run.parent / "cleaned", "--overwrite")),
            (run.parent / "model", ("export", run, "--format", "timm", "--out", run.parent / "model", "--overwrite")),
        ]
    )
    first = ground.somnet(*words, cache=cache)
    assert first.code == 0, first.text
    for name, text in OWN.items():
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(text)
    whole = ground.somnet(*words, cache=cache, counted=True)
    before = files_of(target)
    stage = next(stage for stage in whole.counts if stage.endswith("renames"))
    moment = Moment(stage, rng.randint(1, whole.counts[stage]))
    ended = ground.somnet(*words, cache=cache, moment=moment, fault=Signal(SIGKILL))
    assert ended.code == -SIGKILL, ended.text
    kept = [folder for folder in target.parent.iterdir() if target.name in folder.name and folder.is_dir()]
    for name, text in OWN.items():
        assert any((folder / name).is_file() and (folder / name).read_text() == text for folder in kept)
    ended = ground.somnet(*words, cache=cache)
    assert ended.code == 0, ended.text
    assert files_of(target) == before
    assert not [path for path in target.parent.iterdir() if ".somnet-" in path.name]


def files_of(folder: Path) -> dict[str, bytes]:
    timed = ("index.html", "training.html", "data/training.js")
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    return {name: b"" if name in timed else file.read_bytes() for name, file in files.items()}


def strangers_run(ground: Ground, number: int) -> None:
    """A run folder harmed in a drawn way, and a file of it damaged: little memory, a line, nothing outside."""
    rng = random.Random(number)
    run = ground.copy(number)
    (run.parent / "thesis").mkdir()
    (run.parent / "thesis" / "a.txt").write_text("years of work")
    shutil.rmtree(run / "report")
    damaged = run / rng.choice(DRAWN)
    damaged.write_bytes(mutated(damaged.read_bytes(), rng))
    harm = rng.choice(sorted(HARM))
    with contextlib.suppress(AssertionError, OSError, ValueError):  # what it would change is damaged already
        HARM[harm](run)
    picture = next((ground.data / "test").rglob("*.png"))
    verbs: list[tuple[object, ...]] = [
        ("predict", run, picture, "--out", run.parent / "p.csv"),
        ("report", run),
        ("clean", run, "--out", run.parent / "cleaned"),
        ("export", run, "--format", "timm"),
        ("eval", run, ground.data),
        (*ground.words, "--out", run, "--resume"),
    ]
    ended = ground.somnet(*rng.choice(verbs), cache=run.parent / "cache")
    must_end_well(ended)
    assert ended.megabytes < MEGABYTES
    assert [file.name for file in (run.parent / "thesis").iterdir()] == ["a.txt"]
    assert (run.parent / "thesis" / "a.txt").read_text() == "years of work"


def two_writers(ground: Ground, number: int) -> None:
    """Two commands write to one folder at the same time: each ends well, and what is there is whole."""
    rng = random.Random(number)
    run, cache = ground.copy(number), ground.place / "cache"
    (run / "summary.json").unlink()
    shutil.rmtree(run / "report")  # which names the folder that it was written in
    resumed = (*ground.words, "--out", run, "--resume")
    finished = ground.place / "run"
    cleaned, model = run.parent / "cleaned", run.parent / "model"
    pairs: list[tuple[tuple[object, ...], tuple[object, ...]]] = [
        (resumed, resumed),
        (resumed, ("report", run)),
        (resumed, (*resumed[:-1], "--overwrite")),
        (("clean", finished, "--out", cleaned, "--overwrite"),) * 2,
        (("export", finished, "--format", "timm", "--out", model, "--overwrite"),) * 2,
    ]
    commands, waits = rng.choice(pairs), (rng.uniform(0, 1), rng.uniform(0, 1))

    def late(who: int) -> Ended:
        sleep(waits[who])
        return ground.somnet(*commands[who], cache=cache, who=str(who))

    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(late, (0, 1)))
    for ended in ends:
        must_end_well(ended)
    if commands[1][0] != "report":  # which a training may keep from reading, while it keeps that from writing
        assert any(ended.code == 0 for ended in ends), [ended.text for ended in ends]
    if commands[0] == resumed:
        again = ground.somnet(*resumed, cache=cache)
        assert again.code == 0, again.text
        Result.of(run).must_equal(ground.result)
    else:
        [folder] = [path for path in run.parent.iterdir() if path.name in ("cleaned", "model")]
        assert (folder / ".somnet.json").is_file()
    assert not [path for path in run.parent.iterdir() if ".somnet-" in path.name]


def read_while_trained_anew(ground: Ground, number: int) -> None:
    """What is made of a run while another takes its place is of the one or of the other, or refused in a line."""
    rng = random.Random(number)
    run, cache = ground.copy(number), ground.place / "cache"
    out = run.parent / "out"
    words = rng.choice([("export", run, "--format", "timm", "--out"), ("clean", run, "--policy", "reweight", "--out")])
    assert ground.somnet(*words, run.parent / "old", cache=cache).code == 0
    waits = rng.uniform(0, 2), rng.uniform(0, 2)

    def late(who: int) -> Ended:
        anew = (*ground.words, "--seed", 1, "--out", run, "--overwrite")
        sleep(waits[who])
        return ground.somnet(*(anew, (*words, out))[who], cache=cache, who=str(who))

    with ThreadPoolExecutor(2) as pool:
        trained, read = list(pool.map(late, (0, 1)))
    must_end_well(read)
    assert trained.code == 0, trained.text
    assert out.exists() is (read.code == 0)
    assert ground.somnet(*words, run.parent / "new", cache=cache).code == 0
    old, new = files_of(run.parent / "old"), files_of(run.parent / "new")
    assert old != new
    if read.code == 0:
        assert files_of(out) in (old, new)
    assert not [path for path in run.parent.iterdir() if ".somnet-" in path.name]


DRILLS: dict[str, Callable[[Ground, int], None]] = {
    "bits of the cache": damaged_cache,
    "files of the cache deleted": deleted_cache,
    "files swapped under a run": swapped_files,
    "an image broken under a run": broken_image,
    "a full disk": full_disk,
    "a kill between renames": killed_replacement,
    "a stranger's run folder": strangers_run,
    "two writers": two_writers,
    "a run read while it is trained anew": read_while_trained_anew,
}


def numbers() -> Iterator[object]:
    for drills, mark in ((SHORT, pytest.mark.slow), (LONG, pytest.mark.long)):
        yield from (pytest.param(number, marks=mark) for number in drills)


@pytest.mark.parametrize("kind", DRILLS)
@pytest.mark.parametrize("number", list(numbers()))
def test_drill(kind: str, number: int, ground: Ground) -> None:
    DRILLS[kind](ground, number)
