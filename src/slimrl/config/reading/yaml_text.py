"""Reads YAML and JSON with the line of every key.

YAML's anchors may stand for more than a memory holds: what they stand for is counted before it is made.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from slimrl.config.reading.nested import MAX_VALUES, TOO_DEEP, TOO_MANY, RefusedError, TextError, find_excess
from slimrl.config.reading.schema import Path

# What PyYAML raises, besides its own, for text with a tag that it does not fit, such as `!!int ""`.
WRONG_FOR_TAG = (ValueError, LookupError, AttributeError, TypeError, OverflowError)


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads 1e-5 as a number, which YAML 1.1 reads as text, and stops at what is too much."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._num_nodes += 1
        if self._num_nodes > 2 * MAX_VALUES:  # keys are nodes, too
            raise RefusedError(0, TOO_MANY)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except WRONG_FOR_TAG:
            # What it is may be a secret.
            raise TextError(_line(node), f"a value is no {node.tag.rpartition(':')[2]}, as its tag says") from None


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> tuple[Any, dict[Path, int]]:
    """The values of a YAML document, and the line of every key. Raises TextError, also for a key that is there twice,
    which YAML would accept."""
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return {}, {}
        if excess := find_excess(root, _values_of):
            raise RefusedError(_line(excess[0]), excess[1])
        # Before the values are made: merge keys (`<<`) are then resolved in the nodes.
        lines = _lines_below(root)
        return loader.construct_document(root), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise TextError(line, error.problem or str(error)) from None
    except yaml.YAMLError as error:
        raise TextError(0, " ".join(str(error).split())) from None
    except RecursionError:
        raise RefusedError(0, TOO_DEEP) from None


def parse_json(text: str) -> tuple[Any, dict[Path, int]]:
    """The values of a JSON document, and the line of every key. Raises TextError, also for a key that is there twice,
    which JSON would accept."""
    try:  # the json module does not tell lines; but for tabs and a rare escape, JSON is YAML
        _, lines = parse_yaml(text.replace("\t", " "))
    except RefusedError:
        raise
    except TextError:
        lines = {}
    return parse_json_values(text), lines


def parse_json_values(text: str) -> Any:
    """The values of a JSON document. Raises TextError as `parse_json` does."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"{error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise RefusedError(0, str(error)) from None
    except RecursionError:
        raise RefusedError(0, TOO_DEEP) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs."""
    found = dict(pairs)
    if len(found) < len(pairs):
        again, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise RefusedError(0, f"`{again}` stands twice in one section")
    return found


def _lines_below(node: yaml.Node) -> dict[Path, int]:
    lines: dict[Path, int] = {}
    for path, line in _node_lines(node, ()):
        if path in lines:
            raise RefusedError(line, f"`{'.'.join(path)}` stands here again, first in line {lines[path]}")
        lines[path] = line
    return lines


def _node_lines(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    """The path and line of everything below a node."""
    match node:
        case yaml.MappingNode():
            children = [(str(key.value), key, value) for key, value in node.value]
        case yaml.SequenceNode():
            children = [(str(index), value, value) for index, value in enumerate(node.value)]
        case _:
            children = []
    for key, marked, value in children:
        yield (*path, key), _line(marked)
        yield from _node_lines(value, (*path, key))


def _values_of(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode) and (odd := [key for key, _ in node.value if not _is_plain(key)]):
        raise RefusedError(_line(odd[0]), "a key is a section or a list")
    match node:
        case yaml.MappingNode():
            return [value for _, value in node.value]
        case yaml.SequenceNode():
            return list(node.value)
    return ()


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
