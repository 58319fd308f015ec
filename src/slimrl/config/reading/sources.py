"""The environment and files as lists of `Setting`s; the command line is in `flags.py`.

Knows names and text, but not which values are valid: `load.py` merges and validates. Every setting carries its origin
(`run.toml:12`, `--seed`, `SLIMRL_SEED`), so that an error can say where to look.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from slimrl.config.base import OTHER_VARIABLES
from slimrl.config.reading.nested import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_KEY_CHARS,
    RefusedError,
    TextError,
    find_excess_value,
    flatten,
)
from slimrl.config.reading.schema import NEAR, Path, spell, where
from slimrl.config.reading.toml_text import find_toml_lines, parse_toml
from slimrl.config.reading.yaml_text import parse_json, parse_yaml
from slimrl.errors import UserError
from slimrl.io.regular_file import read_regular

ENV_PREFIXES = ("PRIME_", "SLIMRL_")  # in order of precedence, the lowest first
# By the ending of a file, what returns its data and the line of every key.
PARSERS: dict[str, Callable[[str], tuple[Any, dict[Path, int]]]] = {
    ".toml": lambda text: (parse_toml(text), find_toml_lines(text)),
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".json": parse_json,
}
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

    def __post_init__(self) -> None:
        check_path(self.path, self.origin)
        if isinstance(self.value, int) and not -MAX_INTEGER <= self.value < MAX_INTEGER:
            raise UserError(f"{where(self.path, self.origin)}: found an integer of more than 64 bits, which none has.")


def check_path(path: Path, origin: str) -> None:
    """Raises UserError for a path that no setting can have, before it is looked for."""
    if len(path) > MAX_DEPTH or any(len(key) > MAX_KEY_CHARS for key in path):
        raise UserError(
            f"{shorten(origin)}: `{shorten(spell(path))}` is no setting: one has a name of at most {MAX_DEPTH} parts, "
            f"each of at most {MAX_KEY_CHARS} characters."
        )


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
    suffix = FilePath(name).suffix.lower()
    if suffix not in PARSERS and not os.path.isdir(name):
        raise UserError(f"{name}: config files end in {', '.join(PARSERS)}. Rename the file to say what it holds.")
    text = _read(name)
    try:
        tree, lines = PARSERS[suffix](text)
    except TextError as error:
        raise UserError(_why_refused(name, text, error)) from None
    if not isinstance(tree, dict):
        raise UserError(f"{name}: found {show(tree)} at the top level, expected keys and values.")
    if excess := find_excess_value(tree):
        raise UserError(f"{name}: {excess}.")

    def origin(path: Path) -> str:
        # A parser may know the line of a list and not of its elements: the nearest known line is taken.
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
        return f"{name}:{line}" if line else name

    return [Setting((*under, *path), value, origin(path)) for path, value in flatten(tree) if path]


def _why_refused(name: str, text: str, error: TextError) -> str:
    at = f"{name}:{error.line}" if error.line else name
    if isinstance(error, RefusedError):
        return f"{at}: {error}."
    kind = {".toml": "TOML", ".json": "JSON"}.get(FilePath(name).suffix.lower(), "YAML")
    found = text.split("\n")[error.line - 1].strip() if error.line else ""
    # Not one within a text of several lines, which may be a secret.
    is_statement = kind == "TOML" and re.match(r"\[|[\w\"'.\s-]+=(?!=)", found)
    shown = f" The line is `{shorten(found)}`." if is_statement else ""
    return f"{at}: not valid {kind}: {error}.{shown}"


def shorten(text: str) -> str:
    """The text, or its beginning if it is long."""
    return text if len(text) <= 80 else text[:77] + "..."


def show(value: Any) -> str:
    """The value as it would be written in JSON, shortened."""
    return shorten(json.dumps(value, ensure_ascii=False, default=str))


def _read(name: str) -> str:
    """The text of a file. Raises UserError, with the nearest file name if there is no such file."""
    path = FilePath(name)
    if os.path.isdir(path):
        inside = path / "config.toml"
        hint = f" Did you mean `@ {inside}`?" if inside.is_file() else " Name a file in it."
        raise UserError(f"{name}: this is a directory, expected a config file.{hint}")
    if not os.path.lexists(path):
        raise UserError(f"{name}: no such file.{_other_files(path)}")
    content = read_regular(path, MAX_BYTES)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{name}:{line}: not UTF-8 text ({error.reason}). Save the file as UTF-8.") from None


def _other_files(path: FilePath) -> str:
    """A hint at the settings files that are where a missing one was looked for."""
    directory = path.parent
    if not os.path.isdir(directory):
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
