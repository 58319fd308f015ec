"""Reads the values of settings: the text of flags and variables as numbers or lists, and nested data in parts."""

import contextlib
import re
from typing import Any

from slimrl.config.reading.nested import RefusedError, TextError, find_excess_value, flatten
from slimrl.config.reading.schema import Spec, below, describe, locate, spell, where
from slimrl.config.reading.sources import Setting, show
from slimrl.config.reading.toml_text import parse_toml
from slimrl.config.reading.yaml_text import parse_json_values
from slimrl.errors import UserError


def plain_settings(setting: Setting, root: Spec) -> list[Setting]:
    """The plain values of a setting: the text of a flag or variable is read, and nested data is taken apart.

    Raises UserError for an unknown key, and for a section or list where the other is expected.
    """
    spec = locate(root, setting.path, setting.origin)
    value = setting.value if setting.kind == "file" else read_value(setting, spec)
    if spec.is_list_of_numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]  # one number is a list of one
    here = where(setting.path, setting.origin)
    if not isinstance(value, (str, int, float, list, dict)):
        found = "nothing" if value is None else f"{value}, a {type(value).__name__}"
        raise UserError(f"{here}: found {found}, expected {describe(spec)}.")
    value = _written_out(value, spec)
    is_section = isinstance(value, dict)
    if spec.is_list and not isinstance(value, list):
        name = f"[[{spell(setting.path)}]]"
        hint = f" Write `{name}` with two brackets." if is_section else quote_hint(value)
        raise UserError(f"{here}: found {'a section' if is_section else show(value)}, expected {describe(spec)}.{hint}")
    if spec.sections and not is_section:
        raise UserError(f"{here}: found {show(value)}, expected {describe(spec)}.{quote_hint(value)}")
    parts = [Setting(path, part, setting.origin) for path, part in flatten(value, setting.path)]
    for part in parts:
        locate(root, part.path, part.origin)
    return parts


def read_value(setting: Setting, spec: Spec) -> Any:
    """The value of a flag or variable. Raises UserError for one that is beyond the bounds."""
    try:
        value = read_text(setting.value, spec)
        excess = find_excess_value(value)
    except RefusedError as error:
        excess = str(error)
    if excess:
        raise UserError(f"{where(setting.path, setting.origin)}: found {show(setting.value)}, but {excess}.")
    return value


def _written_out(value: Any, spec: Spec) -> Any:
    """The value with a text that stands for a section as that section, and for a list of such sections as a list:
    `--env reverse-text` is `[{id = "reverse-text"}]`."""
    if spec.is_list and (item := below(spec, "0")) is not None and _shorthand(item):
        items = [value] if _is_name(value) else value
        return [_written_out(one, item) for one in items] if isinstance(items, list) else items
    return {_shorthand(spec): value} if _shorthand(spec) and _is_name(value) else value


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value[:1] not in ("[", "{", "")


def _shorthand(spec: Spec) -> str:
    return spec.sections[0].shorthand if len(spec.sections) == 1 else ""


def read_text(text: str, spec: Spec) -> Any:
    """The value that a text stands for: a TOML or JSON literal, or else the text itself. Raises RefusedError for a
    literal that is nested too deep, or has a number that is too long."""
    if spec.is_verbatim:
        return text
    if spec.is_switch:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower(), text)
    if spec.is_list_of_numbers and re.fullmatch(r"[-+.\w]+(\s*,\s*[-+.\w]+)+", text):
        text = f"[{text}]"
    if spec.annotation is float:  # also for `.5` and `5`, which TOML refuses or reads as an integer
        with contextlib.suppress(ValueError):
            return float(text)
    if _ends_in_comment(text):  # TOML would read `16 # x` as 16, and lose the rest
        return text
    for document, parse in ((f"value = {text}", parse_toml), (f'{{"value": {text}}}', parse_json_values)):
        try:
            parsed = parse(document)
        except RefusedError:
            raise
        except TextError:  # no literal of this format
            continue
        # A text with a line break may hold more than one key, and TOML has dates: neither is a setting's value.
        if list(parsed) == ["value"] and isinstance(parsed["value"], (str, int, float, list, dict)):
            return parsed["value"]
    return text


def quote_hint(value: Any) -> str:
    """A hint for a text that looks like a list or a table, and whose inner quotes the shell has removed."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return """ The shell takes quotes away: put single ones around the whole, as in '[{id="reverse-text"}]'."""
    return ""


def _ends_in_comment(text: str) -> bool:
    """Whether TOML would take the end of the text for a comment: then nothing that follows can be wrong."""
    try:
        parse_toml(f"value = {text} ]")
    except TextError:
        return False
    return True
