"""What takes part in a benchmark, as it is typed: `plain,elr,strong=elr:elr.strength=7`."""

import re
from typing import Any

from somnet.benchmark.paper_tables import VARIANTS, Entry
from somnet.config import Config, parse_setting
from somnet.errors import ConfigError
from somnet.methods.registry import METHODS, trust

ENTRIES = {name: Entry(name, name) for name in METHODS} | {
    published.entry.name: published.entry for table in VARIANTS.values() for published in table
}
LONGEST_NAME = 60  # letters: it becomes part of the name of a folder
HOW = "write NAME=METHOD:setting=value,setting=value"
_SETTING = re.compile(r"\s*[A-Za-z_]\w*(\.\w+)+\s*=")  # every setting of a method has a dot in its name
_NAME = re.compile(r"\w[\w+() .-]*")


def parse_entries(text: str) -> tuple[Entry, ...]:
    """Methods by their names, and controls with settings of their own, separated by commas; each once.

    A control is `NAME=METHOD:setting=value`; what follows in the form of a setting belongs to it, too.
    """
    entries: dict[str, Entry] = {}
    entry: Entry | None = None
    for item in text.split(","):
        if _SETTING.match(item):
            if entry is None or entry.name == entry.method:
                raise ConfigError(f"the setting '{item.strip()}' follows no named entry: {HOW}")
            name, value = parse_setting(item)
            entry = Entry(entry.name, entry.method, {**entry.settings, name: value})
        else:
            entry = _control(item) if "=" in item else method_entry(item.strip())
            if entry.name in entries and (entries[entry.name] != entry or entry.settings):
                raise ConfigError(f"two entries are called '{entry.name}': give each a name of its own")
        entries[entry.name] = entry
    for entry in entries.values():
        Config().with_settings({"method": entry.method, **entry.settings})  # what does not exist is named now
    return tuple(entries.values())


def method_entry(name: str) -> Entry:
    """A method at its own settings: ours, or somebody else's."""
    trust(name)  # an unknown one is refused
    return Entry(name, name)


def _control(text: str) -> Entry:
    """`NAME=METHOD`, `NAME=METHOD:setting=value`; the method may be `package.module:Class`."""
    name, _, rest = (word.strip() for word in text.partition("="))
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"'{name}' cannot name an entry: use up to {LONGEST_NAME} letters, digits, spaces and + - . _ ( )"
        )
    if name in ENTRIES:
        raise ConfigError(f"'{name}' is the name of an entry at its own settings: give yours another name")
    method, settings = rest, dict[str, Any]()
    if "=" in rest:
        head, _, value = rest.partition("=")
        method, colon, setting = head.rpartition(":")
        if not colon or "." not in setting:
            raise ConfigError(f"cannot read the entry '{text.strip()}': {HOW}")
        settings = dict([parse_setting(f"{setting}={value}")])
    return Entry(name, method_entry(method.strip()).method, settings)
