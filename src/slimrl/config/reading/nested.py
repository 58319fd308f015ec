"""Nested data as TOML, YAML and JSON have it: its parts with their paths, and the bounds of what settings may be.

The bounds are far beyond what a person writes, and what is within them is read at once.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from slimrl.config.reading.schema import Path

MAX_BYTES = 2**20  # of a file
MAX_DEPTH = 32  # of sections and lists within each other, and of the parts of a key
MAX_VALUES = 10_000  # in a file or a flag: what is longer is data, which has files of its own
MAX_KEY_CHARS = 200
MAX_INTEGER = 2**63  # exclusive, as in TOML

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
TOO_MANY = f"there are more than {MAX_VALUES:,} values, which is data: give it a file of its own"


class TextError(Exception):
    """A text that is not of its format, with the number of its line; 0 if that is not known."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class RefusedError(TextError):
    """A text that is of its format, and is not taken: beyond the bounds, or with a key twice."""


def flatten(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The parts of nested data with their paths: an empty container, then what it contains.

    >>> list(flatten({"a": [1]}))
    [((), {}), (('a',), []), (('a', '0'), 1)]
    """
    match value:
        case dict():
            yield path, {}
            for key, item in value.items():
                yield from flatten(item, (*path, str(key)))
        case list():
            yield path, []
            for index, item in enumerate(value):
                yield from flatten(item, (*path, str(index)))
        case _:
            yield path, value


def find_excess(root: Any, children: Callable[[Any], Iterable[Any]]) -> tuple[Any, str] | None:
    """The first part of nested data that is too deep, or with which it is too large, and words for it; None if there is
    none. What contains itself is too deep."""
    level, number = [root], 1
    for _ in range(MAX_DEPTH + 1):
        below = list(islice(chain.from_iterable(map(children, level)), MAX_VALUES + 1))
        number += len(below)
        if number > MAX_VALUES:
            return level[0], TOO_MANY
        if not below:
            return None
        level = below
    return level[0], TOO_DEEP


def find_excess_value(root: Any) -> str:
    """Words for what is too deep or too large in data from TOML, YAML or JSON; empty if there is nothing."""
    excess = find_excess(root, _values_in)
    return excess[1] if excess else ""


def _values_in(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()
