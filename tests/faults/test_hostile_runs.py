"""Files of a run folder and configs that are damaged or made to harm: a clear message, and nothing else happens."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from somnet.config import load_config
from somnet.errors import ConfigError
from somnet.runs.checkpoint import load_checkpoint, save_checkpoint
from somnet.system.folders import LAST
from tests.faults.mutations import mutated, nested, safetensors

if TYPE_CHECKING:
    from tests.conftest import Outcome, Tiny

    Cli = Callable[..., Outcome]

CHECKPOINT = str(LAST)
READ_BY = {  # file of a run: the verbs that read it
    "config.toml": ("predict", "resume"),
    "data.json": ("predict", "report", "resume"),
    CHECKPOINT: ("predict", "export", "resume"),
    "summary.json": ("report",),
    "metrics.jsonl": ("report",),
    "issues.parquet": ("report",),
    "regions.parquet": ("report",),
    "vectors.npy": ("report",),
}


class Lab:
    """A copy of a finished run, in which one file after the other is replaced and a verb tried."""

    def __init__(self, trained: Path, data: Path, words: list[str], base: Path, cli: "Cli") -> None:
        self.trained, self.data, self.words, self.base, self.cli = trained, data, words, base, cli
        self.run = base / "root" / "run"

    def outside(self) -> set[str]:
        return {str(path) for path in self.base.rglob("*") if not path.is_relative_to(self.run)}

    def call(self, verb: str, **files: bytes) -> "Outcome":
        """A verb on a valid run, but for these files."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.trained, self.run, ignore=shutil.ignore_patterns("report"))
        for name, content in files.items():
            (self.run / name).write_bytes(content)
        picture = next((self.data / "test").rglob("*.png"))
        if verb == "resume":
            (self.run / "summary.json").unlink()
        return self.cli(
            *{
                "predict": ("predict", self.run, picture, "--out", self.run / "predictions.csv", "--overwrite"),
                "report": ("report", self.run, "--pictures", 1),
                "export": ("export", self.run, "--format", "timm"),
                "resume": ("train", self.data, "--out", self.run, "--resume", *self.words, "--workers", 0),
            }[verb]
        )

    def must_be_told(self, verb: str, name: str, content: bytes, case: object, *, may_pass: bool = False) -> None:
        before = self.outside()
        outcome = self.call(verb, **{name: content})
        told = f"{verb} with {name}, {case}: {outcome}"
        assert "Traceback" not in outcome.err, told
        assert outcome.code == 2 or (may_pass and outcome.code == 0), told
        if outcome.code == 2:
            error = outcome.err.strip().splitlines()[-1]
            assert error.startswith("error: "), told
            assert str(self.run) in error or "config" in error, told
        assert self.outside() == before


@pytest.fixture
def lab(trained: Path, data: Path, tiny: "Tiny", tmp_path: Path, cli: "Cli") -> Lab:
    os.environ["SOMNET_CACHE"] = str(trained.parent / "cache")  # _own_cache puts it back
    (tmp_path / "root").mkdir()
    return Lab(trained, data, [*tiny.flags(), "--method", "somnet"], tmp_path, cli)


def test_the_verbs_work_on_a_sound_run(lab: Lab) -> None:
    for verb in ("predict", "report", "export", "resume"):
        outcome = lab.call(verb)
        assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    "cases", [pytest.param(range(48), id="short"), pytest.param(range(48, 1000), id="long", marks=pytest.mark.long)]
)
def test_damaged_files(cases: range, lab: Lab) -> None:
    """Changed at random: what can still be read may pass, with other numbers."""
    tasks = [(name, verb) for name, verbs in READ_BY.items() for verb in verbs]
    for case in cases:
        name, verb = tasks[case % len(tasks)]
        content = mutated((lab.trained / name).read_bytes(), random.Random(case))
        lab.must_be_told(verb, name, content, f"case {case}", may_pass=True)


def hostile_tensors(valid: Path, folder: Path) -> dict[str, bytes]:
    tensors, state = load_checkpoint(valid / LAST)
    classifier = "method.network.classifier.weight"
    file = folder / "x.safetensors"

    def with_tensors(**changed: torch.Tensor) -> bytes:
        save_checkpoint(file, tensors | changed, state)
        return file.read_bytes()

    def with_state(value: Any) -> bytes:
        save_file({name: t.contiguous() for name, t in tensors.items()}, file, metadata={"state": value})
        return file.read_bytes()

    place = state["position"]
    huge = {"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}}
    places: list[dict[str, Any]] = [
        {"phase": -1},
        {"phase": 10**9},
        {"phase": "x"},
        {"epoch": float("nan")},
        {"step": -5},
        {"history": [3]},
        {"history": [{}]},
        {"bad_steps": None},
        {"sums": "x"},
    ]
    return {
        "a header of 2^63 bytes": safetensors({}, size=2**63),
        "a header of 4 GB": safetensors({}, size=2**32),
        "a tensor of 2^60 numbers": safetensors(huge),
        "a deep header": safetensors(nested(100_000).encode()),
        "overlapping tensors": safetensors(
            {n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}, bytes(8)
        ),
        "another shape": with_tensors(**{classifier: torch.zeros(7, 5)}),
        "another dtype": with_tensors(**{classifier: torch.zeros_like(tensors[classifier], dtype=torch.bool)}),
        "NaN": with_tensors(**{classifier: tensors[classifier] * float("nan")}),
        "infinity": with_tensors(**{"method.memory.keys": tensors["method.memory.keys"] * float("inf")}),
        "a missing tensor": with_state(json.dumps(state)).replace(classifier.encode(), b"x" * len(classifier)),
        "a deep state": with_state('{"position": ' + nested(100_000) + "}"),
        "no position": with_state("{}"),
    } | {f"position {changed}": with_state(json.dumps(state | {"position": place | changed})) for changed in places}


def test_hostile_checkpoints(lab: Lab, tmp_path: Path) -> None:
    for case, content in hostile_tensors(lab.trained, tmp_path).items():
        position = case.startswith("position") or case in ("no position", "a deep state")
        lab.must_be_told("resume", CHECKPOINT, content, case)
        if not position:
            lab.must_be_told("predict", CHECKPOINT, content, case)


def test_hostile_data_files(lab: Lab) -> None:
    valid = json.loads((lab.trained / "data.json").read_text())
    cases: list[Any] = [
        valid | {"images": 10**15},
        valid | {"images": -1},
        valid | {"images": "many"},
        valid | {"classes": "=ab"},
        valid | {"classes": [1, 2, 3]},
        valid | {"classes": valid["classes"][:2]},
        valid | {"path": 7},
        {name: value for name, value in valid.items() if name != "images"},
        {name: value for name, value in valid.items() if name != "path"},
        [valid],
        None,
    ]
    for verb in ("predict", "report"):
        for case in cases:
            lab.must_be_told(verb, "data.json", json.dumps(case).encode(), case)
        lab.must_be_told(verb, "data.json", nested(100_000).encode(), "deep")
    for case in ([], {"test": 3}, {"test": {"n": "many"}}, {"test": {"top1": "x", "n": 3}}):
        lab.must_be_told("report", "summary.json", json.dumps(case).encode(), case)
    for text in (nested(100_000), "3", '{"phase": 1}', '{"phase": "a", "epoch": "b", "epochs": [], "steps": 1}'):
        lab.must_be_told("report", "metrics.jsonl", text.encode(), text[:50])


def as_parquet(table: pa.Table, file: Path) -> bytes:
    pq.write_table(table, file)
    return file.read_bytes()


def test_hostile_tables(lab: Lab, tmp_path: Path) -> None:
    for name in ("issues", "regions"):
        valid = pq.read_table(lab.trained / f"{name}.parquet")
        rows = valid.num_rows
        texts = pa.array(["<script>"] * rows)
        for place, column in enumerate(valid.column_names):
            fewer = as_parquet(valid.remove_column(place), tmp_path / "x")
            lab.must_be_told("report", f"{name}.parquet", fewer, f"no {column}", may_pass=True)  # not all are shown
            if valid.schema.field(column).type != pa.string():
                other = as_parquet(valid.set_column(place, column, texts), tmp_path / "x")
                lab.must_be_told("report", f"{name}.parquet", other, f"text as {column}", may_pass=True)
        lab.must_be_told("report", f"{name}.parquet", as_parquet(valid.slice(0, 3), tmp_path / "x"), "too few rows")
        if name == "regions":
            for slot in (-1, 9, 2**31 - 1):
                place = valid.schema.get_field_index("winner_slot")
                slots = pa.array([slot] * rows, pa.int32())
                content = as_parquet(valid.set_column(place, "winner_slot", slots), tmp_path / "x")
                lab.must_be_told("report", "regions.parquet", content, f"slot {slot}")


def test_names_in_tables_do_not_lead_outside(lab: Lab, tmp_path: Path) -> None:
    """A report shows pictures of the data set alone, whatever the tables call them."""
    shutil.copy(next((lab.data / "test").rglob("*.png")), tmp_path / "secret.png")
    table = pq.read_table(lab.trained / "issues.parquet")
    up = os.path.relpath(tmp_path / "secret.png", lab.data)
    names = [up, str(tmp_path / "secret.png")] * (table.num_rows // 2)
    content = as_parquet(table.set_column(0, "file_name", pa.array(names)), tmp_path / "x")
    outcome = lab.call("report", **{"issues.parquet": content})
    assert outcome.code == 0, outcome.err
    pictures = lab.run / "report" / "pictures"
    assert not [
        file for file in pictures.rglob("*.jpg") if file.parent.name != "held-out"
    ]  # those it finds in the data


@pytest.mark.parametrize(
    "text",
    [
        "x = " + nested(100_000),
        "a." * 2_000 + "b = 1",
        "seed = " + "9" * 100_000,
        "[train]\nlr = nan",
        "[train]\nlr = inf",
        "[train]\nepochs = 9223372036854775807",
        "[train]\nbatch_size = 9223372036854775807",
        "[somnet.memory]\nside = 9223372036854775807",
        "[somnet]\nimages_per_bag = 9223372036854775807",
        'method = "\\u0000"',
        "seed = 2024-01-01",
        "[model]\nname = []",
    ],
    ids=lambda text: text[:30],
)
def test_hostile_configs(text: str, tmp_path: Path, data: Path, cli: "Cli") -> None:
    (tmp_path / "c.toml").write_text(text)
    outcome = cli("train", data, "--config", tmp_path / "c.toml", "--out", tmp_path / "run", "--workers", 0)
    assert outcome.code == 2, outcome
    assert "Traceback" not in outcome.err
    assert len(outcome.err.strip().splitlines()[-1]) < 2000
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("cases", [range(200), pytest.param(range(200, 5000), marks=pytest.mark.long)], ids=str)
def test_damaged_configs(cases: range, trained: Path, tmp_path: Path) -> None:
    valid = (trained / "config.toml").read_bytes()
    for case in cases:
        (tmp_path / "c.toml").write_bytes(mutated(valid, random.Random(case)))
        with contextlib.suppress(ConfigError):
            load_config(tmp_path / "c.toml")
