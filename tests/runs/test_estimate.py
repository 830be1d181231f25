"""What a training will cost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from somnet.config import Config, load_config
from somnet.core.types import Phase
from somnet.data.dataset import open_dataset
from somnet.errors import DataError
from somnet.methods.frozen import with_given_vectors
from somnet.methods.registry import METHODS
from somnet.methods.somnet_settings import SomnetSettings
from somnet.runs.estimate import (
    FETCH,
    MOST_DECAY,
    START,
    Work,
    estimate,
    estimate_seconds,
    plan_training,
    trunk_passes,
    work_of,
)
from somnet.runs.pace import ReadPace, StepPace, measure_fit, measure_steps
from somnet.runs.run import build_method
from somnet.system.compute import Compute
from somnet.training.decay import MOST_IMAGES

CONFIGS = Path(__file__).parents[2] / "configs"
STEP = StepPace(prepare=0.5, forward=0.1, step=0.3, saved_bytes=1000, fit=0.001)
READ = ReadPace(load=0.02, propose=0.04, decode=0.01, cut=0.002)
WORK = Work(
    train=100,
    test=10,
    passes=4,
    epochs=5,
    batch_size=8,
    max_boxes=20,
    views=3,
    map_bytes=0,
    held_bytes=0,
    trained_bytes=400,
    state_bytes=600,
    table_bytes=50,
)


def test_a_network_trained_whole_by_hand() -> None:
    cost = estimate(WORK, STEP, READ, cores=2, speedup=1, apart=False)
    assert cost.propose == pytest.approx(110 * 0.04 / 2)
    assert cost.maps == 0
    assert cost.train == pytest.approx(4 * 100 * 0.3)
    scored = 6 * 10 + 100 * 2 + 100  # tests; each image by the method and to judge its label; its vector
    assert cost.score == pytest.approx(scored * 0.1)
    assert cost.load == pytest.approx((400 + scored) * 0.02 / 2)
    assert cost.report == pytest.approx(2 * 100 * 0.02 / 2)
    assert cost.fits == pytest.approx(100 * (2 * 7 * 2 * 0.8 + 5 * 0.8) * 0.001 / 2)  # strengths twice, then folds
    stages = (cost.propose, cost.train, cost.score, cost.load, cost.fits, cost.report)
    assert cost.total == pytest.approx(START + sum(stages))
    assert cost.device_bytes == 600 - 50 + 2 * 400 + 8 * 1000
    assert cost.checkpoint_bytes == 600 + 400
    assert cost.cache_bytes == 110 * 20 * 16


def test_a_frozen_trunk_is_paid_once_for_each_view() -> None:
    cost = estimate(replace(WORK, map_bytes=7), STEP, READ, cores=2, speedup=1, apart=False)
    assert cost.maps == pytest.approx(310 * 0.5)
    assert cost.load == pytest.approx((110 * 0.01 + 310 * 0.002) / 2)  # a picture is decoded once for all views
    assert cost.train == pytest.approx(4 * 100 * 0.3 + FETCH * (400 + 360) / 2)
    assert cost.cache_bytes == 110 * 20 * 16 + 310 * 7


def test_only_a_method_that_draws_views_pays_for_them() -> None:
    config = Config()
    views = config.views
    drawn, counted = Phase("train", 1, {}), Phase("fit", 1, {}, needs_images=False)
    assert trunk_passes(config, [drawn]) == 2 + views.proposals + views.crops
    assert trunk_passes(config, [counted]) == 1


def test_a_faster_device_waits_for_the_cores_in_the_end() -> None:
    fast = estimate(WORK, STEP, READ, cores=2, speedup=10, apart=True)
    assert fast.train == pytest.approx(4 * 100 * 0.3 / 10)
    assert fast.propose == pytest.approx(110 * 0.04 / 2)
    fastest = estimate(WORK, STEP, READ, cores=2, speedup=1e9, apart=True)
    assert fastest.total == pytest.approx(START + fastest.propose + fastest.load + fastest.fits + fastest.report)


def test_features_of_all_images_at_once_take_main_memory() -> None:
    cost = estimate(replace(WORK, held_bytes=8192), STEP, READ, cores=2, speedup=1, apart=False)
    plain = estimate(WORK, STEP, READ, cores=2, speedup=1, apart=False)
    assert cost.host_bytes - plain.host_bytes == 100 * 8192
    assert cost.device_bytes == plain.device_bytes


@pytest.mark.parametrize("name", METHODS)
def test_what_grows_with_the_images_is_in_main_memory(name: str, tiny: Any) -> None:
    config, of_device = tiny.config(name), []
    for images in (30, 60):
        method = build_method(config, np.arange(images, dtype=np.int64) % 3, 3)
        work = work_of(method, config, train=images, test=0)
        of_device.append(estimate(work, STEP, READ, cores=2, speedup=1, apart=False).device_bytes)
    a_row = {"wann": 4 * method.network.width + 16, "mopro": 4 * 128 * 0.25}  # its features if few; its queue
    assert (of_device[1] - of_device[0]) / 30 == pytest.approx(a_row.get(name, 0), rel=0.1)


def test_the_work_follows_from_the_plan(tiny: Any) -> None:
    labels = np.zeros(50, np.int64)
    somnet = tiny.config("somnet", **{"model.freeze": "none"})
    work = work_of(build_method(somnet, labels, 3), somnet, train=50, test=5)
    assert (work.passes, work.map_bytes, work.batch_size) == (10, 0, 6)  # 2 of images, 2 of four regions
    assert work.held_bytes > 0  # the memory is initialised on features of all images
    plain = tiny.config("plain")
    method = build_method(plain, labels, 3)
    frozen = work_of(method, plain, train=50, test=5)
    assert frozen.held_bytes == 0
    assert frozen.map_bytes == 2 * np.prod(method.network.input_shape)
    assert frozen.trained_bytes < frozen.state_bytes  # the trunk is saved, and not trained


def test_steps_are_measured(tiny: Any) -> None:
    frozen, whole = (tiny.config("plain", **{"model.freeze": freeze}) for freeze in ("trunk", "none"))
    of_frozen, of_whole = (
        measure_steps(build_method(config, np.zeros(4, np.int64), 3).network, config, "cpu", 3)
        for config in (frozen, whole)
    )
    assert of_frozen.prepare > 0
    assert of_whole.prepare == 0
    assert min(of_whole.forward, of_whole.step, of_frozen.forward, of_frozen.step) > 0
    assert of_whole.saved_bytes > of_frozen.saved_bytes > 0


def test_a_fit_to_more_classes_takes_longer() -> None:
    assert measure_fit(64, 500) > 5 * measure_fit(64, 2) > 0


def test_what_is_cached_takes_no_time_and_labels_that_are_judged_twice_take_more() -> None:
    frozen = replace(WORK, map_bytes=7)
    ahead = estimate(replace(frozen, missing=31), STEP, READ, cores=2, speedup=1, apart=False)
    assert ahead.maps == pytest.approx(31 * 0.5)
    assert ahead.load == pytest.approx((11 * 0.01 + 31 * 0.002) / 2)
    once, twice = (
        estimate(replace(frozen, regions=4, judgements=count), STEP, READ, cores=1, speedup=1, apart=False)
        for count in (1, 2)
    )
    assert twice.score - once.score == pytest.approx(100 * 4 * 0.1)
    assert twice.fits - once.fits == pytest.approx(100 * (7 * 2 * 0.8 + 5 * 0.8 * 4) * 0.001)
    memory = estimate(replace(frozen, memory_passes=5), STEP, READ, cores=2, speedup=1, apart=False)
    alone = estimate(frozen, STEP, READ, cores=2, speedup=1, apart=False)
    assert memory.train - alone.train == pytest.approx(5 * 100 * 0.3)


def test_a_training_says_what_plan_says_but_for_what_is_done(
    data: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny.config("plain")
    images = open_dataset(data, config, Compute(workers=0))
    method = build_method(config, images.train.labels, len(images.classes))
    for name, answer in (("measure_steps", STEP), ("measure_reading", READ), ("own_cores", 2)):
        monkeypatch.setattr(f"somnet.runs.estimate.{name}", Mock(return_value=answer))
    said = estimate_seconds(images, method, config, "cpu")
    work = work_of(method, config, train=len(images.train), test=6)
    planned = estimate(work, STEP, READ, cores=2, speedup=1, apart=False)
    assert said == pytest.approx(planned.total - planned.propose - START)
    assert MOST_DECAY == MOST_IMAGES


# --- the configs of the paper


@pytest.mark.parametrize(("name", "side"), [("clothing1m", 12), ("food101n", 32), ("webvision", 100)])
def test_the_configs_are_the_papers(name: str, side: int) -> None:
    config = load_config(CONFIGS / f"{name}.toml")
    assert (config.method, config.model.name, config.model.freeze, config.model.imgsz) == (
        "somnet",
        "resnet50",
        "none",
        224,
    )
    assert config.model.pretrained is (name != "webvision")
    assert (config.proposals.max_boxes, config.of(SomnetSettings).images_per_bag) == (20, 2)
    assert round(config.proposals.min_area * config.model.imgsz**2, -3) == 5000
    assert config.of(SomnetSettings).memory.side == side
    weighting = config.of(SomnetSettings).weighting
    assert (weighting.keep_first, weighting.keep_last, weighting.keep_step) == (0.10, 0.40, 0.05)


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.stem)
def test_configs_say_no_more_than_what_differs(file: Path) -> None:
    import tomllib

    def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in tree.items():
            found |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
        return found

    told = flat(tomllib.loads(file.read_text()))
    shared, methods = flat(Config().model_dump()), [flat(Config(method=name).model_dump()) for name in METHODS]
    defaults = {name: value for known in (*methods, shared) for name, value in known.items()}
    assert [name for name, value in told.items() if defaults[name] == value] == []


# --- the verb


def test_plan_reads_the_data(tmp_path: Path, data: Path, tiny: Any, cli: Callable[..., Any]) -> None:
    (tmp_path / "tiny.toml").write_text(tiny.config("somnet", **{"model.freeze": "none"}).to_toml())
    done = cli("plan", data, "--config", tmp_path / "tiny.toml", "--speedup", 20, "--cores", 8)
    assert done.code == 0, done.err
    assert "18 training images 10 times, 6 test images" in done.out
    assert "a device 20 times as fast as this cpu" in done.out
    assert "measured on images of the data" in done.out
    assert "and the 20 of --speedup" in done.out


def test_plan_needs_no_data_where_sizes_are_given(tmp_path: Path, tiny: Any, cli: Callable[..., Any]) -> None:
    (tmp_path / "tiny.toml").write_text(tiny.config("plain", **{"model.freeze": "none"}).to_toml())
    done = cli("plan", "--config", tmp_path / "tiny.toml", "--images", 1000, "--test-images", 7, "--classes", 14)
    assert done.code == 0, done.err
    assert "1000 training images 4 times, 7 test images" in done.out
    assert "assumed: there are no images here to time" in done.out
    for words in ((), ("--images", 1000)):
        too_little = cli("plan", "--config", tmp_path / "tiny.toml", *words)
        assert (too_little.code, "give the data, or --images" in too_little.err + too_little.out) == (2, True)


def test_plan_takes_the_flags_of_a_training(data: Path, tiny: Any, cli: Callable[..., Any]) -> None:
    done = cli("plan", data, *tiny.flags(), "--method", "plain", "--epochs", 7, "--batch-size", 3, "--freeze", "none")
    assert done.code == 0, done.err
    assert "18 training images 7 times, 6 test images" in done.out
    assert "feature maps" not in done.out  # the network is trained whole


def test_plan_with_vectors_counts_no_network(data: Path, tmp_path: Path, cli: Callable[..., Any]) -> None:
    np.save(tmp_path / "v.npy", np.zeros((24, 5000)))
    done = cli("plan", data, "--embeddings", tmp_path / "v.npy")
    assert done.code == 0, done.err
    assert "18 training images 0 times, 6 test images" in done.out
    assert "looking at the images" in done.out
    assert not any(name in done.out for name in ("proposals", "feature maps", "loading images"))
    assert "fits of linear classifiers" in done.out
    refused = cli("plan", data, "--embeddings", tmp_path / "v.npy", "--method", "elr")
    assert refused.code == 2
    assert "--method linear-probe" in refused.err


def test_given_vectors_are_in_main_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((4, 5000)))
    config = Config(method="linear-probe").with_settings({"model.embeddings": str(tmp_path / "v.npy")})
    config = with_given_vectors(config)
    work = work_of(build_method(config, np.zeros(4, np.int64), 3), config, train=1_000_000, test=1_000)
    assert work.map_bytes == 0
    given = estimate(work, STEP, READ, cores=2, speedup=1, apart=False)
    without = estimate(replace(work, vector_bytes=0), STEP, READ, cores=2, speedup=1, apart=False)
    assert given.host_bytes - without.host_bytes == 1_001_000 * 5000 * 4
    assert given.cache_bytes == 0


def test_data_without_training_images_are_refused(tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "test" / "a").mkdir(parents=True)
    (tmp_path / "test" / "a" / "1.jpg").write_bytes(b"never opened")
    with pytest.raises(DataError, match="no training images"):
        plan_training(tiny.config("plain"), tmp_path, device="cpu")


def test_unreadable_images_are_not_timed(tmp_path: Path, tiny: Any) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"no picture")
    lines = plan_training(tiny.config("plain"), tmp_path, device="cpu")
    assert any(line.startswith("assumed: there are no images here to time") for line in lines)
