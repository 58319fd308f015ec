"""Reads files as lists of `Setting`s. The command line is read in `flags.py`, and the environment in `load.py`.

This module reads names and text; `load.py` merges and validates them. Every setting has its origin (`run.toml:12`,
`--seed`, `SLIMRL_SEED`) for error messages.
"""

import difflib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from slimrl.config.reading.formats import MAX_BYTES, TextError, flatten, read_json, read_toml, read_yaml
from slimrl.config.reading.schema import NEAR, Path, where
from slimrl.errors import UserError
from slimrl.io.regular_file import read_regular

# For each suffix of a file, the function that returns the file's data and the line of every key.
PARSERS: dict[str, Callable[[str], tuple[Any, dict[Path, int]]]] = {
    ".toml": read_toml,
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
}
# Files of other programs, which exist in the root of many repositories.
OF_OTHER_PROGRAMS = ("pyproject.toml", "mkdocs.yml", "package.json", "tsconfig.json", ".pre-commit-config.yaml")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value at a path: a plain value, or an empty dict or list that the following settings fill.

    A flag or an environment variable has a text as its value. `load.py` converts it to a number, a list and so on.
    """

    path: Path
    value: Any
    origin: str
    kind: Literal["file", "flag", "variable"] = "file"

    def __post_init__(self) -> None:
        if isinstance(self.value, int) and not -(2**63) <= self.value < 2**63:
            raise UserError(f"{where(self.path, self.origin)}: found an integer of more than 64 bits, which none has.")


def from_file(name: str, under: Path = ()) -> list[Setting]:
    """Return the settings of a TOML, YAML or JSON file, below the section `under`. Raise UserError if it is invalid."""
    suffix = FilePath(name).suffix.lower()
    if suffix not in PARSERS and os.path.lexists(name) and not os.path.isdir(name):
        raise UserError(f"{name}: config files end in {', '.join(PARSERS)}. Rename the file to say what it holds.")
    text = _read(name)
    try:
        tree, lines = PARSERS[suffix](text)
        parts = flatten(tree)[1:]
    except TextError as error:
        at = f"{name}:{error.line}" if error.line else name
        raise UserError(f"{at}: {error}.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{name}: found {show(tree)} at the top level, expected keys and values.")

    def origin(path: Path) -> str:
        # If a parser knows the line of a list but not of its elements, take the nearest known line.
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
        return f"{name}:{line}" if line else name

    return [Setting((*under, *path), value, origin(path)) for path, value in parts]


def show(value: Any) -> str:
    """Return the value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(name: str) -> str:
    """Return the text of a file. Raise UserError, with the nearest file name if it does not exist."""
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
    """Return a hint that names the settings files in the directory of the missing file `path`."""
    directory = path.parent
    missing = [one for one in (directory, *directory.parents) if not os.path.isdir(one)]
    if missing:
        return f" There is no directory {missing[-1]}."
    settings = [one for one in sorted(directory.iterdir()) if one.suffix in PARSERS]
    found = {one.stem: one for one in settings if one.name not in OF_OTHER_PROGRAMS}
    if not found:
        return f" There is no settings file in {directory.resolve()}."
    # Compare only the stems: the common directory and suffix would make all paths look similar.
    close = difflib.get_close_matches(path.stem, found, 1, NEAR)
    hint = f" Did you mean `{found[close[0]]}`?" if close else ""
    return f"{hint} Known: {', '.join(str(one) for one in found.values())}."
