"""What a benchmark is asked for: seeds, methods and tables."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from somnet.benchmark.demo import parse_seeds
from somnet.benchmark.paper_tables import VARIANTS, Entry
from somnet.benchmark.trials import Benchmark, choose_entries, known_controls, other_trials
from somnet.config import load_config
from somnet.errors import ConfigError
from somnet.methods.registry import METHODS

if TYPE_CHECKING:
    from tests.conftest import Tiny


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0", (0,)),
        ("0,1,2", (0, 1, 2)),
        ("0-4", (0, 1, 2, 3, 4)),
        ("7, 2-3 ,2", (7, 2, 3)),
        ("5-5", (5,)),
    ],
)
def test_seeds_are_read(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "-1", "1,", "4-0", "0-", "1.5", "1--2", "0-4-5", "0-99999999999999999999", "4294967296"]
)
def test_seeds_that_cannot_be_read_say_how_to_write_them(text: str) -> None:
    with pytest.raises(ConfigError, match="0,1,2 or 0-4"):
        parse_seeds(text)


def test_a_method_of_ones_own_takes_part_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_method.py").write_text(
        "from somnet.methods.plain import Plain\nfrom somnet.methods.settings import MethodSettings, Share\n"
        "class MySettings(MethodSettings):\n    trust: Share = 0.8\nclass Mine(Plain): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    entries, tables = choose_entries("plain,my_method:Mine")
    config = load_config(settings=["my_method.trust=0.5"])
    benchmark = Benchmark(tmp_path, entries, (0,), config, None, tables)
    assert benchmark.configure(entries[1], 0).model_dump()["my_method"] == {"trust": 0.5}
    (tmp_path / "runs" / "my_method:Mine-seed7").mkdir(parents=True)
    assert [trial.name for trial in other_trials(benchmark, [], tmp_path)] == ["my_method:Mine"]


def test_all_methods_take_part_by_default() -> None:
    entries, tables = choose_entries()
    assert tuple(entry.name for entry in entries) == tuple(METHODS)
    assert all(entry.name == entry.method and not entry.settings for entry in entries)
    assert tables == ()  # the paper's figures are shown where they are asked for
    assert choose_entries(tables="methods") == (entries, ("methods",))
    assert choose_entries("all") == (entries, tables)


def test_tables_choose_what_takes_part() -> None:
    def names(*words: str | None) -> list[str]:
        return [entry.name for entry in choose_entries(*words)[0]]

    assert names("sl, plain,sl") == ["sl", "plain"]
    assert names(None, "ablations") == [figure.entry.name for figure in VARIANTS["ablations"]]
    assert names("elr", "ablations")[:3] == ["elr", "plain", "plain-roi"]
    assert len(names(None, "parameters")) == 10
    everything = names("all", "parameters,ablations,methods")
    assert len(everything) == len(set(everything)) == len(METHODS) + 8 + 10


def test_a_control_is_a_method_with_settings_of_its_own() -> None:
    entries, _ = choose_entries("plain,elr 7 (strong)=elr:elr.strength=7,elr.beta=0.5, sl ,twin=plain")
    assert entries == (
        Entry("plain", "plain"),
        Entry("elr 7 (strong)", "elr", {"elr.strength": 7, "elr.beta": 0.5}),
        Entry("sl", "sl"),
        Entry("twin", "plain"),
    )
    [entry] = choose_entries("whole=somnet+:somnet.weighting.rois=false")[0]
    assert entry == Entry("whole", "somnet+", {"somnet.weighting.rois": False})


def test_controls_of_another_time_are_known(tmp_path: Path) -> None:
    entries, _ = choose_entries("strong=elr:elr.strength=7")
    benchmark = Benchmark(tmp_path, entries, (0,), load_config())
    told = {"controls": {**benchmark.controls(), "evil": {"method": "os:system", "settings": {}}, "odd": 3}}
    controls = known_controls(told)
    assert controls == {"strong": entries[0]}  # a file chooses no code
    (tmp_path / "runs" / "strong-seed7").mkdir(parents=True)
    [trial] = other_trials(benchmark, [], tmp_path, controls)
    assert trial.config.model_dump()["elr"]["strength"] == 7


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("elr.strength=7",), "follows no named entry"),
        (("elr,elr.strength=7",), "follows no named entry"),
        (("strong=elr:strength=7",), "NAME=METHOD:setting=value"),
        (("strong=best:elr.strength=7",), "no method 'best'"),
        (("strong=elr:elr.power=7",), "unknown setting 'elr.power'"),
        (("plain=elr",), "give yours another name"),
        (("../up=elr",), "cannot name an entry"),
        (("a=elr,a=plain",), "two entries are called 'a'"),
        (("nope",), "plain, plain-roi"),
        (("",), "no method ''"),
        (("plain,",), "no method ''"),
        (("all,plain",), "no method 'all'"),
        ((None, "figures"), "methods, ablations, parameters"),
    ],
)
def test_what_is_unknown_is_named(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        choose_entries(*words)


def test_equal_settings_are_run_once(data: Path, tiny: "Tiny") -> None:
    entries, _ = choose_entries(None, "parameters")
    benchmark = Benchmark(data, entries, (0, 1), tiny.config())
    names = benchmark.stands_for()
    assert names["somnet-ng2"] == "somnet"  # 2 images a bag is the default
    assert names["somnet-ng3"] == "somnet-ng3"
    assert names["somnet-L12x12"] == "somnet-L12x12"  # a memory of 3 x 3 is the default here
    of_the_paper = replace(benchmark, config=benchmark.config.with_settings({"somnet.memory.side": 12}))
    assert of_the_paper.stands_for()["somnet-L12x12"] == "somnet"
