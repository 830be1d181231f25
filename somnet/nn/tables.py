"""Tables with a row per training image, which no GPU need have room for."""

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor, nn


class WithTables(nn.Module):
    """A module with tables: part of its state like any buffer, but in main memory, wherever the rest of it goes."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: set[str] = set()

    def register_table(self, name: str, table: Tensor) -> None:
        """As `register_buffer`."""
        self.register_buffer(name, table)
        self._tables.add(name)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """What `to()` and its like do to every module."""
        kept = {name: self._buffers[name] for name in self._tables}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._buffers.update(kept)
        return self


def tables_of(module: nn.Module) -> list[Tensor]:
    """All tables of a module and of what it is made of."""
    owners = (owner for owner in module.modules() if isinstance(owner, WithTables))
    return [owner.get_buffer(name) for owner in owners for name in sorted(owner._tables)]
