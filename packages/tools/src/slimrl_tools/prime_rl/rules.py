"""Defines the input and the output of a translation rule: the key that the rule reads, and the outcome for this key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.config.reading.schema import Path, spell


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for a key: it is renamed, not needed in slimrl, or impossible. An impossible key prevents the run.

    `why` is the reason, or a note on a renamed key. `path` and `value` are the name and value of a renamed key in
    slimrl.
    """

    kind: Literal["renamed", "not_needed", "impossible"]
    why: str = ""
    path: Path = ()
    value: Any = None


@dataclass(frozen=True, slots=True)
class Found:
    """A key of the file that matches a pattern. `stars` are the keys matched by the pattern's `*`, and `rest` the keys
    matched by its `**`. `file` maps the path of each plain value in the file to the value."""

    path: Path
    value: Any
    stars: Path
    rest: Path
    file: Mapping[Path, Any]

    def get(self, key: str) -> Any:
        """Return the value of the file's key `key`, with dots; None if the file lacks it."""
        return self.file.get(tuple(key.split(".")))

    def beside(self, *keys: str, up: int = 1) -> Any:
        """Return the value of a neighbouring key: at this key's path, its last `up` names are replaced with `keys`.
        Return None if the file lacks the neighbour."""
        return self.file.get((*self.path[:-up], *keys))


def renamed(key: str, value: Any, why: str = "") -> Outcome:
    """Return the outcome for a key that is called `key` in slimrl, with its new value."""
    return Outcome("renamed", why, tuple(key.split(".")), value)


def name_of(path: Path) -> str:
    """Return a path as a report shows it: `orchestrator.env[0].id`."""
    return spell(tuple(f"[{key}]" if key.isdecimal() else key for key in path)).replace(".[", "[")
