"""Every method on a GPU that is none: the same as on the CPU to the last bit, nothing mixed, hardly any waiting."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from somnet.methods.base import find_method
from somnet.methods.registry import METHODS
from tests.suite import leave_out

pytestmark = pytest.mark.slow

Case = tuple[str, str, dict[str, Any]]  # what at_work.py does, a method, settings
ROOT = Path(__file__).parents[2]
WHOLE = {"model.freeze": "none", "train.epochs": 3}
MOST_WAITS = 2  # in a step
KINDS = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
LONGER: dict[str, dict[str, Any]] = {"divide-mix": {"train.epochs": 6}, "curriculumnet": {"train.epochs": 5}}
MOST_COLLECTIVES = 4  # of a step that several ranks share, but for batch normalisation over ranks
OF_A_LAYER = 4  # collectives of normalisation over ranks: sums and squares, there and back
MEGABYTES = {  # on the device, a quarter above what was measured, of a tiny network and 4 images a step, trained whole
    **dict.fromkeys(
        ("plain", "plain-roi", "sl", "sukhbaatar", "attend-groups", "elr", "pencil", "ssr", "confident"), 10.5
    ),
    **{"admil": 11, "tanaka": 12.5, "drae": 12.5, "curriculumnet": 12.5, "mopro": 13.5, "mlnt": 28, "divide-mix": 24.5},
    **{"somnet": 27, "somnet+": 14, "linear-probe": 4, "wann": 4},
}
OWN_STATISTICS = {"model.freeze": "none", "train.sync_bn": False}
SHARED_SHORT: dict[str, tuple[str, dict[str, Any]]] = {
    "short somnet of two ranks": ("somnet", {"train.epochs": 3}),
    "short elr of two ranks": ("elr", {**OWN_STATISTICS, "train.epochs": 2}),
    "short plain with statistics of all ranks": ("plain", {**WHOLE, "train.epochs": 1}),
}
DIVISIBLE = [name for name in METHODS if find_method(name).divisible]
SHARED_LONG: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{name} of two ranks": (name, LONGER.get(name, {"train.epochs": 4})) for name in DIVISIBLE},
    **{
        f"{name} of two ranks, whole": (name, {**WHOLE, **LONGER.get(name, {}), **OWN_STATISTICS}) for name in DIVISIBLE
    },
    "plain with statistics of all ranks": ("plain", WHOLE),
}
SHORT: dict[str, Case] = {
    "short somnet": ("compare", "somnet", {"train.epochs": 3}),
    "short elr, trained whole": ("compare", "elr", {**WHOLE, "train.epochs": 2}),
    "short mopro in bf16": ("lowered", "mopro", {**WHOLE, "train.precision": "bf16", "train.epochs": 2}),
    "short plain in fp16": ("lowered", "plain", {**WHOLE, "train.precision": "fp16", "train.epochs": 1}),
    "short elr in fp16": ("overflowing", "elr", {**WHOLE, "train.precision": "fp16", "train.epochs": 1}),
    "short elr without room": ("cramped", "elr", {**WHOLE, "train.epochs": 2}),
    "short doctor": ("examined", "mopro", {}),
}
LONG: dict[str, Case] = {
    **{f"{name}, frozen trunk": ("compare", name, LONGER.get(name, {"train.epochs": 4})) for name in METHODS},
    **{f"{name}, trained whole": ("compare", name, {**WHOLE, **LONGER.get(name, {})}) for name in METHODS},
    **{
        f"{name} in bf16": ("lowered", name, {**WHOLE, **LONGER.get(name, {}), "train.precision": "bf16"})
        for name in METHODS
    },
    **{f"doctor of {name}": ("examined", name, {}) for name in METHODS},
    "somnet with K-means": ("compare", "somnet", {"somnet.memory.kmeans": True}),
    "somnet of one map": ("compare", "somnet", {"somnet.full_size": False}),
    "divide-mix with unlabelled": ("compare", "divide-mix", {"train.epochs": 6, "divide_mix.unlabelled": 1.0}),
    "somnet in fp16": ("lowered", "somnet", {**WHOLE, "train.precision": "fp16"}),
    "tanaka in fp16": ("overflowing", "tanaka", {**WHOLE, "train.precision": "fp16"}),
    "pencil in fp16": ("overflowing", "pencil", {**WHOLE, "train.precision": "fp16"}),
}


def at_work(cases: dict[str, Case], folder: Path) -> dict[str, Any]:
    """What became of the cases, in a process of its own: a pretended device stays for good."""
    if find_spec("torch.utils.backend_registration") is None:
        leave_out("this torch cannot pretend a device")
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.gpu.at_work", str(folder / "cases.json"), str(folder / "told.json")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return told


def at_work_together(cases: dict[str, tuple[str, dict[str, Any]]], folder: Path) -> list[dict[str, Any]]:
    """What became of the cases, as each of two ranks tells it."""
    if find_spec("torch.utils.backend_registration") is None:
        leave_out("this torch cannot pretend a device")
    (folder / "cases.json").write_text(json.dumps(cases))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "tests.gpu.ranks_at_work", str(folder / "cases.json"), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """What both ranks know of a case."""

    @cache
    def all_of(long: bool) -> list[dict[str, Any]]:
        return at_work_together(SHARED_LONG if long else SHARED_SHORT, tmp_path_factory.mktemp("ranks"))

    def find(case: str) -> list[dict[str, Any]]:
        found = [rank[case] for rank in all_of(case in SHARED_LONG)]
        assert [rank["error"] for rank in found if "error" in rank] == []
        return found

    return find


@pytest.mark.parametrize("case", [*SHARED_SHORT, *(pytest.param(case, marks=pytest.mark.long) for case in SHARED_LONG)])
def test_two_gpus_give_what_two_cpus_give(case: str, shared: Callable[[str], list[dict[str, Any]]]) -> None:
    assert len({found["state"] for found in shared(case)}) == 1  # on both ranks
    for found in shared(case):
        assert found["tensors"] > 40
        assert found["steps"] > 2
        assert found["differs"] == []
        assert 1 <= sum(found["waits"].values()) <= MOST_WAITS, found["waits"]
        assert 1 < found["peak"] / 1e6 < MEGABYTES[{**SHARED_SHORT, **SHARED_LONG}[case][0]]
        together = found["collectives"]
        of_layers = sum(count for asker, count in together.items() if asker.startswith("nn/batch_statistics.py"))
        assert of_layers == (OF_A_LAYER * found["layers"] if case.endswith("statistics of all ranks") else 0), together
        assert 1 <= sum(together.values()) - of_layers <= MOST_COLLECTIVES, together


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What is known of a case."""

    @cache
    def all_of(long: bool) -> dict[str, Any]:
        assert not LONG.keys() & SHORT.keys()
        return at_work(LONG if long else SHORT, tmp_path_factory.mktemp("gpu"))

    def find(case: str) -> dict[str, Any]:
        found: dict[str, Any] = all_of(case in LONG)[case]
        assert "error" not in found, found["error"]
        return found

    return find


def cases(work: str) -> list[Any]:
    long = [pytest.param(case, marks=pytest.mark.long) for case, (kind, *_) in LONG.items() if kind == work]
    return [*(case for case, (kind, *_) in SHORT.items() if kind == work), *long]


@pytest.mark.parametrize("case", cases("compare"))
def test_a_gpu_gives_what_the_cpu_gives(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    found = told(case)
    assert found["tensors"] > 40
    assert found["differs"] == []
    assert found["differs after a resume"] == []


@pytest.mark.parametrize("case", [*cases("compare"), *cases("lowered")])
def test_a_step_hardly_waits_for_the_gpu(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    found = told(case)
    assert found["steps"] > 2
    assert 1 <= sum(found["waits"].values()) <= MOST_WAITS, found["waits"]


@pytest.mark.parametrize("case", cases("compare"))
def test_a_device_holds_no_more_than_it_must(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    _, method, _ = {**SHORT, **LONG}[case]
    assert 1 < told(case)["peak"] / 1e6 < MEGABYTES[method]


@pytest.mark.parametrize("case", cases("compare"))
def test_every_operation_has_a_kernel_of_cuda(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    found = told(case)
    assert len(found["ops"]) > 30
    assert found["without a kernel"] == []
    assert "aten._foreach_add_.List" in found["ops"] or case.startswith(
        ("linear-probe", "wann")
    )  # all parameters at once


@pytest.mark.parametrize("case", cases("lowered"))
def test_every_network_of_a_method_computes_in_half_the_bits(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    heavy, (*_, settings) = told(case)["heavy"], {**SHORT, **LONG}[case]
    kind = KINDS[settings["train.precision"]]
    assert heavy[f"aten.convolution.default of {kind}"] > 10
    assert [op for op in heavy if "convolution" in op and not op.endswith(f" of {kind}")] == []


@pytest.mark.parametrize("case", cases("overflowing"))
def test_a_step_that_the_scaler_skips_changes_nothing(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    """Neither weights nor statistics of batch normalisation nor tables."""
    found = told(case)
    assert found["changed"] == []
    assert found["scale"] == 2.0 ** (16 - found["steps"])  # it tries again with a smaller one
    assert found["bad steps"] == 0


def test_a_step_without_room_names_the_flag_and_loses_nothing(told: Callable[[str], dict[str, Any]]) -> None:
    found = told("short elr without room")
    assert "a smaller --batch-size" in found["told"]
    assert "--resume" in found["told"]
    assert found["differs"] == []


@pytest.mark.parametrize("case", cases("examined"))
def test_doctor_finds_no_difference_where_there_is_none(case: str, told: Callable[[str], dict[str, Any]]) -> None:
    found = told(case)
    assert found["phases"]
    assert set(found["differences"]) == {0.0}
