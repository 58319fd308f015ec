"""Applies the tables of prime-rl's keys (`keys.toml`), for `rl` and for `sft`, in all three dialects."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from slimrl.config.reading.schema import Path
from slimrl_tools.prime_rl import values
from slimrl_tools.prime_rl.values import Found, Outcome, name_of, renamed

# Exceptions that a rule may raise if a value has a wrong type.
WRONG_KIND = (TypeError, ValueError, AttributeError, LookupError, OverflowError)

Rule = Mapping[str, Any]
Table = Mapping[str, Rule]  # rules by pattern
CONTENT: Mapping[str, Any] = tomllib.loads((files("slimrl_tools.prime_rl") / "keys.toml").read_text(encoding="utf-8"))


def make_table(rules: Table, sections: Mapping[str, str]) -> Table:
    """Expand `rules`, whose keys are patterns separated by spaces. Braces contain alternatives, and `<NAME>` stands for
    `sections["NAME"]`. Return a table with one rule per pattern, the most specific pattern first.

    >>> list(make_table({"a.{b,c} <env>.id d.**": {"unneeded": ""}}, {"env": "orchestrator.env"}))
    ['a.b', 'a.c', 'orchestrator.env.id', 'd.**']
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


RL_KEYS, SFT_KEYS = (
    make_table(CONTENT["shared"] | CONTENT[command], CONTENT["sections"][command]) for command in ("rl", "sft")
)


def find_outcome(table: Table, path: Path, value: Any, file: Mapping[Path, Any]) -> Outcome | None:
    """Return the outcome of the table's first pattern that matches the path; None without a match. `file` has the
    values of the whole file by path."""
    for pattern, rule in table.items():
        fitted = _fit(tuple(pattern.split(".")), path)
        if fitted is not None:
            try:
                return _apply(rule, Found(path, value, *fitted, file))
            except WRONG_KIND as error:
                return Outcome("impossible", f"its value, or that of a key beside it, is of a wrong kind ({error})")
    return None


def is_listed(table: Table, path: Path) -> bool:
    """Return True if the table has a pattern that matches the path."""
    return any(_fit(tuple(pattern.split(".")), path) is not None for pattern in table)


def _fit(pattern: Path, path: Path) -> tuple[Path, Path] | None:
    """Match a path with a pattern. Return the keys at the places of `*`, and the keys at the place of the final `**`.
    Return None if the path does not match."""
    fixed = pattern[:-1] if pattern[-1] == "**" else pattern
    first, rest = path[: len(fixed)], path[len(fixed) :]
    if len(first) < len(fixed) or (rest and fixed is pattern):
        return None
    if any(wanted not in ("*", key) for wanted, key in zip(fixed, first, strict=True)):
        return None
    return tuple(key for wanted, key in zip(fixed, first, strict=True) if wanted == "*"), rest


def _apply(rule: Rule, found: Found) -> Outcome:
    match rule:
        case {"unneeded": why}:
            return Outcome("not_needed", _text(why))
        case {"impossible": why}:
            return Outcome("impossible", _text(why))
        case {"to": key}:
            return _rename(key, rule, found)
        case {"unless_set": key}:
            other = rule.get("other", key)
            if found.get(other) is None:
                return renamed(key, found.value)
            return Outcome("not_needed", _text(rule.get("why", f"{other} counts")))
        case {"only": allowed}:
            # In Python, `True == 1`. The types are compared, too, so that a switch never matches a number.
            fits = any(found.value == value and type(found.value) is type(value) for value in allowed)
        case {"same_as": keys}:
            fits = found.value in [found.get(key) for key in keys]
        case _:
            decide: Callable[..., Outcome] = vars(values)[rule["rule"]]
            return decide(found, *([rule["of"]] if "of" in rule else ()))
    if fits:
        return Outcome("not_needed", _text(rule["why"]))
    otherwise = _text(rule.get("otherwise", rule["why"]))
    return Outcome("impossible", otherwise.format(key=name_of(found.path), value=found.value))


def _rename(key: str, rule: Rule, found: Found) -> Outcome:
    above = "".join(f"{one}." for one in found.path[:-2])
    keys = key.format(*found.stars, key=found.path[-1], above=above).split(".")
    path = (*keys[:-1], *found.rest) if keys[-1] == "**" else tuple(keys)
    convert = vars(values)[rule["convert"]] if "convert" in rule else lambda value: value
    try:
        return Outcome("renamed", _text(rule.get("note", "")), path, convert(found.value))
    except ValueError as error:
        return Outcome("impossible", str(error))


def _text(text: str) -> str:
    return Template(text).substitute(CONTENT["texts"])
