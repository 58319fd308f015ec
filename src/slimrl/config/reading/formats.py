"""Reads TOML, YAML and JSON with the line number of every key, which the usual libraries do not return."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from slimrl.config.reading.schema import Path
from slimrl.errors import UserError

TOO_DEEP = "it is nested too deep"
MAX_VALUES = 100_000  # in a YAML file, each alias counted with all its values
Parsed = tuple[Any, dict[Path, int]]
Leaf = tuple[Path, Any]


class TextError(UserError):
    """An error for a text with invalid syntax or a duplicate key. `line` is the number of the faulty line; 0 if it is
    unknown."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


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
        return tomllib.loads(text), _toml_lines(text)
    except ValueError as error:
        why, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)  # or the end of the document
        raise TextError(int(line[1]) if line else text.count("\n") + 1, f"not valid TOML: {why}") from None
    except RecursionError:
        raise TextError(0, TOO_DEEP) from None


def _toml_lines(text: str) -> dict[Path, int]:
    """Return the line of every key in a valid TOML document. Statements are parsed one by one: a statement ends at the
    first line end at which its text is valid."""
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}  # the number of elements so far in each array of tables
    table: Path = ()
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += f"{line}\n"
        if line.rstrip().endswith(",") and "#" not in line:
            continue  # inside a list; without this check, the time for a long list would be quadratic
        try:
            paths = [path for path, _ in flatten(tomllib.loads(statement))]
        except tomllib.TOMLDecodeError:
            continue
        if statement.lstrip().startswith("["):
            # A header without content is parsed to nested empty tables. The innermost table has the path of the header.
            is_array = statement.lstrip().startswith("[[")
            table = _table_of(paths[-1][:-1] if is_array else paths[-1], counts, is_array)
            lines.setdefault(table[:-1] if is_array else table, first)  # an array has the line of its first element
            lines[table] = first
        else:
            lines |= {(*table, *path): first for path in paths if path}
        statement, first = "", number + 1
    return lines


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


class _Loader(yaml.SafeLoader):
    """A YAML loader whose keys are always text, such as `off`. Unlike YAML 1.1, it reads 1e-5 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str) -> Parsed:
    """Return the values and the line of every key in a YAML document. Raise TextError, also for a duplicate key."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        lines: dict[Path, int] = {}
        _add_lines(root, (), lines)
        return ({} if root is None else loader.construct_document(root)), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise TextError(line, f"not valid YAML: {error.problem or error}") from None
    except yaml.YAMLError as error:
        raise TextError(0, f"not valid YAML: {' '.join(str(error).split())}") from None
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError):  # from PyYAML, e.g. for `!!int ""`
        # The message does not show the value, which may be a secret.
        raise TextError(0, "not valid YAML: a key or value does not have the form of its type") from None
    except RecursionError:  # also for an alias inside its own anchor
        raise TextError(0, TOO_DEEP) from None


def _add_lines(node: yaml.Node | None, path: Path, lines: dict[Path, int]) -> None:
    """Add the line of every key below a node to `lines`. Raise TextError for a duplicate key, or if there are more than
    `MAX_VALUES` values."""
    inside: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inside = [(key.value, key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
    elif isinstance(node, yaml.SequenceNode):
        inside = [(str(index), item, item) for index, item in enumerate(node.value)]
    for name, place, value in inside:
        line, here = int(place.start_mark.line) + 1, (*path, name)
        if here in lines:
            raise TextError(line, f"`{name}` stands here again, first in line {lines[here]}")
        if len(lines) >= MAX_VALUES:
            raise TextError(line, f"the file has more than {MAX_VALUES:,} values, with those of its aliases")
        lines[here] = line
        _add_lines(value, here, lines)


def read_json(text: str) -> Parsed:
    """Return the values and the line of every key in a JSON document. Raise TextError, also for a duplicate key."""
    lines: dict[Path, int] = {}
    try:
        value = json.loads(text)
        # Read it as YAML too, because the json module has no line numbers. Nearly all JSON is YAML.
        _add_lines(_Loader(text.replace("\t", " ")).get_single_node(), (), lines)
    except yaml.YAMLError:
        return value, {}
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise TextError(0, f"not valid JSON: {error}") from None
    except RecursionError:
        raise TextError(0, TOO_DEEP) from None
    return value, lines


# For each suffix of a file, the function that returns the file's data and the line of every key.
PARSERS: Mapping[str, Callable[[str], Parsed]] = {
    ".toml": read_toml,
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
}
