"""The environment and files as lists of `Setting`s; the command line is in `flags.py`.

Knows names and text, but not which values are valid: `load.py` merges and validates. Every setting carries its origin
(`run.toml:12`, `--seed`, `SLIMRL_SEED`), so that an error can say where to look.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml

from slimrl.config.base import OTHER_VARIABLES
from slimrl.config.reading.schema import NEAR, Path
from slimrl.errors import UserError

ENV_PREFIXES = ("PRIME_", "SLIMRL_")  # in order of precedence, the lowest first
Lines = dict[Path, int]
# Files of other programs that lie in the root of many repositories.
OF_OTHER_PROGRAMS = ("pyproject.toml", "mkdocs.yml", "package.json", "tsconfig.json", ".pre-commit-config.yaml")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value at a path: a plain value, or an empty dict or list that the following settings fill.

    A flag or an environment variable has a text as its value, which `load.py` reads as a number, a list and so on.
    """

    path: Path
    value: Any
    origin: str
    kind: Literal["file", "flag", "variable"] = "file"


def from_environment(environ: Mapping[str, str], prefix: str) -> list[Setting]:
    """The settings in environment variables: `SLIMRL_TRAINER__OPTIM__LR=1e-5` is `trainer.optim.lr`."""
    settings = [
        Setting(tuple(name.removeprefix(prefix).lower().split("__")), text, name, "variable")
        for name, text in environ.items()
        if name.startswith(prefix) and name not in OTHER_VARIABLES
    ]
    # A list before its elements, and element 2 before element 10.
    return sorted(settings, key=lambda setting: [(len(key) * key.isdecimal(), key) for key in setting.path])


def from_file(name: str, under: Path = ()) -> list[Setting]:
    """The settings of a TOML, YAML or JSON file, below the section `under`. Raises UserError if it cannot be read."""
    text = _read(name)
    # Each reader returns the data and the line of every key.
    readers = {".toml": _read_toml, ".yaml": _read_yaml, ".yml": _read_yaml, ".json": _read_json}
    reader = readers.get(FilePath(name).suffix.lower())
    if reader is None:
        raise UserError(f"{name}: config files end in {', '.join(readers)}. Rename the file to say what it holds.")
    tree, lines = reader(name, text)
    if not isinstance(tree, dict):
        raise UserError(f"{name}: found {show(tree)} at the top level, expected keys and values.")

    def origin(path: Path) -> str:
        # A parser may know the line of a list and not of its elements: the nearest known line is taken.
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
        return f"{name}:{line}" if line else name

    return [Setting((*under, *path), value, origin(path)) for path, value in flatten(tree) if path]


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


def show(value: Any) -> str:
    """The value as it would be written in JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(name: str) -> str:
    """The text of a file. Raises UserError, with the nearest file name if there is no such file."""
    path = FilePath(name)
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise UserError(f"{name}: no such file.{_other_files(path)}") from None
    except IsADirectoryError:
        inside = path / "config.toml"
        hint = f" Did you mean `@ {inside}`?" if inside.is_file() else " Name a file in it."
        raise UserError(f"{name}: this is a directory, expected a config file.{hint}") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{name}:{line}: not UTF-8 text ({error.reason}). Save the file as UTF-8.") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}.") from None


def _other_files(path: FilePath) -> str:
    """A hint at the settings files that are where a missing one was looked for."""
    directory = path.parent
    if not directory.is_dir():
        return f" There is no directory {directory}."
    found = {
        one.stem: one
        for one in sorted(directory.iterdir())
        if one.suffix in (".toml", ".yaml", ".yml", ".json") and one.name not in OF_OTHER_PROGRAMS
    }
    if not found:
        return f" There is no settings file in {directory.resolve()}."
    # By their stems alone: what all have in common, directory and ending, would make each of them look near.
    close = difflib.get_close_matches(path.stem, found, 1, NEAR)
    hint = f" Did you mean `{found[close[0]]}`?" if close else ""
    return f"{hint} Known: {', '.join(str(one) for one in found.values())}."


def _read_toml(name: str, text: str) -> tuple[Any, Lines]:
    try:
        return tomllib.loads(text), _toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        number = int(at.group(1)) if at else text.count("\n") + 1
        found = text.split("\n")[number - 1].strip()
        raise UserError(f"{name}:{number}: not valid TOML: {error}. The line is `{found}`.") from None


def _toml_lines(text: str) -> Lines:
    """The line of every key in valid TOML. tomllib does not tell it, so the text is parsed one statement at a time."""
    # A statement may span lines: lines are added to it until it parses by itself. A header changes the table that the
    # following statements are in; `counts` has the number of elements of each array of tables so far.
    lines: Lines = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    statement, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        start = start if statement else number
        statement += line + "\n"
        try:
            parsed = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # it goes on in the next line
        if statement.lstrip().startswith("["):
            # A header alone parses to nested empty tables, and the last of them is the one that it names.
            names = [path for path, _ in flatten(parsed)][-1]
            is_array = statement.lstrip().startswith("[[")
            table = _resolve_table(names[:-1] if is_array else names, counts, is_array)
            # An array of tables has the line of its first element.
            lines.setdefault(table[:-1] if is_array else table, start)
            lines[table] = start
        else:
            lines |= {(*table, *path): start for path, _ in flatten(parsed) if path}
        statement = ""
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


class _YamlLoader(yaml.SafeLoader):
    """A YAML loader that reads 1e-5 as a number, which YAML 1.1 reads as text."""


_YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _read_yaml(name: str, text: str) -> tuple[Any, Lines]:
    try:
        tree = yaml.load(text, Loader=_YamlLoader)
        return {} if tree is None else tree, _yaml_lines(name, text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{name}:{line}: not valid YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not valid YAML: {error}.") from None


def _yaml_lines(name: str, text: str) -> Lines:
    """The line of every key in valid YAML. Raises UserError for a key that is there twice, which YAML would accept."""
    lines: Lines = {}
    root = yaml.compose(text, Loader=_YamlLoader)
    for path, line in _node_lines(root) if root else ():
        if path in lines:
            raise UserError(f"{name}:{line}: `{'.'.join(path)}` stands here again, first in line {lines[path]}.")
        lines[path] = line
    return lines


def _node_lines(node: yaml.Node, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """The path and line of everything below a node."""
    match node:
        case yaml.MappingNode():
            children = [(str(key.value), key, value) for key, value in node.value]
        case yaml.SequenceNode():
            children = [(str(index), value, value) for index, value in enumerate(node.value)]
        case _:
            children = []
    for key, marked, value in children:
        yield (*path, key), marked.start_mark.line + 1
        yield from _node_lines(value, (*path, key))


def _read_json(name: str, text: str) -> tuple[Any, Lines]:
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{name}:{error.lineno}: not valid JSON: {error.msg} at column {error.colno}.") from None
    try:  # the json module does not tell lines; but for tabs and a rare escape, JSON is YAML
        return tree, _yaml_lines(name, text.replace("\t", " "))
    except yaml.YAMLError:
        return tree, {}
