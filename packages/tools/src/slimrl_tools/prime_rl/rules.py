"""Rules that translate keys of another trainer's settings file, and tables of such rules.

A table maps patterns to rules. In a pattern, `*` matches one key, and `**` at the end matches any number of keys. A
rule reads the key, its value and the rest of the file, and returns an outcome.
"""

import re
from collections.abc import Callable, Iterator, Mapping
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


# Errors that a rule may raise if a value has a wrong type.
WRONG_KIND = (TypeError, ValueError, AttributeError, LookupError, OverflowError)

Rule = Callable[[Found], Outcome]
Table = dict[str, Rule]


def make_table(rules: Table, **sections: str) -> Table:
    """Expand short patterns to a table of rules, with the most specific pattern first.

    A key of `rules` may hold several patterns, separated by spaces. Alternatives are in braces, and `<name>` stands for
    the text `sections["name"]`.

    >>> list(make_table({"<at>a.{b,c.d} e.**": unneeded("")}, at="{,x.}"))
    ['a.b', 'a.c.d', 'x.a.b', 'x.a.c.d', 'e.**']
    """
    found = {
        pattern: rule
        for patterns, rule in rules.items()
        for short in re.sub(r"<(\w+)>", lambda name: sections[name[1]], patterns).split()
        for pattern in _expand(short)
    }
    return dict(sorted(found.items(), key=lambda item: (item[0].endswith("**"), item[0].count("*"))))


def _expand(pattern: str) -> Iterator[str]:
    """Yield the expansions of a pattern with alternatives: `a.{b,c}` becomes `a.b` and `a.c`."""
    if braces := re.search(r"\{([^{}]*)\}", pattern):
        for one in braces[1].split(","):
            yield from _expand(f"{pattern[: braces.start()]}{one}{pattern[braces.end() :]}")
    else:
        yield pattern


def renamed(key: str, value: Any, why: str = "") -> Outcome:
    """Return the outcome for a key that has the name `key` and the value `value` in slimrl."""
    return Outcome("renamed", why, tuple(key.split(".")), value)


def unneeded(why: str) -> Rule:
    """Return a rule for a key that slimrl does not need, for the reason `why`."""
    return lambda found: Outcome("not_needed", why)


def impossible(why: str) -> Rule:
    """Return a rule for a key that is impossible, for the reason `why`."""
    return lambda found: Outcome("impossible", why)


def to(key: str, convert: Callable[[Any], Any] | None = None, note: str = "") -> Rule:
    """Return a rule that renames a key to `key`. In this name, `{0}` is the first star's key, `{key}` the last key,
    `{above}` the path without its last two keys, and a final `**` the rest of the path. `convert` computes the new
    value. If it raises ValueError, the key is impossible."""

    def rule(found: Found) -> Outcome:
        above = "".join(f"{one}." for one in found.path[:-2])
        keys = key.format(*found.stars, key=found.path[-1], above=above).split(".")
        path = (*keys[:-1], *found.rest) if keys[-1] == "**" else tuple(keys)
        try:
            return Outcome("renamed", note, path, found.value if convert is None else convert(found.value))
        except ValueError as error:
            return Outcome("impossible", str(error))

    return rule


def unless_set(key: str, other: str = "", why: str = "") -> Rule:
    """Return a rule that renames a key to `key`. If the file has the key `other`, by default `key` itself, the rule's
    key is not needed, for the reason `why`."""
    other = other or key
    return lambda found: (
        renamed(key, found.value) if found.get(other) is None else Outcome("not_needed", why or f"{other} counts")
    )


def only(values: tuple[Any, ...], why: str, otherwise: str = "") -> Rule:
    """Return a rule for a key. If the key's value is one of `values`, the key is not needed, for the reason `why`.
    Otherwise it is impossible, for the reason `otherwise` (default: `why`), where `{value}` stands for the value."""
    # `True == 1` in Python, but a switch is not a number.
    return lambda found: (
        Outcome("not_needed", why)
        if any(found.value == value and type(found.value) is type(value) for value in values)
        else Outcome("impossible", (otherwise or why).format(value=found.value))
    )


def same_as(*keys: str, why: str, otherwise: str) -> Rule:
    """Return a rule for a key. If its value equals the value of one of `keys` in the file, it is not needed, for the
    reason `why`. Otherwise it is impossible, for the reason `otherwise`, where `{key}` stands for the key's name."""
    return lambda found: (
        Outcome("not_needed", why)
        if found.value in [found.get(key) for key in keys]
        else Outcome("impossible", otherwise.format(key=name_of(found.path)))
    )


def find_outcome(table: Table, path: Path, value: Any, file: Mapping[Path, Any]) -> Outcome | None:
    """Return the outcome of the table's first pattern that matches the path; None without a match."""
    for pattern, rule in table.items():
        fitted = _fit(tuple(pattern.split(".")), path)
        if fitted is not None:
            try:
                return rule(Found(path, value, *fitted, file))
            except WRONG_KIND as error:
                return Outcome("impossible", f"its value, or that of a key beside it, is of a wrong kind ({error})")
    return None


def is_listed(table: Table, path: Path) -> bool:
    """Return True if the table has a pattern that matches the path."""
    return any(_fit(tuple(pattern.split(".")), path) is not None for pattern in table)


def _fit(pattern: Path, path: Path) -> tuple[Path, Path] | None:
    """Match a path with a pattern. Return the keys that its `*` match, and the keys that its final `**` matches; None
    if the pattern does not match."""
    fixed = pattern[:-1] if pattern[-1] == "**" else pattern
    first, rest = path[: len(fixed)], path[len(fixed) :]
    if len(first) < len(fixed) or (rest and fixed is pattern):
        return None
    if any(wanted not in ("*", key) for wanted, key in zip(fixed, first, strict=True)):
        return None
    return tuple(key for wanted, key in zip(fixed, first, strict=True) if wanted == "*"), rest


def name_of(path: Path) -> str:
    """Return a path as a report shows it: `orchestrator.env[0].id`."""
    return spell(tuple(f"[{key}]" if key.isdecimal() else key for key in path)).replace(".[", "[")
