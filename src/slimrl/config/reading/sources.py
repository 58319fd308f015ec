"""Reads files as lists of `Setting`s, and converts the texts of flags and environment variables to values.

Every setting has its origin (`run.toml:12`, `--seed`, `SLIMRL_SEED`) for error messages.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from slimrl.config.reading.formats import PARSERS, RefusedError, TextError, flatten, read_json, read_toml
from slimrl.config.reading.schema import Path, Spec, where
from slimrl.errors import UserError, nearest
from slimrl.io.regular_file import read_regular

MAX_BYTES = 2**20  # largest size of a file
NEAR_FILE = 0.8  # smallest similarity of a suggested file; high, because names with the same suffix are always similar
SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value at a path: a plain value, or an empty dict or list that the following settings fill.

    The value of a flag or an environment variable is a text. `read_value` converts it to a number, a list and so on.
    """

    path: Path
    value: Any
    origin: str
    kind: Literal["file", "flag", "variable"] = "file"

    @property
    def source(self) -> str:
        """The source of the value: the name of its file, or a common name for all flags or for all variables."""
        named = {"flag": "the command line", "variable": "the environment"}
        return named.get(self.kind) or re.sub(r":\d+$", "", self.origin)


def from_file(name: str, under: Path = ()) -> list[Setting]:
    """Return the settings in a TOML, YAML or JSON file, with `under` added before their paths. Raise UserError if the
    file is invalid."""
    text, parse = _read(name)
    try:
        tree, lines = parse(text)
        parts = flatten(tree)[1:]
    except TextError as error:
        at = f"{name}:{error.line}" if error.line else name
        raise UserError(f"{at}: {error}.") from None
    if not isinstance(tree, dict):
        raise UserError(f"{name}: found {show(tree)} at the top level, expected keys and values.")

    def origin(path: Path) -> str:
        # A parser may know the line of a list but not of its elements. Then take the nearest known line.
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)
        return f"{name}:{line}" if line else name

    return [Setting((*under, *path), value, origin(path)) for path, value in parts]


def show(value: Any) -> str:
    """Return the value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(name: str) -> tuple[str, Callable[[str], Any]]:
    """Return the text of a file, and the parser of its format. Raise UserError if the file cannot be read. If it does
    not exist, the message suggests the nearest file name."""
    path = FilePath(name)
    if os.path.isdir(path):
        inside = path / "config.toml"
        hint = f"Did you mean `@ {inside}`?" if inside.is_file() else "Name a file in it."
        raise UserError(f"{name}: this is a directory, expected a config file. {hint}")
    if not os.path.lexists(path):
        if not os.path.isdir(path.parent):
            raise UserError(f"{name:.300}: no such file. There is no directory {path.parent!s:.300}.")
        beside = [one.name for one in path.parent.iterdir() if one.suffix in PARSERS]
        raise UserError(f"{name}: no such file.{nearest(path.name, beside, NEAR_FILE)}")
    if path.suffix.lower() not in PARSERS:
        raise UserError(f"{name}: config files end in {', '.join(PARSERS)}. Rename the file to say what it holds.")
    content = read_regular(path, MAX_BYTES)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n"), PARSERS[path.suffix.lower()]
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{name}:{line}: not UTF-8 text ({error.reason}). Save the file as UTF-8.") from None


def read_value(setting: Setting, spec: Spec) -> Any:
    """Return the value of a flag or variable: its text, parsed as a TOML or JSON literal if possible."""
    text: str = setting.value
    if spec.is_verbatim:
        return text
    if spec.is_switch:
        return SWITCH.get(text.lower(), text)
    if spec.annotation is float:  # TOML would refuse `.5` and read `5` as an integer
        with contextlib.suppress(ValueError):
            return float(text)
    # Parse the text as an element of a list, where a comment is an error. So `16 # x` remains a text.
    for read, document in ((read_toml, f"value = [{text}, 0]"), (read_json, f'{{"value": [{text}, 0]}}')):
        try:
            tree, _ = read(document)
        except RefusedError as error:
            raise UserError(f"{where(setting.path, setting.origin)}: {error}") from None
        except TextError:  # not a literal of this format
            continue
        # A text with a line break may hold several keys, and TOML has dates. Both are not values of settings.
        *values, _ = tree["value"]
        if spec.is_list_of_numbers and len(values) > 1:
            return values  # `2,3` without brackets
        if list(tree) == ["value"] and len(values) == 1 and isinstance(values[0], (str, int, float, list, dict)):
            return values[0]
    return text
