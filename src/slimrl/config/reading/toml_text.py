"""Reads TOML with the line of every key, which tomllib does not tell, and in time that its length bounds.

tomllib takes minutes for a key of many parts, and its stack for nested values: both are found before it is asked.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from slimrl.config.reading.nested import MAX_DEPTH, TOO_DEEP, RefusedError, TextError, flatten
from slimrl.config.reading.schema import Path

# Strings and comments as wholes, and what structures the rest. A string of three quotes may end in up to five. One that
# does not end takes the rest, so that no place is read twice.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*|\d{400,}|[][{}=,.\n]",
    re.DOTALL,
)
OPEN, CLOSE = "[{", "]}"


def parse_toml(text: str) -> dict[str, Any]:
    """The values of a TOML document. Raises TextError."""
    for _ in split_statements(text):
        pass
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        raise TextError(int(at[1]) if at else text.count("\n") + 1, str(error)) from None
    except ValueError as error:  # a number of thousands of digits, with underscores between them
        raise RefusedError(0, str(error)) from None


def split_statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a TOML document, each with its line: a header, or a key and its value. What is no TOML is split
    somehow. Raises RefusedError for one that is nested too deep, or has a number or a key that is too long."""
    line = first_line = 1
    start = 0
    opened: list[str] = []
    num_dots, in_value = 0, False
    for found in TOKEN.finditer(text):
        token = found[0]
        if token.isdecimal():
            raise RefusedError(line, f"it has a number of {len(token)} digits")
        if token == ".":
            num_dots += not in_value
        elif token in OPEN:
            in_value = in_value and token == "["
            opened.append(token)
        elif token in CLOSE and opened:
            opened.pop()
        elif token in "=,":
            in_value = token == "=" or opened[-1:] != ["{"]
        if len(opened) > MAX_DEPTH or num_dots > MAX_DEPTH:
            raise RefusedError(line, TOO_DEEP)
        if token in ("=", ",", "{"):
            num_dots = 0
        line += token.count("\n")
        if token == "\n" and not opened:
            yield first_line, text[start : found.end()]
            start, first_line = found.end(), line
            num_dots, in_value = 0, False
    yield first_line, text[start:]


def find_toml_lines(text: str) -> dict[Path, int]:
    """The line of every key in valid TOML."""
    # A header changes the table that the following statements are in; `counts` has the number of elements of each array
    # of tables so far.
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for line, statement in split_statements(text):
        parsed = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            # A header alone parses to nested empty tables, and the last of them is the one that it names.
            names = [path for path, _ in flatten(parsed)][-1]
            is_array = statement.lstrip().startswith("[[")
            table = _resolve_table(names[:-1] if is_array else names, counts, is_array)
            # An array of tables has the line of its first element.
            lines.setdefault(table[:-1] if is_array else table, line)
            lines[table] = line
        else:
            lines |= {(*table, *path): line for path, _ in flatten(parsed) if path}
    return lines


def _resolve_table(names: Path, counts: dict[Path, int], is_array: bool) -> Path:
    """The path of a header's table, with the index of the current element of each array of tables on the way."""
    path: Path = ()
    for position, key in enumerate(names):
        path = (*path, key)
        if is_array and position == len(names) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, str(counts[path] - 1))
    return path
