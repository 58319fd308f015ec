"""Reads TOML with the line of every key, which tomllib does not return."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from slimrl.config.reading.nested import MAX_DEPTH, TOO_DEEP, RefusedError, TextError, flatten
from slimrl.config.reading.schema import Path

# Whole strings and comments, and the structuring characters. A string of three quotes may have up to five at its end.
# An unterminated string takes the rest, so that no place is read twice.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*|[][{}=,.\n]",
    re.DOTALL,
)


def read_toml(text: str) -> tuple[dict[str, Any], dict[Path, int]]:
    """Return the values of a TOML document, and the line of every key. Raise TextError."""
    # A header changes the table of the following statements; `counts` has the number of elements of each array of
    # tables so far.
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        parsed = _parse(statement, line)
        if statement.lstrip().startswith("["):
            # A header alone parses to nested empty tables; it names the last of them.
            names = [path for path, _ in flatten(parsed)][-1]
            is_array = statement.lstrip().startswith("[[")
            table = _resolve_table(names[:-1] if is_array else names, counts, is_array)
            # An array of tables has the line of its first element.
            lines.setdefault(table[:-1] if is_array else table, line)
            lines[table] = line
        else:
            lines |= {(*table, *path): line for path, _ in flatten(parsed) if path}
    return _parse(text), lines


def _parse(text: str, line: int = 1) -> dict[str, Any]:
    """Return the values of a TOML text, whose first line has the number `line`. Raise TextError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise RefusedError(line, TOO_DEEP) from None
    except ValueError as error:
        why, _, place = str(error).partition(" (at ")
        if within := re.match(r"line (\d+)", place):
            line += int(within[1]) - 1
        elif place:  # the end of the document
            line += text.count("\n")
        raise TextError(line, f"not valid TOML: {why}") from None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a TOML document, each with its line: a header, or a key and its value. Invalid TOML is
    split somehow. Raise RefusedError for nested data or a dotted key that tomllib cannot parse in time or on its
    stack."""
    line = first_line = 1
    start = depth = num_dots = 0
    for found in TOKEN.finditer(text):
        token = found[0]
        if token == ".":
            num_dots += 1
        elif token[0] not in "\"'":
            num_dots = 0
        depth = max(0, depth + (token in "[{") - (token in "]}"))
        if max(depth, num_dots) > MAX_DEPTH:
            raise RefusedError(line, TOO_DEEP)
        line += token.count("\n")
        if token == "\n" and not depth:
            yield first_line, text[start : found.end()]
            start, first_line = found.end(), line
    yield first_line, text[start:]


def _resolve_table(names: Path, counts: dict[Path, int], is_array: bool) -> Path:
    """Return the path of a header's table, with the index of the current element of each array of tables on the way."""
    path: Path = ()
    for position, key in enumerate(names):
        path = (*path, key)
        if is_array and position == len(names) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, str(counts[path] - 1))
    return path
