"""Reads YAML and JSON with the line of every key."""

import json
import re
from typing import Any

import yaml
from yaml.resolver import BaseResolver

from slimrl.config.reading.nested import MAX_DEPTH, MAX_VALUES, TOO_DEEP, TOO_MANY, RefusedError, TextError
from slimrl.config.reading.schema import Path

MERGE = "tag:yaml.org,2002:merge"  # of the key `<<`
MAPPING, SEQUENCE = BaseResolver.DEFAULT_MAPPING_TAG, BaseResolver.DEFAULT_SEQUENCE_TAG
# Exceptions of PyYAML, besides its own, for text with an unsuitable tag, such as `!!int ""`.
WRONG_FOR_TAG = (ValueError, LookupError, AttributeError, TypeError, OverflowError)


class _Loader(yaml.SafeLoader):
    """A YAML loader that records lines, refuses duplicate keys, and reads 1e-5 as a number, which YAML 1.1 does not."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[Path, int] = {}
        self._num_values = 0

    def read(self, node: yaml.Node, path: Path = (), depth: int = 0) -> Any:
        """Return the value of the node at a path. An anchor's value is read again for every alias."""
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise RefusedError(_line(node), TOO_MANY)
        if depth > MAX_DEPTH:
            raise RefusedError(_line(node), TOO_DEEP)
        match node:
            case yaml.MappingNode(tag=tag) if tag == MAPPING:
                return self._read_mapping(node, path, depth + 1)
            case yaml.SequenceNode(tag=tag) if tag == SEQUENCE:
                items = [(item, (*path, str(index))) for index, item in enumerate(node.value)]
                self.lines |= {below: _line(item) for item, below in items}
                return [self.read(item, below, depth + 1) for item, below in items]
        try:
            return self.construct_object(node, deep=True)
        except WRONG_FOR_TAG:
            # The value may be a secret.
            kind = node.tag.rpartition(":")[2]
            raise TextError(_line(node), f"not valid YAML: a value is no {kind}, as its tag says") from None

    def _read_mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RefusedError(_line(key), "a key is a section or a list")
            if key.value in own:
                first = _line(own[key.value][0])
                raise RefusedError(_line(key), f"`{key.value}` stands here again, first in line {first}")
            if key.tag == MERGE:
                merged |= self._read_bases(value, path, depth)
            else:
                own[key.value] = key, value
        self.lines |= {(*path, name): _line(key) for name, (key, _) in own.items()}
        return merged | {name: self.read(value, (*path, name), depth) for name, (_, value) in own.items()}

    def _read_bases(self, node: yaml.Node, path: Path, depth: int) -> dict[str, Any]:
        """Return the mappings that `<<` merges; the first has precedence."""
        merged: dict[str, Any] = {}
        for base in reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]:
            found = self.read(base, path, depth)
            if not isinstance(found, dict):
                raise RefusedError(_line(base), "`<<` merges what is no section")
            merged |= found
        return merged


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
        raise RefusedError(loader.line + 1, TOO_DEEP) from None


def read_json(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the values and the line of every key in a JSON document. Raise TextError, also for a duplicate key."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(error.lineno, f"not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number of thousands of digits
        raise TextError(0, f"not valid JSON: {error}") from None
    except RecursionError:
        raise RefusedError(0, TOO_DEEP) from None
    try:  # the json module has no lines; except for tabs and a rare escape, JSON is YAML
        return value, read_yaml(text.replace("\t", " "))[1]
    except RefusedError:
        raise
    except TextError:
        return value, {}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
