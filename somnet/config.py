"""One frozen, validated config. A TOML file overrides the defaults, `--set a.b=c` overrides the file."""

import hashlib
import json
import reprlib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError, model_validator

from somnet.errors import ConfigError
from somnet.settings import (
    AdmilConfig,
    AttendGroupsConfig,
    ConfidentConfig,
    Count,
    CurriculumnetConfig,
    DivideMixConfig,
    DraeConfig,
    ElrConfig,
    MlntConfig,
    MoproConfig,
    PencilConfig,
    Rate,
    Section,
    Share,
    SlConfig,
    SomnetPlusConfig,
    SukhbaatarConfig,
    TanakaConfig,
)

SEEDS = 2**32  # seeds are below it


class ModelConfig(Section):
    """The CNN."""

    name: str = "tf_efficientnet_lite0"  # any timm name; this one's ImageNet weights come with the installation
    pretrained: bool = True
    freeze: Literal["trunk", "none"] = "trunk"  # trunk: train last stage and classifier on cached feature maps
    imgsz: Annotated[int, Field(ge=32, le=2048)] = 224


class ProposalConfig(Section):
    """EdgeBoxes. The paper's MinBoxArea of 5000 pixels is a share of the image here, so it holds at any size."""

    max_boxes: Annotated[int, Field(ge=0, le=1000)] = 20  # the paper's MaxBoxes and n_p
    min_area: Annotated[float, Field(ge=0, lt=1)] = 0.03
    edge_side: Annotated[int, Field(ge=32, le=2000)] = 128  # edges are computed at this longest side


class MemoryConfig(Section):
    """The self-organizing memory, Eq. 2-9."""

    side: Annotated[int, Field(ge=1, le=1000)] = 12  # L = side * side slots
    radius: Annotated[int, Field(ge=0)] = 2  # 0 is "without SOM"
    key_lr: Rate = 0.5
    d_lr: Rate = 0.01
    r_lr: Rate = 0.001  # lower: a row of R spreads over many slots, is short, and so has a steep cosine
    init_epochs: Count = 10  # over features that are computed once
    detach: bool = True  # False: the memory loss trains the CNN too
    kmeans: bool = False  # True: K-means at the start of each joint epoch instead of the trained memory


class WeightingConfig(Section):
    """ROI weights, Eq. 10, and the curriculum on p. Each flag is an ablation of the paper."""

    d_score: bool = True
    r_score: bool = True
    a_score: bool = True
    rois: bool = True  # False: images only, no region proposals
    keep_first: Share = 0.10
    keep_last: Share = 0.40
    keep_step: Share = 0.05

    @model_validator(mode="after")
    def _first_before_last(self) -> "WeightingConfig":
        if self.keep_first > self.keep_last:
            raise ValueError("keep_first must not exceed keep_last: for a fixed p set both to it")
        return self


class SomnetConfig(Section):
    """What only SOMNet needs."""

    images_per_bag: Count = 2  # the paper's n_g
    init_share: Share = 0.15  # of the epochs, to initialise the CNN: a long one memorises noise the memory inherits
    init_lr: Rate = 1.0  # learning rate of the initialisation, relative to train.lr
    joint_lr: Rate = 0.05  # the same for the joint phase
    memory: MemoryConfig = MemoryConfig()
    weighting: WeightingConfig = WeightingConfig()


class TrainConfig(Section):
    """Budget and optimiser, the same for every method."""

    epochs: Count = 20  # passes over the images
    batch_size: Count = 32  # images a step
    lr: Rate = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of the CNN's maps; less than fp32 needs a CUDA GPU
    save_minutes: Rate = 10.0  # longest time between two checkpoints


class Config(Section):
    """Everything that determines a run, together with the data."""

    method: str = "somnet+"
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = 0
    model: ModelConfig = ModelConfig()
    proposals: ProposalConfig = ProposalConfig()
    train: TrainConfig = TrainConfig()
    somnet: SomnetConfig = SomnetConfig()
    somnet_plus: SomnetPlusConfig = SomnetPlusConfig()
    sukhbaatar: SukhbaatarConfig = SukhbaatarConfig()
    drae: DraeConfig = DraeConfig()
    attend_groups: AttendGroupsConfig = AttendGroupsConfig()
    admil: AdmilConfig = AdmilConfig()
    tanaka: TanakaConfig = TanakaConfig()
    curriculumnet: CurriculumnetConfig = CurriculumnetConfig()
    sl: SlConfig = SlConfig()
    mlnt: MlntConfig = MlntConfig()
    pencil: PencilConfig = PencilConfig()
    elr: ElrConfig = ElrConfig()
    divide_mix: DivideMixConfig = DivideMixConfig()
    mopro: MoproConfig = MoproConfig()
    confident: ConfidentConfig = ConfidentConfig()

    def hash(self) -> str:
        """Short fingerprint: two runs with the same one did the same work."""
        canonical = json.dumps(self.model_dump(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def to_toml(self) -> str:
        """The whole config as TOML."""
        return tomli_w.dumps(self.model_dump())

    def with_settings(self, settings: Mapping[str, Any]) -> "Config":
        """A copy in which dotted names have new values: `{"somnet.memory.radius": 0}`."""
        tree = self.model_dump()
        for name, value in settings.items():
            _put(tree, name, value)
        return validated(tree)


def validated(tree: Mapping[str, Any]) -> Config:
    """A config from nested mappings; what is wrong is named with its place."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"the config is not valid: {mistakes(error)}") from None
    except RecursionError:
        raise ConfigError("the config is nested too deeply: see docs/configuration.md for the names") from None


def load_config(file: Path | None = None, settings: Iterable[str] = ()) -> Config:
    """Defaults, then a TOML file, then `a.b=c` settings."""
    tree: dict[str, Any] = {}
    if file is not None:
        try:
            tree = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read the config {file}: {error.strerror}: give an existing TOML file") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}: mend that place") from None
    return validated(tree).with_settings(dict(_parse_setting(text) for text in settings))


def _parse_setting(text: str) -> tuple[str, Any]:
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
            raise ConfigError(f"unknown setting '{name}': the names here are {', '.join(sorted(node))}")
        node = child
    if leaf not in node or isinstance(node[leaf], dict):
        raise ConfigError(f"unknown setting '{name}': the names here are {', '.join(sorted(node))}")
    node[leaf] = value


def mistakes(error: ValidationError) -> str:
    """What is wrong, each mistake with its place, on one line."""
    lines = []
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"]) or "config"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "unknown setting: see docs/configuration.md for the names"
        lines.append(f"{place}: {message} (got {reprlib.repr(problem['input'])})")
    return "; ".join(lines)
