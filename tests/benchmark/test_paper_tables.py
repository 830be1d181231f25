"""The paper's tables: figures as printed, settings that exist, names that make folders."""

import re

import pytest

from somnet.benchmark.paper_tables import ABLATIONS, BAG_SIZES, SETS, SLOTS, VARIANTS, Entry
from somnet.benchmark.paper_tables import METHODS as PUBLISHED
from somnet.config import Config
from somnet.methods.registry import METHODS
from somnet.methods.somnet_settings import SomnetSettings

ENTRIES = {figure.entry.name: figure.entry for figures in VARIANTS.values() for figure in figures}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_is_a_config_and_a_folder(entry: Entry) -> None:
    config = Config().with_settings({**entry.settings, "method": entry.method})
    assert config.method in METHODS
    assert re.fullmatch(r"[a-zA-Z0-9-]+", entry.name)
    same = Config(method=entry.method)
    defaults = (
        "plain",
        "plain-roi",
        "somnet",
        "somnet-ng2",
        "somnet-L12x12",
        "somnet-no-a-score",
    )  # the last: at full size the area score is left out
    assert (config == same) == (entry.name in defaults)


def test_the_ablations_are_those_of_the_paper() -> None:
    weighting = {name: Config().with_settings(entry.settings).of(SomnetSettings) for name, entry in ENTRIES.items()}
    for score in "dra":
        assert not getattr(weighting[f"somnet-no-{score}-score"].weighting, f"{score}_score")
        kept = {one: getattr(weighting[f"somnet-no-{score}-score"].weighting, f"{one}_score") for one in "dra"}
        assert kept == {one: one != score for one in "dra"}
    everything = weighting["somnet-all-scores"].weighting
    assert (everything.d_score, everything.r_score, everything.a_score) == (True, True, True)
    assert all(weighting[f"somnet-{name}"].weighting.a_score for name in ("p40", "no-roi", "kmeans", "no-som"))
    without = weighting["somnet-no-roi"]
    assert (without.images_per_bag, without.weighting.keep_first, without.weighting.keep_last) == (5, 0.6, 0.6)
    assert not without.weighting.rois
    assert weighting["somnet-no-som"].memory.radius == 0
    assert weighting["somnet-kmeans"].memory.kmeans
    assert (weighting["somnet-p40"].weighting.keep_first, weighting["somnet-p40"].weighting.keep_last) == (0.4, 0.4)
    assert [weighting[figure.entry.name].images_per_bag for figure in BAG_SIZES] == [1, 2, 3, 4, 5]
    assert [weighting[figure.entry.name].memory.side for figure in SLOTS] == [4, 8, 12, 16, 20]


def test_the_figures_are_those_of_the_paper() -> None:
    assert [figure.accuracy for figure in ABLATIONS] == [68.6, 69.1, 76.8, 73.5, 74.8, 81.3, 74.1, 79.5, 78.2, 82.1]
    assert set(PUBLISHED) <= set(METHODS)
    assert all(len(row) == len(SETS) for row in PUBLISHED.values())
    best = [max(PUBLISHED, key=lambda name: PUBLISHED[name][place]) for place in range(len(SETS))]
    assert best == ["somnet"] * len(SETS)
