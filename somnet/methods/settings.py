"""What the settings of a method are made of. A method's own stand in its file, and are read without loading torch."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Strength = Annotated[float, Field(ge=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A section of the config: frozen; unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class MethodSettings(Section):
    """What only one method needs: the section of the config that is named like the method's module.

    Values are those of the method's paper or public code, unless a comment says otherwise. A subclass uses pydantic,
    typing and this module only, since it is read without the rest of its file.
    """

    @classmethod
    def section(cls) -> str:
        """Its name in the config: `elr` for the settings in elr.py or beside it, in elr_settings.py."""
        return cls.__module__.rpartition(".")[2].removesuffix("_settings")
