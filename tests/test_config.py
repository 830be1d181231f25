"""One frozen config: defaults, a TOML file, settings."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from somnet.config import Config, load_config, validated
from somnet.errors import ConfigError, SomnetError
from somnet.methods.somnet_settings import SomnetSettings


def from_text(folder: Path, text: str) -> Config:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(file)


# --- a file


def test_a_file_overrides_the_defaults(tmp_path: Path) -> None:
    config = from_text(tmp_path, 'method = "plain"\n[somnet.memory]\nradius = 0\n')
    assert (config.method, config.of(SomnetSettings).memory.radius) == ("plain", 0)
    assert config.of(SomnetSettings).memory.side == Config().of(SomnetSettings).memory.side


def test_settings_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[train]\nlr = 0.5\nepochs = 3\n")
    config = load_config(file, ["train.lr=0.25"])
    assert (config.train.lr, config.train.epochs) == (0.25, 3)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("colour = 1", "colour"),
        ("[train]\nrate = 1", "train.rate"),
        ("[somnet.memory]\nsides = 3", "somnet.memory.sides"),
        ("[trian]\nlr = 1", "trian"),
    ],
)
def test_an_unknown_key_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"{place}: unknown setting"):
        from_text(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[train]\nlr = 0", "train.lr"),
        ("[train]\nlr = nan", "train.lr"),
        ("[train]\nlr = inf", "train.lr"),
        ("[train]\nweight_decay = inf", "train.weight_decay"),
        ("[sukhbaatar]\ndecay = inf", "sukhbaatar.decay"),
        ("[train]\nepochs = 0", "train.epochs"),
        ("[train]\nepochs = 1.5", "train.epochs"),
        ("[train]\nmomentum = 1.0", "train.momentum"),
        ('[model]\nfreeze = "half"', "model.freeze"),
        ("[model]\nimgsz = 8", "model.imgsz"),
        ("[somnet.memory]\nradius = -1", "somnet.memory.radius"),
        ("[somnet.weighting]\nkeep_last = 1.5", "somnet.weighting.keep_last"),
        ("train = 3", "train"),
        ("seed = -1", "seed"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"{place}: .*got"):
        from_text(tmp_path, text)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.lr.*train\.rate"):
        from_text(tmp_path, "[train]\nlr = -1\nrate = 2")


def test_p_may_not_fall(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep_first must not exceed keep_last"):
        from_text(tmp_path, "[somnet.weighting]\nkeep_first = 0.5\nkeep_last = 0.4")


@pytest.mark.parametrize("data", [b"[train", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.toml").write_bytes(data)
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(tmp_path / "config.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config"):
        load_config(tmp_path / "nothing.toml")


# --- settings


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("train.lr=0.02", 0.02),
        ("train.lr=2e-3", 0.002),
        ("train.lr = 1", 1.0),
        ("train.epochs=7", 7),
        ("model.pretrained=false", False),
        ("somnet.memory.kmeans=true", True),
        ("model.name=resnet50", "resnet50"),
        ('model.name="resnet50"', "resnet50"),
        ("model.name= resnet50 ", "resnet50"),
        ("model.name=a=b", "a=b"),
        ("model.freeze=none", "none"),
        ("method=plain", "plain"),
    ],
)
def test_a_setting_is_read(setting: str, value: object) -> None:
    found: object = load_config(settings=[setting]).model_dump()
    for part in setting.split("=")[0].strip().split("."):
        assert isinstance(found, dict)
        found = found[part]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("setting", ["train.lr", "=3", "", " = 1"])
def test_a_setting_without_name_or_equals_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="name=value"):
        load_config(settings=[setting])


@pytest.mark.parametrize("setting", ["train.rate=1", "lr=1", "train=1", "train.lr.x=1", "somnet.memory=1", "train.=1"])
def test_an_unknown_setting_is_refused_with_the_names_there(setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown setting '{setting.split('=')[0]}'.*names here are \w+"):
        load_config(settings=[setting])


@pytest.mark.parametrize("setting", ["train.lr=fast", "train.epochs=", "model.pretrained=perhaps", "train.lr=[1]"])
def test_a_setting_of_the_wrong_kind_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.split("=")[0]):
        load_config(settings=[setting])


def test_the_last_of_equal_settings_wins() -> None:
    assert load_config(settings=["train.lr=1", "train.lr=2"]).train.lr == 2


def test_settings_leave_the_original_as_it_was() -> None:
    config = Config()
    assert config.with_settings({"somnet.memory.radius": 0}).of(SomnetSettings).memory.radius == 0
    assert config.of(SomnetSettings).memory.radius == 2


# --- the config itself


def test_a_config_is_frozen() -> None:
    config = Config()
    with pytest.raises(ValidationError):
        config.seed = 1
    with pytest.raises(ValidationError):
        config.of(SomnetSettings).memory.radius = 1


def test_toml_comes_back_as_it_was(tmp_path: Path) -> None:
    config = load_config(settings=["train.lr=0.0123", "model.name=größer", "somnet.memory.detach=false", "seed=3"])
    assert from_text(tmp_path, config.to_toml()) == config


@given(st.floats(1e-9, 1e9), st.integers(0, 2**31), st.text(max_size=20))
def test_toml_comes_back_for_any_values(lr: float, seed: int, name: str) -> None:
    config = validated({"seed": seed, "train": {"lr": lr}, "model": {"name": name}})
    again = validated(tomllib.loads(config.to_toml()))
    assert again == config
    assert again.hash() == config.hash()


@pytest.mark.parametrize("setting", ["seed=1", "train.lr=0.011", "somnet.memory.radius=1", "method=plain"])
def test_the_hash_changes_with_a_value(setting: str) -> None:
    assert load_config(settings=[setting]).hash() != Config().hash()


def test_the_hash_does_not_change_with_the_order(tmp_path: Path) -> None:
    first = from_text(tmp_path, "seed = 4\n[train]\nlr = 0.5\nepochs = 3\n[model]\nimgsz = 64\n")
    second = from_text(tmp_path, "seed = 4\n[model]\nimgsz = 64\n[train]\nepochs = 3\nlr = 0.5\n")
    assert first.hash() == second.hash()


def test_the_hash_is_that_of_the_meaning() -> None:
    assert load_config(settings=["train.lr=1"]).hash() == load_config(settings=["train.lr=1.0"]).hash()
    assert load_config(settings=["seed=0"]).hash() == Config().hash()


def test_mistakes_in_the_sections_of_methods_hide_no_others() -> None:
    with pytest.raises(ConfigError, match=r"elr\.beta: .*train\.lr: "):
        validated({"train": {"lr": -1}, "elr": {"beta": 2}})


def test_what_is_chosen_by_the_data_can_be_given_and_taken_back() -> None:
    config = load_config(flags={"train.classifier_decay": 0.2})
    assert config.train.classifier_decay == 0.2
    assert config.with_settings({"train.classifier_decay": "unset"}).train.classifier_decay is None
    assert "classifier_decay" not in Config().to_toml()
    with pytest.raises(ConfigError, match=r"train\.classifier_decay"):
        load_config(flags={"train.classifier_decay": "much"})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": "sommet"}, "there is no method 'sommet': did you mean 'somnet'?"),
        ({"metod": "plain"}, "metod: unknown setting: did you mean 'method'?"),
        ({"train": {"epoch": 3}}, "train.epoch: unknown setting: did you mean 'train.epochs'?"),
        ({"somnet": {"memory": {"sid": 3}}}, "somnet.memory.sid: unknown setting: did you mean 'somnet.memory.side'?"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
    ],
)
def test_mistakes_in_python_are_told_as_on_the_command_line(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SomnetError) as caught:
        Config(**wrong)
    assert said in str(caught.value)


def test_a_setting_that_is_nearly_right_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'train\.epoch': did you mean 'epochs'"):
        load_config(None, ["train.epoch=3"])
    with pytest.raises(ConfigError, match=r"unknown setting 'trian\.epochs': did you mean 'train'"):
        load_config(None, ["trian.epochs=3"])
