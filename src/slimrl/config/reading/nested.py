"""Nested data as TOML, YAML and JSON have it: its parts with their paths, and the bounds of what settings may be."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

MAX_BYTES = 2**20  # of a file
MAX_DEPTH = 32  # of sections and lists within each other, and of the parts of a key
MAX_VALUES = 10_000  # in a file or a flag: what is longer is data, which has files of its own
MAX_KEY_CHARS = 200
MAX_INTEGER = 2**63  # exclusive, as in TOML

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
TOO_MANY = f"there are more than {MAX_VALUES:,} values, which is data: give it a file of its own"


class TextError(UserError):
    """A text that is not of its format, with the number of its line; 0 if that is not known."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class RefusedError(TextError):
    """A text that is of its format, and is not taken: beyond the bounds, or with a key twice."""


def flatten(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """The parts of nested data with their paths: an empty container, then what it contains. Raises RefusedError for
    data beyond the bounds.

    >>> flatten({"a": [1]})
    [((), {}), (('a',), []), (('a', '0'), 1)]
    """
    parts = list(islice(_parts(value, path), MAX_VALUES + 1))
    if len(parts) > MAX_VALUES:
        raise RefusedError(0, TOO_MANY)
    return parts


def _parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if len(path) > MAX_DEPTH:
        raise RefusedError(0, TOO_DEEP)
    match value:
        case dict():
            inside = [(str(key), item) for key, item in value.items()]
        case list():
            inside = [(str(index), item) for index, item in enumerate(value)]
        case _:
            yield path, value
            return
    yield path, type(value)()
    for key, item in inside:
        yield from _parts(item, (*path, key))
