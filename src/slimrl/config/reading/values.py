"""Reads the values of settings: the text of flags and variables as numbers or lists, and nested data in parts."""

import contextlib
from typing import Any

from slimrl.config.reading.formats import RefusedError, TextError, flatten, read_json, read_toml
from slimrl.config.reading.schema import Spec, describe, locate, spell, where
from slimrl.config.reading.sources import Setting, show
from slimrl.errors import UserError

SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def plain_settings(setting: Setting, root: Spec) -> list[Setting]:
    """Return the plain values of a setting: read the text of a flag or variable, and split nested data.

    Raise UserError for an unknown key, and for a value of the wrong form, such as a list where a section is expected.
    """
    spec = locate(root, setting.path, setting.origin)
    value = setting.value if setting.kind == "file" else read_value(setting, spec)
    if spec.is_list_of_numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]  # one number is a list of one
    value = _write_out(value, spec)
    found = "a section" if isinstance(value, dict) else show(value)
    hint = quote_hint(value)
    if is_wrong := not isinstance(value, (str, int, float, list, dict)):
        found = "nothing" if value is None else f"{value}, a {type(value).__name__}"
    elif is_wrong := spec.is_list and not isinstance(value, list):
        hint = f" Write `[[{spell(setting.path)}]]` with two brackets." if isinstance(value, dict) else hint
    elif spec.sections:
        is_wrong = not isinstance(value, dict)
        if isinstance(value, list) and setting.kind == "file":  # the elements are separate settings
            found, hint = "a list", f" Write `[{spell(setting.path)}]` with one bracket."
    if is_wrong:
        raise UserError(f"{where(setting.path, setting.origin)}: found {found}, expected {describe(spec)}.{hint}")
    parts = [Setting(path, part, setting.origin) for path, part in flatten(value, setting.path)]
    for part in parts:
        locate(root, part.path, part.origin)
    return parts


def _write_out(value: Any, spec: Spec) -> Any:
    """Expand a text to the section that it stands for. If a list of such sections is expected, return a list: `--env
    reverse-text` is `[{id = "reverse-text"}]`."""
    is_name = isinstance(value, str) and value[:1] not in ("[", "{", "")
    if spec.is_list and _shorthand(spec.item):
        items = [value] if is_name else value
        return [_write_out(one, spec.item) for one in items] if isinstance(items, list) else items
    return {_shorthand(spec): value} if _shorthand(spec) and is_name else value


def _shorthand(spec: Spec) -> str:
    return spec.sections[0].shorthand if len(spec.sections) == 1 else ""


def read_value(setting: Setting, spec: Spec) -> Any:
    """Return the value of a flag or variable: a TOML or JSON literal, or else its text."""
    text: str = setting.value
    if spec.is_verbatim:
        return text
    if spec.is_switch:
        return SWITCH.get(text.lower(), text)
    if spec.annotation is float:  # also for `.5` and `5`, which TOML refuses or reads as an integer
        with contextlib.suppress(ValueError):
            return float(text)
    # Parse the text as an element of a list: a comment is an error there, so `16 # x` stays a text.
    for document, read in ((f"value = [{text}, 0]", read_toml), (f'{{"value": [{text}, 0]}}', read_json)):
        try:
            tree, _ = read(document)
        except RefusedError as error:
            raise UserError(f"{where(setting.path, setting.origin)}: {error}") from None
        except TextError:  # not a literal of this format
            continue
        # A text with a line break may hold more than one key, and TOML has dates: neither is a setting's value.
        *values, _ = tree["value"]
        if spec.is_list_of_numbers and len(values) > 1:
            return values  # `2,3` without brackets
        if list(tree) == ["value"] and len(values) == 1 and isinstance(values[0], (str, int, float, list, dict)):
            return values[0]
    return text


def quote_hint(value: Any) -> str:
    """Return a hint for a text that looks like a list or a table, if the shell has removed its inner quotes."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return """ The shell takes quotes away: put single ones around the whole, as in '[{id="reverse-text"}]'."""
    return ""
