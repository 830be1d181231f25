"""The tables of the paper as data: the settings behind each number, and the number. Accuracies in percent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """What takes part in a benchmark: a method, with settings of its own."""

    name: str  # in tables, and in the names of folders
    method: str = "somnet"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A number of the paper on Clothing1M, and what gives ours."""

    label: str  # as in the paper
    accuracy: float
    entry: Entry


def _all_scores(name: str, settings: Mapping[str, Any]) -> Entry:
    """With all scores, as in the paper: the default leaves out the area score, which regions at full size need not."""
    return Entry(name, settings={"somnet.weighting.a_score": True, **settings})


def _without(score: str) -> Entry:
    return _all_scores(f"somnet-no-{score}-score", {f"somnet.weighting.{score}_score": False})


def _keeping(share: float) -> dict[str, Any]:
    return {"somnet.weighting.keep_first": share, "somnet.weighting.keep_last": share}


PLAIN = Entry("plain", "plain")
SOMNET = Entry("somnet")

BAG_SIZES = tuple(  # Table 1, n_g
    Published(str(count), accuracy, Entry(f"somnet-ng{count}", settings={"somnet.images_per_bag": count}))
    for count, accuracy in ((1, 72.9), (2, 82.1), (3, 81.1), (4, 78.5), (5, 75.9))
)
SLOTS = tuple(  # Table 1, L
    Published(f"{side}²", accuracy, Entry(f"somnet-L{side}x{side}", settings={"somnet.memory.side": side}))
    for side, accuracy in ((4, 78.7), (8, 81.7), (12, 82.1), (16, 81.9), (20, 81.6))
)
ABLATIONS = (  # Table 2
    Published("ResNet50", 68.6, PLAIN),
    Published("ResNet50+ROI", 69.1, Entry("plain-roi", "plain-roi")),
    Published("SOMNet (w/o d-score)", 76.8, _without("d")),
    Published("SOMNet (w/o r-score)", 73.5, _without("r")),
    Published("SOMNet (w/o a-score)", 74.8, _without("a")),
    Published("SOMNet (p = 40 %)", 81.3, _all_scores("somnet-p40", _keeping(0.4))),
    Published(
        "SOMNet (w/o ROI)",  # n_g = 5 and p = 60 % were best for it
        74.1,
        _all_scores("somnet-no-roi", {"somnet.weighting.rois": False, "somnet.images_per_bag": 5, **_keeping(0.6)}),
    ),
    Published("SOMNet+K-means", 79.5, _all_scores("somnet-kmeans", {"somnet.memory.kmeans": True})),
    Published("SOMNet (w/o SOM)", 78.2, _all_scores("somnet-no-som", {"somnet.memory.radius": 0})),
    Published("SOMNet", 82.1, _all_scores("somnet-all-scores", {})),
)

SETS = (  # the columns of Table 3
    "Clothing1M",
    "Food101",
    "WebVision",
    "WebVision, top-5",
    "ImageNet",
    "ImageNet, top-5",
)
METHODS: Mapping[str, tuple[float, ...]] = {  # Table 3, by the names of the registry
    "plain": (68.6, 77.4, 66.4, 83.4, 57.7, 78.4),
    "sukhbaatar": (71.9, 80.8, 67.1, 84.2, 58.4, 79.5),
    "drae": (73.0, 81.1, 67.5, 85.1, 58.6, 79.4),
    "attend-groups": (74.3, 82.5, 68.7, 85.4, 60.4, 80.3),
    "admil": (71.1, 79.2, 66.9, 84.0, 58.0, 78.9),
    "tanaka": (72.2, 81.5, 67.4, 84.7, 59.5, 80.0),
    "curriculumnet": (79.8, 84.5, 70.7, 88.6, 62.7, 83.4),
    "sl": (71.0, 80.9, 66.2, 82.3, 58.7, 78.8),
    "mlnt": (73.5, 82.5, 68.3, 85.0, 60.2, 80.1),
    "pencil": (73.5, 83.1, 68.9, 85.7, 60.8, 81.1),
    "somnet": (82.1, 87.5, 72.2, 89.5, 65.0, 85.1),
}

VARIANTS: Mapping[str, Sequence[Published]] = {"parameters": (*BAG_SIZES, *SLOTS), "ablations": ABLATIONS}
"""What each table but that of the methods adds to a benchmark."""
