"""One frozen, validated config. A TOML file overrides the defaults, `--set a.b=c` overrides the file."""

import hashlib
import json
import reprlib
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator

from somnet.errors import ConfigError, did_you_mean
from somnet.methods.registry import METHODS, TRUSTED, is_trusted, section_named, sections_of, trust
from somnet.methods.settings import Count, MethodSettings, Momentum, Rate, Section, Share, Strength

SEEDS = 2**32  # seeds are below it
# Part of the data, or without effect on training but rounding
UNCOUNTED = {"decisions", "clean_val", "follow_links", "threads", "tensorboard"}
UNSET = "unset"  # typed for a value that is to be chosen
Settings = TypeVar("Settings", bound=MethodSettings)

_MAY_BE_UNSET = BeforeValidator(lambda value: None if value == UNSET else value)
ThreadCount = Annotated[Annotated[int, Field(ge=1, le=1024)] | None, _MAY_BE_UNSET]
Chosen = Annotated[Strength | None, _MAY_BE_UNSET]


class ModelConfig(Section):
    """The backbone."""

    name: str = "tf_efficientnet_lite0"  # any timm name; this one's ImageNet weights come with the installation
    pretrained: bool = True  # start from pretrained weights
    weights: str = ""  # safetensors file with them, instead of those that timm fetches
    embeddings: str = ""  # file with vectors of the images, by any model: no network is used, nor trained
    freeze: Literal["trunk", "none"] = "trunk"  # frozen: trunk, all but the last stage (maps are cached), or none
    imgsz: Annotated[int, Field(ge=32, le=2048)] = 224  # side of the input, in pixels


class ProposalConfig(Section):
    """EdgeBoxes. The paper's MinBoxArea of 5000 pixels is a share of the image here, so it holds at any size."""

    max_boxes: Annotated[int, Field(ge=0, le=1000)] = 20  # the paper's MaxBoxes and n_p
    min_area: Annotated[float, Field(ge=0, lt=1)] = 0.03  # of a box, as a share of the image: the paper's MinBoxArea
    edge_side: Annotated[int, Field(ge=32, le=2000)] = 128  # edges are computed at this longest side


class ViewConfig(Section):
    """What a training step may see of an image, each at full size; one of them is drawn whenever an image is used."""

    mirror: bool = True  # the mirrored image, beside the image itself
    crops: Annotated[int, Field(ge=0, le=20)] = 2  # random crops, some of them mirrored
    smallest_crop: Share = 0.25  # of a random crop, as a share of the image's area
    proposals: Annotated[int, Field(ge=0, le=20)] = 3  # crops of the first region proposals; SOMNet's regions


class TrainConfig(Section):
    """Budget and optimiser, the same for every method."""

    epochs: Count = 12  # how often each image is used
    batch_size: Count = 32  # images per step
    lr: Rate = 0.01  # where the learning rate starts
    momentum: Momentum = 0.9  # of SGD
    weight_decay: Strength = 1e-4  # of SGD, but for the classifier
    classifier_decay: Chosen = None  # its own weight decay; unset: chosen by how well labels can be predicted
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"  # of the CNN's maps; auto: bf16 on a GPU that has it
    sync_bn: bool = True  # normalise by the images of all ranks, where statistics are trained; else by each rank's own
    compile: bool = False  # have torch compile the trained part of the network: minutes at first, then faster on a GPU
    save_minutes: Rate = 10.0  # longest time between two checkpoints


class Config(Section):
    """Everything that determines a run, together with the data.

    Beside the fields below it has a section for the chosen method, as `[elr]`, and others that were set: `of()`.
    """

    model_config = ConfigDict(extra="allow")  # for the sections of methods, which are checked in their own way

    method: str = "somnet+"  # a name of docs/methods.md, or package.module:Class of your own
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = 0  # all randomness follows from it
    decisions: tuple[str, ...] = ()  # files with what people decided about training images, the latest last
    clean_val: bool = False  # the labels of the split val are right: they tell how likely those of train are
    tensorboard: bool = False  # write the figures of each epoch for TensorBoard, too
    follow_links: bool = False  # read what links in the data lead to outside of it
    threads: ThreadCount = None  # of the CPU; unset: those that a run is started with, also when it is resumed
    model: ModelConfig = ModelConfig()
    proposals: ProposalConfig = ProposalConfig()
    views: ViewConfig = ViewConfig()
    train: TrainConfig = TrainConfig()

    if not TYPE_CHECKING:  # for whom the fields above are the arguments

        def __init__(self, **tree: Any) -> None:
            """Refuse what is wrong in our own words, in Python as on the command line."""
            try:
                super().__init__(**tree)
            except ValidationError as error:
                raise ConfigError(f"the config is not valid: {_all_mistakes(tree, error)}") from None

    @model_validator(mode="before")
    @classmethod
    def _check_sections_of_methods(cls, tree: Any) -> Any:
        """Complete the sections of the chosen method; of another one, keep what differs from its defaults."""
        if not isinstance(tree, Mapping) or not isinstance(method := tree.get("method", DEFAULT_METHOD), str):
            return tree  # which is refused later
        trust(method)
        given = {name: _plain(value) for name, value in tree.items() if name not in cls.model_fields}
        own = sections_of(method)
        if taken := own.keys() & cls.model_fields.keys():
            raise ConfigError(
                f"a method's settings cannot be called '{taken.pop()}', as every run has such: rename its file"
            )
        others = {name: kind for name in given if name not in own and (kind := section_named(name))}
        sections = _sections_model(tuple({**own, **others}.items())).model_validate(given).model_dump()
        defaults = {name: kind().model_dump() for name, kind in others.items()}
        told = {name: section for name, section in sections.items() if section != defaults.get(name)}
        return {name: value for name, value in tree.items() if name in cls.model_fields} | told

    def of(self, kind: type[Settings]) -> Settings:
        """The settings of a method, from their section."""
        return kind.model_validate((self.model_extra or {}).get(kind.section(), {}))

    def hash(self) -> str:
        """Short fingerprint: two runs with the same one did the same work. Other methods' settings do not count."""
        own = {*type(self).model_fields, *sections_of(self.method)} - UNCOUNTED
        canonical = json.dumps(self.model_dump(include=own), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def to_toml(self) -> str:
        """The whole config as TOML."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def with_settings(self, settings: Mapping[str, Any]) -> "Config":
        """A copy in which dotted names have new values: `{"somnet.memory.radius": 0}`."""
        tree = self.model_dump()
        if "method" in settings:  # first: it decides which sections there are
            tree = validated({**tree, "method": settings["method"]}).model_dump()
        for name, value in settings.items():
            section = name.partition(".")[0]
            if section not in tree and (kind := section_named(section)):
                tree[section] = kind().model_dump()
            _put(tree, name, value)
        return validated(tree)


DEFAULT_METHOD: str = Config.model_fields["method"].default


@cache
def _sections_model(kinds: tuple[tuple[str, type[MethodSettings]], ...]) -> type[Section]:
    """A model of these sections together, so that one check names all mistakes with their places."""
    fields: dict[str, Any] = {name: (kind, kind()) for name, kind in kinds}
    return create_model("MethodSections", __base__=Section, **fields)


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else value


def validated(tree: Mapping[str, Any]) -> Config:
    """A config from nested mappings; what is wrong is named with its place."""
    try:
        return Config(**tree)
    except RecursionError:
        raise ConfigError("the config is nested too deeply: see docs/configuration.md for the names") from None


def _all_mistakes(tree: Mapping[str, Any], error: ValidationError) -> str:
    """Mistakes in the sections of methods must not hide the others."""
    shared = {name: value for name, value in tree.items() if name in Config.model_fields}
    told = mistakes(error)
    try:
        if len(shared) < len(tree):
            Config(**shared)
    except ConfigError as more:
        others = str(more).removeprefix("the config is not valid: ")
        told = told if others in told else f"{told}; {others}"
    return told


def load_config(
    file: Path | None = None, settings: Iterable[str] = (), flags: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, then a TOML file, then `a.b=c` settings, then flags by dotted names, of which None says nothing."""
    tree: dict[str, Any] = {}
    if file is not None:
        try:
            tree = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the config {file}: {error.strerror}: give an existing TOML file") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}: fix that place") from None
    given = dict(parse_setting(text) for text in settings)
    given |= {name: value for name, value in (flags or {}).items() if value is not None}
    if "method" in given:  # the keyboard decides, before the file is judged
        tree["method"] = given["method"]
    elif file is not None:
        _check_trust(tree.get("method"), file)
    return validated(tree).with_settings(given)


def _check_trust(method: object, file: Path) -> None:
    """Refuse a file that wants code of its choice to be imported."""
    if isinstance(method, str) and not is_trusted(method):
        raise ConfigError(
            f"{file} wants to import the method '{method}': if you trust it, set {TRUSTED}={method} in the environment"
        )


def parse_setting(text: str) -> tuple[str, Any]:
    """Name and value of `a.b=c`; the value is TOML, or a bare word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"cannot read the setting '{text}': write it as name=value, for example train.lr=0.02")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return name.strip(), value.strip()  # a bare word is a string


def _put(tree: dict[str, Any], name: str, value: Any) -> None:
    *parents, leaf = name.split(".")
    node = tree
    for parent in parents:
        child = node.get(parent)
        if not isinstance(child, dict):
            raise _unknown_setting(name, parent, node)
        node = child
    if leaf not in node or isinstance(node[leaf], dict):
        raise _unknown_setting(name, leaf, node)
    node[leaf] = value


def _unknown_setting(name: str, word: str, node: Mapping[str, Any]) -> ConfigError:
    near = did_you_mean(word, node)
    return ConfigError(f"unknown setting '{name}':{near} the names here are {', '.join(sorted(node))}")


def setting_names() -> list[str]:
    """Dotted names of all settings: those of every run, and of our own methods."""
    kinds: dict[str, type[BaseModel]] = {}
    for method in METHODS:
        kinds |= sections_of(method)
    return [*_names_in(Config), *(f"{name}.{field}" for name, kind in kinds.items() for field in _names_in(kind))]


def _names_in(kind: type[BaseModel]) -> list[str]:
    names = []
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        nested = _names_in(type(default)) if isinstance(default, BaseModel) else []
        names += [name, *(f"{name}.{inner}" for inner in nested)]
    return names


def mistakes(error: ValidationError) -> str:
    """What is wrong, each mistake with its place, on one line."""
    lines = []
    for problem in error.errors():
        place = ".".join(str(key) for key in problem["loc"]) or "config"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = f"unknown setting:{did_you_mean(place, setting_names())} see docs/configuration.md for the names"
        lines.append(f"{place}: {message} (got {reprlib.repr(problem['input'])})")
    return "; ".join(lines)
