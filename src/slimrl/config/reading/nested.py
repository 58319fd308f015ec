"""Nested data of TOML, YAML and JSON: its parts with their paths, and the size limits of settings."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

MAX_BYTES = 2**20  # of a file
MAX_DEPTH = 32  # of nested sections and lists, and of the parts of a key
MAX_VALUES = 10_000  # in a file or a flag: anything longer is data, which belongs in a separate file
MAX_KEY_CHARS = 200
MAX_INTEGER = 2**63  # exclusive, as in TOML

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"
TOO_MANY = f"there are more than {MAX_VALUES:,} values, which is data: give it a file of its own"


class TextError(UserError):
    """A text that is invalid in its format, with the number of its line; 0 if unknown."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class RefusedError(TextError):
    """A text that is valid in its format but refused: beyond the limits, or with a key twice."""


def flatten(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """Return the parts of nested data with their paths: an empty container, then its contents. Raise RefusedError for
    data beyond the limits.

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
