"""The data of the rules that translate another trainer's keys: the key that a rule reads, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.config.reading.schema import Path, spell


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for a key: it is renamed, not needed by slimrl, or impossible. An impossible key prevents the run.

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
    matched by its `**`. `file` maps paths to all plain values of the file."""

    path: Path
    value: Any
    stars: Path
    rest: Path
    file: Mapping[Path, Any]

    def get(self, key: str) -> Any:
        """Return the value of another key of the file; None if the file lacks it."""
        return self.file.get(tuple(key.split(".")))

    def beside(self, *keys: str, up: int = 1) -> Any:
        """Return the value at this key's path with its last `up` keys replaced by `keys`; None if the file lacks it."""
        return self.file.get((*self.path[:-up], *keys))


def renamed(key: str, value: Any, why: str = "") -> Outcome:
    """Return the outcome for a key that is called `key` in slimrl, with its new value."""
    return Outcome("renamed", why, tuple(key.split(".")), value)


def name_of(path: Path) -> str:
    """Return a path as a report shows it: `orchestrator.env[0].id`."""
    return spell(tuple(f"[{key}]" if key.isdecimal() else key for key in path)).replace(".[", "[")
