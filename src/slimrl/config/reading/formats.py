"""Reads TOML, YAML and JSON with the line number of every key, which the usual libraries do not return."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from yaml.resolver import BaseResolver

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

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
Parsed = tuple[Any, dict[Path, int]]
Leaf = tuple[Path, Any]


class TextError(UserError):
    """An error for a text with invalid syntax. `line` is the number of the faulty line; 0 if it is unknown."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class RefusedError(TextError):
    """An error for a text with valid syntax that is refused, because it has a duplicate key or is nested too deeply."""


def flatten(value: Any, path: Path = (), is_whole: Callable[[Any], bool] = lambda value: False) -> list[Leaf]:
    """Return nested data as a flat list of (path, value). A container becomes an empty dict or list, followed by its
    contents. A container for which `is_whole` returns True remains one value.

    >>> flatten({"a": [1]})
    [((), {}), (('a',), []), (('a', '0'), 1)]
    """
    if not isinstance(value, (Mapping, list, tuple)) or is_whole(value):
        return [(path, value)]
    empty: Any = {} if isinstance(value, Mapping) else []
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return [(path, empty), *(part for key, item in items for part in flatten(item, (*path, str(key)), is_whole))]


def read_toml(text: str) -> Parsed:
    """Return the values of a TOML document, and the line of every key. Raise TextError."""
    try:
        tree: dict[str, Any] | None = _parse_toml(text)
    except RecursionError:
        tree = None  # the loop finds the line
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}  # the number of elements so far in each array of tables
    table: Path = ()
    first = 1
    for first, statement in _statements(text):
        try:
            paths = [path for path, _ in flatten(tomllib.loads(statement))]
        except RecursionError:
            raise RefusedError(first, TOO_DEEP) from None
        if statement.lstrip().startswith("["):
            # A header without content is parsed to nested empty tables. The innermost table has the path of the header.
            is_array = statement.lstrip().startswith("[[")
            table = _table_of(paths[-1][:-1] if is_array else paths[-1], counts, is_array)
            lines.setdefault(table[:-1] if is_array else table, first)  # an array has the line of its first element
            lines[table] = first
        else:
            lines |= {(*table, *path): first for path in paths if path}
    if tree is None:
        raise RefusedError(first, TOO_DEEP)
    return tree, lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a valid TOML document, each with the number of its first line. A line end ends a
    statement, unless it is inside brackets or a string."""
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


def _table_of(names: Path, counts: dict[Path, int], is_array: bool) -> Path:
    """Return the path of the table with the header `names`. After each name of an array of tables, insert the index of
    the current element. With `is_array`, the header starts a new element, which is added to `counts`."""
    path: Path = ()
    for end, key in enumerate(names, start=1):
        path = (*path, key)
        if is_array and end == len(names):
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, str(counts[path] - 1))
    return path


def _parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML document. Raise TextError, or RecursionError if it is nested too deep."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        why, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)  # or the end of the document
        raise TextError(int(line[1]) if line else text.count("\n") + 1, f"not valid TOML: {why}") from None


class _Loader(yaml.SafeLoader):
    """A YAML loader that records lines and refuses duplicate keys. Unlike YAML 1.1, it reads 1e-5 as a number."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[Path, int] = {}
        self._num_values = 0

    def read(self, node: yaml.Node, path: Path = ()) -> Any:
        """Return the value of the node at a path. For every alias, the value of the anchor is read again. Raise
        RefusedError if the file has more than `MAX_VALUES` values."""
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
            if isinstance(key, yaml.ScalarNode):
                if key.value in first:
                    line = first[key.value]
                    raise RefusedError(_line(key), f"`{key.value}` stands here again, first in line {line}")
                first[key.value] = _line(key)
        self.flatten_mapping(node)
        if odd := [key for key, _ in node.value if not isinstance(key, yaml.ScalarNode)]:
            raise RefusedError(_line(odd[0]), "a key is a section or a list")
        node.value = [*{key.value: (key, value) for key, value in node.value}.values()]  # own keys replace merged keys
        return list(node.value)

    def _read_scalar(self, node: yaml.Node) -> Any:
        try:
            return self.construct_object(node, deep=True)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):  # from PyYAML, e.g. for `!!int ""`
            # The message does not show the value, which may be a secret.
            kind = node.tag.rpartition(":")[2]
            raise TextError(_line(node), f"not valid YAML: a value is no {kind}, as its form says") from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str) -> Parsed:
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


def read_json(text: str) -> Parsed:
    """Return the values and the line of every key in a JSON document. Raise TextError, also for a duplicate key."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise TextError(0, f"not valid JSON: {error}") from None
    except RecursionError:
        raise TextError(0, TOO_DEEP) from None
    try:  # read it as YAML, because the json module has no line numbers; nearly all JSON is YAML
        return value, read_yaml(text.replace("\t", " "))[1]
    except RefusedError:
        raise
    except TextError:
        return value, {}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


# For each suffix of a file, the function that returns the file's data and the line of every key.
PARSERS: Mapping[str, Callable[[str], Parsed]] = {
    ".toml": read_toml,
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
}
