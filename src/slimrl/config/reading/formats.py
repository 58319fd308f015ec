"""Reads TOML, YAML and JSON, with the line number of every key. The usual libraries do not return line numbers."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.resolver import BaseResolver

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

MAX_BYTES = 2**20  # largest size of a file
TOO_DEEP = "it is nested too deep"
MAX_VALUES = 100_000  # in a YAML file, each alias counted with all its values

# Matches whole strings, whole comments, brackets and line ends. A string in triple quotes may end with up to five
# quotes. If a string is not terminated, the match includes the rest, so that no part is read twice.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*|[][{}\n]",
    re.DOTALL,
)

MAPPING, SEQUENCE = BaseResolver.DEFAULT_MAPPING_TAG, BaseResolver.DEFAULT_SEQUENCE_TAG


class TextError(UserError):
    """A text is invalid in its format. `line` is the number of the faulty line; 0 if it is unknown."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class RefusedError(TextError):
    """A text is valid in its format but refused, because it has a key twice or is nested too deep."""


def flatten(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """Return the parts of nested data with their paths. A container is an empty dict or list, followed by its contents.

    >>> flatten({"a": [1]})
    [((), {}), (('a',), []), (('a', '0'), 1)]
    """
    if not isinstance(value, (dict, list)):
        return [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [(path, type(value)()), *(part for key, item in items for part in flatten(item, (*path, str(key))))]


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
            # A header alone parses to nested empty tables; the innermost table is the one that it names.
            names = _paths(parsed, line)[-1]
            is_array = statement.lstrip().startswith("[[")
            table = _resolve_table(names[:-1] if is_array else names, counts, is_array)
            # An array of tables has the line of its first element.
            lines.setdefault(table[:-1] if is_array else table, line)
            lines[table] = line
        else:
            lines |= {(*table, *path): line for path in _paths(parsed, line) if path}
    return _parse(text), lines


def _paths(parsed: dict[str, Any], line: int) -> list[Path]:
    """Return the paths in a statement. Raise TextError if it is nested too deep."""
    try:
        return [path for path, _ in flatten(parsed)]
    except RecursionError:
        raise TextError(line, TOO_DEEP) from None


def _parse(text: str, line: int = 1) -> dict[str, Any]:
    """Return the values of a TOML text, whose first line has the number `line`. Raise TextError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TextError(line, TOO_DEEP) from None
    except ValueError as error:
        why, _, place = str(error).partition(" (at ")
        if within := re.match(r"line (\d+)", place):
            line += int(within[1]) - 1
        elif place:  # the end of the document
            line += text.count("\n")
        raise TextError(line, f"not valid TOML: {why}") from None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement of a TOML document with its line number. A statement is a header, or a key with its value.
    Invalid TOML may be split at wrong places."""
    line = first_line = 1
    start = depth = 0
    for found in TOKEN.finditer(text):
        token = found[0]
        depth = max(0, depth + (token in "[{") - (token in "]}"))
        line += token.count("\n")
        if token == "\n" and not depth:
            yield first_line, text[start : found.end()]
            start, first_line = found.end(), line
    yield first_line, text[start:]


def _resolve_table(names: Path, counts: dict[Path, int], is_array: bool) -> Path:
    """Return the path of the table in a header. After each array of tables, the path has the index of the current
    element. With `is_array`, the header starts a new element, which is counted in `counts`."""
    path: Path = ()
    for position, key in enumerate(names):
        path = (*path, key)
        if is_array and position == len(names) - 1:
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, str(counts[path] - 1))
    return path


class _Loader(yaml.SafeLoader):
    """A YAML loader that records lines, refuses duplicate keys, and reads 1e-5 as a number, which YAML 1.1 does not."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[Path, int] = {}
        self._num_values = 0

    def read(self, node: yaml.Node, path: Path = ()) -> Any:
        """Return the value of the node at a path. An anchor's value is read again for every alias. Raise RefusedError
        if there are more than `MAX_VALUES` values."""
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise RefusedError(_line(node), f"the file has more than {MAX_VALUES:,} values, with those of its aliases")
        match node:
            case yaml.MappingNode(tag=tag) if tag == MAPPING:
                inside = [(key.value, key, value) for key, value in self._pairs(node)]
            case yaml.SequenceNode(tag=tag) if tag == SEQUENCE:
                inside = [(str(index), item, item) for index, item in enumerate(node.value)]
            case _:
                return self._read_scalar(node)
        self.lines |= {(*path, name): _line(place) for name, place, _ in inside}
        values = {name: self.read(value, (*path, name)) for name, _, value in inside}
        return values if isinstance(node, yaml.MappingNode) else [*values.values()]

    def _pairs(self, node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
        """Return the keys and values of a section, including the keys and values that `<<` merges into it. Raise
        RefusedError for a duplicate key."""
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RefusedError(_line(key), "a key is a section or a list")
            if key.value in first:
                line = first[key.value]
                raise RefusedError(_line(key), f"`{key.value}` stands here again, first in line {line}")
            first[key.value] = _line(key)
        self.flatten_mapping(node)
        if any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
            raise RefusedError(_line(node), "a key of a merged section is a section or a list")
        node.value = [*{key.value: (key, value) for key, value in node.value}.values()]  # own keys replace merged keys
        return list(node.value)

    def _read_scalar(self, node: yaml.Node) -> Any:
        try:
            return self.construct_object(node, deep=True)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):  # by PyYAML, as for `!!int ""`
            # The message does not show the value, which may be a secret.
            kind = node.tag.rpartition(":")[2]
            raise TextError(_line(node), f"not valid YAML: a value is no {kind}, as its form says") from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the values and the line of every key in a YAML document. Raise TextError, also for a duplicate key."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        return ({} if root is None else loader.read(root)), loader.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise TextError(line, f"not valid YAML: {error.problem or error}") from None
    except yaml.YAMLError as error:
        raise TextError(0, f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise RefusedError(0, TOO_DEEP) from None


def read_json(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the values and the line of every key in a JSON document. Raise TextError, also for a duplicate key."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise TextError(0, f"not valid JSON: {error}") from None
    except RecursionError:
        raise TextError(0, TOO_DEEP) from None
    try:  # the json module has no lines; except for tabs and a rare escape, JSON is YAML
        return value, read_yaml(text.replace("\t", " "))[1]
    except RefusedError:
        raise
    except TextError:
        return value, {}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
