"""Methods by name: ours, those of other packages, and one by its place; and their settings without torch."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from somnet.config import Config, load_config
from somnet.errors import ConfigError
from somnet.methods import registry
from somnet.methods.base import Method, find_method
from somnet.methods.registry import METHODS, TRUSTED, known_methods, section_named, sections_of
from somnet.methods.settings import MethodSettings

OWN = """
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Method, Step
from somnet.methods.settings import MethodSettings, Share

class Settings(MethodSettings):
    trust: Share = 0.8

class Mine(Method):
    def plan(self): return ()
    def step(self, batch, phase): return Step({})

NOT_A_METHOD = 3
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing is remembered of what other tests have installed."""

    def forget() -> None:
        known_methods.cache_clear()
        registry._given.clear()
        sections_of.cache_clear()
        for name in [name for name in sys.modules if name.startswith("their_")]:
            del sys.modules[name]

    forget()
    path = list(sys.path)
    yield
    sys.path[:] = path
    forget()


def install(folder: Path, module: str, name: str, patch: pytest.MonkeyPatch) -> None:
    """A package of somebody else's, with a module that holds a method, and the entry point that names it."""
    (folder / "their_package").mkdir()
    (folder / "their_package" / "__init__.py").write_text("")
    (folder / "their_package" / f"{module}.py").write_text(OWN)
    info = folder / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[somnet.methods]\n{name} = their_package.{module}:Mine\n")
    patch.syspath_prepend(folder)


@pytest.mark.parametrize("name", METHODS)
def test_settings_read_without_torch_are_those_of_the_method(name: str) -> None:
    module = sys.modules[find_method(name).__module__]
    real = {
        kind.section(): kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, MethodSettings) and kind is not MethodSettings
    }
    light = sections_of(name)
    assert {section: kind().model_dump() for section, kind in light.items()} == {
        section: kind().model_dump() for section, kind in real.items()
    }
    assert {section: kind.model_json_schema() for section, kind in light.items()} == {
        section: kind.model_json_schema() for section, kind in real.items()
    }


def test_a_mistake_in_a_setting_is_told_without_torch() -> None:
    code = (
        "import sys\nfrom somnet.config import Config, load_config\nfrom somnet.errors import ConfigError\n"
        "Config(method='somnet').hash()\n"
        "try: load_config(settings=['method=elr', 'elr.beta=2'])\n"
        "except ConfigError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[0].startswith("the config is not valid: elr.beta: ")
    assert told[1] == "False"


def test_a_section_belongs_to_the_method_of_its_name() -> None:
    kind = section_named("somnet_plus")
    assert kind is not None
    assert kind.__name__ == "SomnetPlusSettings"
    assert set(sections_of("somnet+")) == {"somnet", "somnet_plus"}
    assert set(sections_of("plain-roi")) == set()
    assert section_named("nobody") is None


def test_a_package_brings_a_method_by_an_entry_point(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "their_method", "theirs", monkeypatch)
    assert issubclass(find_method("theirs"), Method)
    config = load_config(settings=["method=theirs", "their_method.trust=0.5"])
    assert config.model_dump()["their_method"] == {"trust": 0.5}
    assert config.hash() != Config(method="theirs").hash()
    with pytest.raises(ConfigError, match=r"their_method\.trust"):
        load_config(settings=["method=theirs", "their_method.trust=2"])
    (tmp_path / "config.toml").write_text('method = "theirs"')
    assert load_config(tmp_path / "config.toml").method == "theirs"  # installed by the user, so a file may name it


def test_an_entry_point_does_not_replace_our_methods(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "their_method", "plain", monkeypatch)
    assert known_methods()["plain"] == METHODS["plain"]


def test_a_method_in_the_working_folder_is_found_by_its_place(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    config = Config().with_settings({"method": "their_own:Mine", "their_own.trust": 0.3})
    assert find_method(config.method).__name__ == "Mine"
    assert config.model_dump()["their_own"] == {"trust": 0.3}
    assert sys.path[-1] == str(tmp_path)  # last: it hides nothing, and what the method imports later is found there


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("their_own:Nobody", "has no method 'Nobody'"),
        ("their_own:NOT_A_METHOD", "has no method 'NOT_A_METHOD'"),
        ("their_missing:Mine", "there is no module 'their_missing' with a method"),
        ("somnet.nope:Mine", "there is no module 'somnet.nope' with a method"),
        ("their_broken:Mine", "cannot import the method's module 'their_broken'"),
        ("sommet", "there is no method 'sommet': did you mean 'somnet'. choose one of"),
        ("their own:Mine", "there is no method"),
        (":Mine", "there is no method"),
    ],
)
def test_what_is_not_a_method_is_refused(
    name: str, told: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_own.py").write_text(OWN)
    (tmp_path / "their_broken.py").write_text("import their_missing_package\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told):
        find_method(Config(method=name).method)


def test_a_file_cannot_have_code_of_its_choice_imported(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_own.py").write_text(OWN + f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "config.toml").write_text('method = "their_own:Mine"')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"if you trust it, set {TRUSTED}=their_own:Mine"):
        load_config(tmp_path / "config.toml")
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv(TRUSTED, "their_own:Mine")
    assert find_method(load_config(tmp_path / "config.toml").method).__name__ == "Mine"
    assert (tmp_path / "ran").exists()


def test_the_keyboard_decides_before_a_file_is_judged(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.toml"
    file.write_text('method = "their_own:Mine"')
    assert load_config(file, flags={"method": "plain"}).method == "plain"
    assert load_config(file, ["method=their_own:Mine"]).method == "their_own:Mine"
    assert load_config(file).method == "their_own:Mine"  # it was named at the keyboard just now
    file.write_text("[their_own]\ntrust = 0.4")
    config = load_config(file, flags={"method": "their_own:Mine"})
    assert config.model_dump()["their_own"] == {"trust": 0.4}


def test_settings_are_read_without_running_the_file(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_own.py").write_text(OWN + f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert Config(method="their_own:Mine").hash()
    assert not (tmp_path / "ran").exists()


def test_settings_of_a_method_that_another_builds_on_count(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_sub.py").write_text("from somnet.methods.somnet import SomNet\nclass Sub(SomNet): pass\n")
    monkeypatch.chdir(tmp_path)
    config = Config(method="their_sub:Sub")
    assert config.with_settings({"somnet.memory.side": 5}).hash() != config.hash()
    assert config.with_settings({"elr.beta": 0.5}).hash() == config.hash()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("train", OWN, "cannot be called 'train'"),
        ("their_none", OWN.replace("trust: Share = 0.8", "trust: Share | None = None"), "defaults that TOML can write"),
        ("their_need", OWN.replace("trust: Share = 0.8", "trust: Share"), "defaults that TOML can write"),
        ("their_more", OWN.replace("trust: Share = 0.8", "trust: Share = HALF"), "without the rest of the file"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    name: str, text: str, told: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told):
        Config(method=f"{name}:Mine")


def test_a_module_named_like_ours_does_not_take_over_its_section(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "elr", "aaa", monkeypatch)
    assert Config().with_settings({"elr.beta": 0.9}).model_dump()["elr"]["beta"] == 0.9


def test_other_methods_settings_do_not_change_the_fingerprint() -> None:
    plain = Config(method="plain")
    assert plain.with_settings({"elr.beta": 0.5}).hash() == plain.hash()
    assert plain.with_settings({"elr.beta": 0.5, "method": "elr"}).hash() != Config(method="elr").hash()
    assert "elr" not in Config(method="elr").with_settings({"method": "plain"}).model_dump()


def test_the_registry_names_all_files_of_methods() -> None:
    folder = Path(registry.__file__).parent
    shared = {
        "__init__",
        "base",
        "registry",
        "settings",
        "entropy",
        "features",
        "fresh",
        "frozen",
        "class_prototypes",
        "class_scales",
        "label_confusion",
        "label_evidence",
        "label_judgement",
        "review",
        "right_examples",
        "label_posterior",
        "logistic",
        "mixup",
        "sample_table",
        "typicality",
    }
    files = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("somnet_") or "plus" in file.stem}
    assert files - shared == {place.partition(":")[0].rpartition(".")[2] for place in METHODS.values()}
